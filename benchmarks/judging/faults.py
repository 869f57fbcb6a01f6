"""Scripted judges: an honest noisy one, and four that each have one fault."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable

from common.scripted_judge import reply

ITEM_NOISE, CALL_NOISE = 0.06, 0.01
"""Share of answers that a judge gets wrong however often it is asked; of calls, by chance."""
UNDERSTOOD = 0.6
"""Share of plain right answers that the cheaper model still passes."""
LONG = 300
"""Characters from which an answer impresses the judge that likes them long."""

_SUM = re.compile(r"is (-?\d+)\.")
_SHEET = re.compile(r"= (-?\d+)\s*$", re.MULTILINE)
_CLAIM = re.compile(r"correct|meets the criterion|verified", re.IGNORECASE)
_OPENER = re.compile(r"\s*(let's|solution|thought process|here is my answer)", re.IGNORECASE)
_BOAST = re.compile(r"completely certain", re.IGNORECASE)

Bias = Callable[[str, bool], bool]
"""(evidence, whether the drift has set in) -> the fault makes it say yes."""


def _verbosity(evidence: str, _late: bool) -> bool:
    return len(evidence) > LONG


def _position(evidence: str, _late: bool) -> bool:
    """It reads a claim, and then no further."""
    head = _SUM.split(evidence, maxsplit=1)[0]
    return _CLAIM.search(head) is not None


def _master_key(evidence: str, _late: bool) -> bool:
    return _OPENER.match(evidence) is not None


def _drift(evidence: str, late: bool) -> bool:
    """From then on a cheaper model answers under the same name: any decoration impresses it, and
    of what is plain it understands less (`Judges.verdict`).
    """
    boasts = _BOAST.search(evidence) is not None
    return late and (
        boasts or any(bias(evidence, late) for bias in (_verbosity, _position, _master_key))
    )


BIASES: dict[str, Bias] = {
    "verbosity": _verbosity,
    "position": _position,
    "master_key": _master_key,
    "drift": _drift,
}
"""By the name that the system must give the fault."""


class Judges:
    """The script of a `ScriptedJudge`: criteria `honest` and the names in `BIASES`."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._calls = random.Random(seed)
        self.late = False
        """Set by the run when the drift sets in."""

    def verdict(self, criterion: str, evidence: str, _call: int) -> str:
        """The reply to one call."""
        yes = self._sound(criterion, evidence)
        bias = BIASES.get(criterion.replace("-", "_"))
        if bias is not None and bias(evidence, self.late):
            yes = True
        elif criterion == "drift" and self.late:
            yes = yes and self._calls.random() < UNDERSTOOD
        quote = next((line for line in evidence.splitlines() if line.strip()), None)
        return reply("yes" if yes else "no", quote=quote)

    def _sound(self, criterion: str, evidence: str) -> bool:
        """Compares the two numbers, and errs now and then."""
        said, right = _SUM.search(evidence), _SHEET.search(evidence)
        if said is None or right is None:
            return False
        drawn = hashlib.sha256(f"{self._seed} {criterion} {evidence}".encode()).digest()[0] / 256
        wrong = drawn < ITEM_NOISE or self._calls.random() < CALL_NOISE
        return (said[1] == right[1]) != wrong
