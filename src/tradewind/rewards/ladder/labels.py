"""What people said about rollouts: in the run's ledger (`tradewind trust label`), or JSON lines.

{"rollout_id": "g000017-r3", "label": 1}                       the result is right
{"rollout_id": "g000017-r3", "label": false, "signal": "tone"}   what one signal asks is not so
"""

from __future__ import annotations

from collections.abc import Iterable
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
Labels = dict[str, dict[str, bool]]
"""By rollout, then by signal."""


def kept_labels(found: Iterable[Label]) -> Labels:
    """What most people said of rollouts that chance chose; nothing where they are divided."""
    said: dict[tuple[str, str], list[float]] = {}
    for label in found:
        if label.source is LabelSource.PERSON and label.sampling is Sampling.RANDOM:
            said.setdefault((label.rollout_id, label.signal), []).append(label.value)
    labels: Labels = {}
    for (rollout, signal), values in said.items():
        if (mean := sum(values) / len(values)) != _DIVIDED:
            labels.setdefault(rollout, {})[signal] = mean > _DIVIDED
    return labels


def read_labels(file: Path) -> Labels:
    """All labels; raises `UserError` that names the line if one cannot be used."""
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
        found.setdefault(row.rollout_id, {})[row.signal] = row.label
    return found
