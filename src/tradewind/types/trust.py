"""Records of trust: what people said, what probes found, where a judge stands and since when."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from tradewind.types.ids import RolloutId
from tradewind.types.record import Json, Record


class LabelSource(StrEnum):
    """Who says what is true."""

    PERSON = "person"
    VERIFIER = "verifier"
    """A deterministic signal on the same rollout: free, and of any number."""
    MODEL = "model"
    """Another judge. Shown, never counted: models that agree may be wrong together."""


class Sampling(StrEnum):
    """How an item came to be labelled."""

    RANDOM = "random"
    """By chance out of the stream: the only kind that estimates anything."""
    DISAGREEMENT = "disagreement"
    """Because judges disagreed: for the repair of a criterion, kept apart from the estimates."""


class Label(Record):
    """One person's verdict on one rollout and one criterion.

    Example: `Label(rollout_id="g000017-r3", signal="polite", rater="ana", value=1, at=1764486000)`.
    """

    rollout_id: RolloutId
    signal: str
    """Name of the judged signal, as in the scores."""
    rater: str
    source: LabelSource = LabelSource.PERSON
    sampling: Sampling = Sampling.RANDOM
    value: float = Field(ge=0, le=1)
    """1: the criterion is met."""
    at: float
    """Unix seconds."""


class TrustState(StrEnum):
    """Where a judge stands on one criterion."""

    UNCALIBRATED = "uncalibrated"
    """Nobody knows yet: it may report."""
    PROBATION = "probation"
    TRUSTED = "trusted"
    QUARANTINED = "quarantined"
    """It was seen to fail. The way out needs a fresh labelled sample."""


class Standing(Record):
    """A judge's state on one criterion, and why. Appended to the ledger whenever it changes.

    Example: `Standing(signal="polite", version="3f9a", state="quarantined", factor=0.0,
    reasons=("master_key: 5 of 5 calls passed an answer that says nothing",), at=1764486000)`.
    """

    signal: str
    version: str
    """Of the signal: judge, prompt, criterion and rubric; with another one trust begins anew."""
    state: TrustState
    factor: float = Field(ge=0, le=1)
    """On the signal's weight, for whole groups."""
    reasons: tuple[str, ...] = ()
    """A sentence each: what brought it here, or what is missing to climb."""
    faults: tuple[str, ...] = ()
    """Names of the faults that were seen; empty unless quarantined."""
    measures: Json = Field(default_factory=dict)
    """The evidence in numbers."""
    thresholds: Json = Field(default_factory=dict)
    """What it was held against."""
    quarantines: int = 0
    """How often it has been quarantined so far, this time included."""
    at: float
    """Since when, in Unix seconds."""


class ProbeKind(StrEnum):
    """Why a judge was asked something that no reward needs."""

    CANARY = "canary"
    """An answer whose verdict is known."""
    REPEAT = "repeat"
    """The same question again: does it agree with itself?"""
    ANCHOR = "anchor"
    """A fixed old rollout, asked again later: is it still the same judge?"""
    HELDOUT = "heldout"
    """Another judge on the same rollout, which nobody trains against."""


class Probe(Record):
    """What came of asking. Example: `Probe(kind="canary", name="empty", signal="polite",
    version="3f9a", values=(1.0, 0.0, 0.0, 0.0, 0.0), expected=0.0, at=1764486000)`.
    """

    kind: ProbeKind
    name: str
    """Of the canary; of the held-out judge; else the rollout."""
    signal: str
    version: str
    rollout_id: RolloutId | None = None
    """The rollout it was made from."""
    values: tuple[float, ...]
    """Verdicts in the order of the calls; a null is left out."""
    expected: float | None = None
    """What a sound judge says; for anchors and held-out judges what this judge said itself."""
    evidence: Json = Field(default_factory=dict)
    at: float


PERSON = "person"
"""Stands for the alarm where a person has paused training."""


class Pause(Record):
    """Training stands still because an alarm said so, or a person; a person lets it go on.

    Example: `Pause(alarm="nulls", cause="31 of the last 100 rollouts were null", at=1764486000)`.
    """

    alarm: str
    """Its name, or `PERSON`."""
    cause: str
    at: float
    pools: int | None = None
    """Version to which the pools were sent back; None: they serve what they served."""
    trainer: bool = False
    """Whether the run's own trainer is to go back there, too."""

    @property
    def who(self) -> str:
        """`the alarm 'nulls'`, or `a person`."""
        return "a person" if self.alarm == PERSON else f"the alarm {self.alarm!r}"

    @property
    def sentence(self) -> str:
        """Which alarm, why, and what else was done."""
        said = f"paused by {self.who}: {self.cause}"
        if self.pools is None:
            return said
        who = "pools and the trainer" if self.trainer else "pools"
        return f"{said}; {who} go back to version {self.pools}"
