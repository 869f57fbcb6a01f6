"""What was measured about one signal, and what it is good for."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from tradewind.rewards.config import Role
from tradewind.rewards.signal import Kind
from tradewind.types.record import Record


class Use(StrEnum):
    """What a signal may do in a reward."""

    USE = "use"
    """As the reward, or a weighted part of it."""
    GATE = "use as gate"
    """It turns down what cannot be right."""
    MONITOR = "monitor only"
    """Recorded and looked at; it has no say."""
    REFUSE = "refuse"
    """It would train something else than what is wanted."""


class Rung(Record):
    """One row of the table. What could not be measured is None."""

    name: str
    use: str
    role: Role
    """What the composition has it do now."""
    kind: Kind
    version: str
    n: int
    """Answers that it scored."""
    nulls: int
    null_cause: str = ""
    """Of the first of them."""
    determinism: float | None = None
    """Share of pairs of repeats of one answer that agree; None for a judge whose store gives the
    first verdict again."""
    compared_with: dict[str, int] = Field(default_factory=dict)
    """How many verdicts were held against what: `labels`, `made answers`, another signal's name."""
    agreement: float | None = None
    low: float | None = None
    """Lower end of the Wilson 95 % interval of the agreement."""
    high: float | None = None
    kappa: float | None = None
    ac1: float | None = None
    base_rate: float | None = None
    """Share of right answers among those that it was compared on."""
    false_yes: float | None = None
    """rho0: share of the wrong answers that it passes."""
    false_no: float | None = None
    """rho1: share of the right answers that it turns down."""
    right: int = 0
    """Right answers that it was compared on."""
    wrong: int = 0
    groups: int = 0
    """Groups of stored rollouts."""
    spread: float | None = None
    """Share of the groups in which its values differ by more than the resolution."""
    concordance: float | None = None
    """Of pairs of one group that truth tells apart, the share that it orders so; a tie is half."""
    rate: float
    """True pass rate at which the next one is computed."""
    usable: float | None = None
    """phi^2: share of the true signal that its noise leaves."""
    usable_by_kind: dict[str, float] = Field(default_factory=dict)
    """The same at the pass rate of each kind of task, as far as that is known."""
    seconds: float | None = None
    """Mean per score; nobody timed people."""
    tokens: float | None = None
    """Mean tokens of a model per score, for a judge that reports them."""
    usd: float | None = None
    """Mean price of a score, as far as the judge's options say what a token costs."""
    attacks: int = 0
    """Known attacks that were tried."""
    survived: int = 0
    passed_attacks: dict[str, str] = Field(default_factory=dict)
    """Those that it fell for, each with how often."""
    verdict: Use = Use.MONITOR
    reason: str = ""
