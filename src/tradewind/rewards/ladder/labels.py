"""What people said about rollouts: JSON lines.

{"rollout_id": "g000017-r3", "label": 1}                       the result is right
{"rollout_id": "g000017-r3", "label": false, "signal": "tone"}   what one signal asks is not so
"""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from tradewind.types.errors import UserError
from tradewind.types.record import Record

SHAPE = '{"rollout_id": "g000017-r3", "label": 1}, with "signal" if it is about one signal'


class LabelRow(Record):
    """One line."""

    rollout_id: str
    label: bool
    """1 or true if it is right."""
    signal: str = ""
    """Which signal's question it answers; empty for the result as a whole."""


Labels = dict[str, dict[str, bool]]
"""By rollout, then by signal."""


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
