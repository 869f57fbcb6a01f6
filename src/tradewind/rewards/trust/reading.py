"""Evidence about a judge out of the ledger."""

from __future__ import annotations

from collections.abc import Sequence

from tradewind.ledger.ledger import Ledger
from tradewind.ledger.trust import Judge, JudgedRollout
from tradewind.rewards.trust.evidence import Evidence, HeldoutPair, LabelledVerdict
from tradewind.rewards.trust.features import FEATURES, VERSION
from tradewind.types.trust import Label, LabelSource, ProbeKind, Sampling


def read_evidence(ledger: Ledger, judge: Judge) -> Evidence:
    """All that the newest verdicts, labels and probes say of one judge on one criterion."""
    signal, version = judge.signal, judge.version
    judged = ledger.judged(signal, version, judge.truth)
    given = ledger.labels(signal)
    labelled = ledger.judged(signal, version, only=[label.rollout_id for label in given])
    free = [_free_label(found) for found in judged if found.truth is not None]
    said = _said_by_people({found.rollout_id: found for found in labelled}, given)
    probes = ledger.probes(signal, version)
    return Evidence(
        labels=sorted([x for x in [*free, *said] if x is not None], key=lambda x: x.at),
        probes=probes,
        pairs=[
            HeldoutPair(p.evidence["task"], p.expected, p.values[0], p.at)
            for p in probes
            if p.kind is ProbeKind.HELDOUT and p.values and p.expected is not None
        ],
        # A null without evidence is not the judge's: the rollout was not gradable.
        asked=[(f.at, f.value is None) for f in judged if f.value is not None or f.evidence],
    )


def _free_label(found: JudgedRollout) -> LabelledVerdict | None:
    assert found.truth is not None
    return _labelled(found, found.truth, LabelSource.VERIFIER, found.at)


def _said_by_people(
    verdicts: dict[str, JudgedRollout], given: Sequence[Label]
) -> list[LabelledVerdict | None]:
    return [
        _labelled(found, label.value, label.source, max(found.at, label.at), label)
        for label in given
        if (found := verdicts.get(label.rollout_id)) is not None
    ]


def _labelled(
    found: JudgedRollout,
    truth: float,
    source: LabelSource,
    at: float,
    label: Label | None = None,
) -> LabelledVerdict | None:
    """None for a verdict that is null: it is no error, and counted elsewhere."""
    if found.value is None:
        return None
    return LabelledVerdict(
        item=found.rollout_id,
        task=found.task_id,
        judged=found.value,
        label=truth,
        source=source,
        at=at,
        rater="" if label is None else label.rater,
        sampling=Sampling.RANDOM if label is None else label.sampling,
        features={VERSION: float(found.version), **found.evidence.get(FEATURES, {})},
    )
