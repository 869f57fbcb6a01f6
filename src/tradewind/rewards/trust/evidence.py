"""What is known about one judge on one criterion, as plain data in the order of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from tradewind.rewards.trust.statistics import Confusion
from tradewind.types.trust import LabelSource, Probe, ProbeKind, Sampling

YES = 0.5
"""A verdict or label from this value on is a yes."""


@dataclass(frozen=True)
class LabelledVerdict:
    """A verdict of the judge and what somebody else said of the same rollout."""

    item: str
    """Rollout id."""
    task: str
    judged: float
    label: float
    source: LabelSource
    at: float
    """When both were known, in Unix seconds."""
    rater: str = ""
    sampling: Sampling = Sampling.RANDOM
    features: Mapping[str, float] = field(default_factory=dict)
    """Of the answer: `length`, `markdown`, `echo`, `version`, whatever an error may depend on."""

    @property
    def wrong(self) -> bool:
        """Whether judge and label differ."""
        return (self.judged >= YES) != (self.label >= YES)


@dataclass(frozen=True)
class HeldoutPair:
    """A rollout that the training judge and a held-out judge both saw."""

    task: str
    judged: float
    heldout: float
    at: float


@dataclass(frozen=True)
class Evidence:
    """All that `measure` looks at. Everything is in the order of time."""

    labels: Sequence[LabelledVerdict] = ()
    probes: Sequence[Probe] = ()
    pairs: Sequence[HeldoutPair] = ()
    asked: Sequence[tuple[float, bool]] = ()
    """Verdicts that rewards needed: when (Unix seconds), and whether it was null."""

    def since(self, at: float) -> Evidence:
        """What came to be known after `at`: all that counts for leaving quarantine."""
        return replace(
            self,
            labels=[x for x in self.labels if x.at > at],
            probes=[x for x in self.probes if x.at > at],
            pairs=[x for x in self.pairs if x.at > at],
            asked=[x for x in self.asked if x[0] > at],
        )

    def stream(self, source: LabelSource) -> list[LabelledVerdict]:
        """The labels of one source that were sampled at random, one for each item.

        What several raters say of one item is one label, their mean; where they are divided the
        item says nothing.
        """
        return self._streams.get(source, [])

    @cached_property
    def _streams(self) -> dict[LabelSource, list[LabelledVerdict]]:
        given: dict[tuple[LabelSource, str], list[LabelledVerdict]] = {}
        for x in self.labels:
            if x.sampling is Sampling.RANDOM:
                given.setdefault((x.source, x.item), []).append(x)
        streams: dict[LabelSource, list[LabelledVerdict]] = {}
        for (source, _), same in given.items():
            mean = sum(x.label for x in same) / len(same)
            if mean != YES:
                streams.setdefault(source, []).append(replace(same[-1], label=mean))
        return {source: sorted(own, key=lambda x: x.at) for source, own in streams.items()}

    def sides(self, source: LabelSource, newest: int) -> dict[str, list[LabelledVerdict]]:
        """Of that stream, the `newest` labels with `yes` and as many with `no`.

        By side, because a policy that gets better leaves few labels with no among the newest.
        """
        stream = self.stream(source)
        return {
            side: [x for x in stream if (x.label >= YES) == (side == "yes")][-newest:]
            for side in ("no", "yes")
        }

    def of_kind(self, kind: ProbeKind) -> list[Probe]:
        """The probes of one kind."""
        return [probe for probe in self.probes if probe.kind is kind]


def confusion_of(sides: Mapping[str, Sequence[LabelledVerdict]]) -> Confusion:
    """The four counts of these labels."""
    labels = [x for side in sides.values() for x in side]
    return Confusion.of([x.judged >= YES for x in labels], [x.label >= YES for x in labels])
