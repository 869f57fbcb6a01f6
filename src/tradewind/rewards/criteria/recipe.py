"""A criteria file as the signals of a recipe: gates first, then what is weighted.

The composition of a reward is data in the recipe. This writes it down once; what an author changes
about weight or kind afterwards has to be written down again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tradewind.rewards.criteria.criterion import Criterion, Rubric


def signal_tables(file: Path, rubric: Rubric, options: Mapping[str, str | None]) -> str:
    """TOML: a `[[grader.signals]]` table for each criterion of a file.

    A must and a must-not are gates that open at the value 1 (`rewards/config.py`); should and bonus
    are weighted. `options` are those of the judge; a criterion with a checker takes none.
    """
    ordered = sorted(rubric.criteria, key=lambda criterion: not criterion.gate)
    return "\n".join(_table(file, criterion, options) for criterion in ordered)


def _table(file: Path, criterion: Criterion, options: Mapping[str, str | None]) -> str:
    given: dict[str, str | None] = {"criteria": str(file), "criterion": criterion.id}
    if criterion.checker is None:
        given |= options
    inner = ", ".join(f"{key} = {_quoted(value)}" for key, value in given.items() if value)
    use = "judge" if criterion.checker is None else "checked"
    role = 'role = "gate"' if criterion.gate else f"weight = {criterion.weight:g}"
    return (
        f'[[grader.signals]]\nname = {_quoted(criterion.id)}\nuse = "{use}"\n{role}\n'
        f"options = {{ {inner} }}\n"
    )


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
