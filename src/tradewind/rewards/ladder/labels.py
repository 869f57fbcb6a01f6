"""What people said about rollouts: in the run's ledger (`tradewind trust label`), or JSON lines.

{"rollout_id": "g000017-r3", "label": 1}                       the result is right
{"rollout_id": "g000017-r3", "label": false, "signal": "tone"}   what one signal asks is not so
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import ValidationError

from tradewind.types.errors import UserError
from tradewind.types.record import Record
from tradewind.types.trust import Label, LabelSource, Sampling

SHAPE = '{"rollout_id": "g000017-r3", "label": 1}, with "signal" if it is about one signal'


class LabelRow(Record):
    """One line."""

    rollout_id: str
    label: bool
    """1 or true if it is right."""
    signal: str = ""
    """Which signal's question it answers; empty for the result as a whole."""


_DIVIDED = 0.5
Labels = dict[str, dict[str, tuple[float, ...]]]
"""By rollout, then by signal: what each person said, in [0, 1]."""


def majority(said: Sequence[float]) -> bool | None:
    """What most people said; None where nobody did, or they are divided."""
    mean = sum(said) / len(said) if said else _DIVIDED
    return None if mean == _DIVIDED else mean > _DIVIDED


def kept_labels(found: Iterable[Label]) -> Labels:
    """What people said of rollouts that chance chose."""
    labels: Labels = {}
    for label in found:
        if label.source is LabelSource.PERSON and label.sampling is Sampling.RANDOM:
            _add(labels, label.rollout_id, label.signal, label.value)
    return labels


def _add(labels: Labels, rollout: str, signal: str, value: float) -> None:
    about = labels.setdefault(rollout, {})
    about[signal] = (*about.get(signal, ()), value)


def read_labels(file: Path) -> Labels:
    """All labels; two lines about the same question are of two people.

    Raises `UserError`, which names the line, if one cannot be used.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UserError(
            f"the labels cannot be read ({error.strerror})", value=str(file), fix="check the path"
        ) from error
    found: Labels = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = LabelRow.model_validate_json(line)
        except ValidationError as error:
            fault = error.errors()[0]
            where = ".".join(map(str, fault["loc"])) or "the line"
            raise UserError(
                f"line {number} of the labels does not work ({where}: {fault['msg']})",
                value=line[:80],
                fix=f"write {SHAPE}",
            ) from error
        _add(found, row.rollout_id, row.signal, float(row.label))
    return found
