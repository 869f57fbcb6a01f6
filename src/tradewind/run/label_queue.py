"""`tradewind trust sample`: a file of rollouts for people to label, without judges' verdicts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from tradewind.ledger.ledger import Ledger
from tradewind.ledger.payloads import LostPayload
from tradewind.ledger.trust import Judge
from tradewind.rewards.config import Composition
from tradewind.rewards.criteria.criterion import Criterion
from tradewind.rewards.criteria.exhibit import exhibit_of
from tradewind.rewards.criteria.file import read_criterion
from tradewind.rewards.stored_episode import stored_episode
from tradewind.rewards.trust.sampling import Wanted, wanted
from tradewind.types import Json, UserError
from tradewind.types.trust import ProbeKind

SHOWN = "show"
"""Key of a line that is for the person alone; `trust label` does not read it."""


def queue(
    ledger: Ledger, judge: Judge, *, rater: str, n: int, random_share: float
) -> Iterator[Json]:
    """The lines of a file: a label each whose `value` is still to be filled in.

    Raises `UserError` if the criterion's file cannot be read.
    """
    criterion = _criterion(ledger, judge)
    for one in _wanted(ledger, judge, rater, n, random_share):
        yield {
            "rollout_id": one.rollout_id,
            "signal": judge.signal,
            "rater": rater,
            "sampling": one.sampling.value,
            "value": None,
            SHOWN: {"probability": one.probability, **_shown(ledger, criterion, one.rollout_id)},
        }


def _wanted(
    ledger: Ledger, judge: Judge, rater: str, n: int, random_share: float
) -> Sequence[Wanted]:
    """Without what this rater has labelled: a second one gets the same rollouts by lot."""
    probes = ledger.probes(judge.signal, judge.version)
    others = {
        probe.rollout_id: probe.values[0]
        for probe in probes
        if probe.kind is ProbeKind.HELDOUT and probe.rollout_id is not None and probe.values
    }
    return wanted(
        ledger.judged(judge.signal, judge.version, judge.truth),
        {label.rollout_id for label in ledger.labels(judge.signal) if label.rater == rater},
        others,
        signal=judge.signal,
        n=n,
        random_share=random_share,
    )


def _criterion(ledger: Ledger, judge: Judge) -> Criterion:
    used = ledger.composition()
    signals = () if used is None else Composition.model_validate(used[1]).signals
    options = next((s.options for s in signals if s.name == judge.signal), None)
    if options is None:
        raise UserError(
            "no signal of that name is in the reward that this run uses now",
            value=judge.signal,
            fix="tradewind rewards show RUN lists them",
        )
    return read_criterion(Path(options["criteria"]), str(options.get("criterion", "")))[1]


def _shown(ledger: Ledger, criterion: Criterion, rollout: str) -> Json:
    """What a person needs: the question, the answers that there are, what the judge was shown."""
    try:
        episode = stored_episode(ledger, rollout, turns=criterion.needs_turns)
    except LostPayload as error:
        return {"question": criterion.question, "lost": str(error)}
    assert episode is not None, f"{rollout} has a verdict and is not graded"
    exhibit = exhibit_of(criterion, episode.task, episode.outcome, episode.turns)
    return {
        "question": criterion.question,
        **({"guidance": criterion.guidance} if criterion.guidance else {}),
        "value": f"1 if it is good ({_level(criterion, 1.0)}), 0 if not ({_level(criterion, 0.0)})",
        "task": exhibit.task,
        "evidence": exhibit.shown,
    }


def _level(criterion: Criterion, value: float) -> str:
    return next(level for level in criterion.levels if criterion.value(level) == value)


def written(lines: Sequence[Json], file: Path) -> str:
    """Write the queue; what was written, for a person."""
    if file.exists():
        raise UserError(
            "there is such a file already, and somebody may have labelled in it",
            value=str(file),
            fix="give another --out, or move it away",
        )
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    file.write_text(text, encoding="utf-8")
    by_lot = sum(line["sampling"] == "random" for line in lines)
    rest = len(lines) - by_lot
    return f"{len(lines)} rollouts, {by_lot} by lot and {rest} where judges are in doubt"
