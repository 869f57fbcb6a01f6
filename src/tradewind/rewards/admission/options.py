"""What a task must show before it may train."""

from __future__ import annotations

from pydantic import Field

from tradewind.types.config import Config


class AdmissionOptions(Config):
    """`[tasks.admission]` of a recipe, and options of `tradewind tasks admit`."""

    maximum: float = 1.0
    """The reward that the oracle must reach."""
    floor: float = 0.1
    """The most that an answer may get that knows nothing of the task. Not zero, because some
    scorers give a little for the form alone (those of reasoning-gym up to 0.05)."""
    repeats: int = Field(default=3, ge=1)
    """How often the oracle is scored; all verdicts must be the same."""
    mutants: int = Field(default=8, ge=0)
    """How many small errors are made in the oracle; 0 for none."""
    rejected: float = Field(default=0.6, ge=0, le=1)
    """Share of the mutants that must stay below `maximum`. Not all: an error may change nothing on
    the data at hand."""
    attacked: int = Field(default=2, ge=0)
    """On how many tasks the known attacks on the reward's verifiers are tried; 0 for none. One that
    pays on two of them (or on the only one) refuses all tasks: it would be learnt on any."""
    majority: float = Field(default=0.5, gt=0, le=1)
    """If one fixed answer is right for more than this share of the tasks of a kind, and for three
    of them at least, the kind can be guessed and all its tasks are refused."""
    leak_characters: int = Field(default=12, ge=1)
    """Shorter texts of the reference may stand in the input: they prove nothing."""
    leak_share: float = Field(default=0.6, gt=0, le=1)
    """So much of a right answer may not stand in the input in one piece. 1 looks for the whole
    only, for tasks that ask to repair or to shorten what they show."""
    budget_s: float = Field(default=5.0, gt=0)
    """Longest that one verdict on the task may take, in seconds; those on mutants do not count."""
    need_oracle: bool = False
    """Whether a task is refused whose oracle nobody knows."""
