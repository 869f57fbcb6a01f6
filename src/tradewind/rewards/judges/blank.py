"""Work that is not worth a judge's look: nothing, a phrase that opens judges, an echo of the task.

Such phrases ("Solution:", a lone colon) make judges say yes to an answer that is not there, with
false positives up to 80 to 90 % (Zhao et al. 2025, arXiv 2507.08794). What is settled here has the
value 0: it earns nothing and violates nothing.
"""

from __future__ import annotations

import unicodedata

from tradewind.rewards.criteria.exhibit import Exhibit
from tradewind.rewards.judges.reply import normalise

MASTER_KEYS = (
    "solution",
    "final answer",
    "answer",
    "thought process",
    "reasoning",
    "explanation",
    "let's solve this problem step by step",
    "let's solve this step by step",
    "let's think step by step",
    "step by step",
    "here is the solution",
    "here is the answer",
    "解",
    "かいせつ",
    "respuesta",
    "lösung",
)
"""Case, punctuation and white space around them do not matter, nor what nobody can see."""

_FILLERS = "\u115f\u1160\u3164\uffa0"
"""Letters by their class, and empty to the eye."""


def why_blank(exhibit: Exhibit) -> str | None:
    """Why there is nothing to judge, or None."""
    work = exhibit.work
    if not work.strip():
        return "there is no work to judge: it is empty"
    bare = _bare(work)
    if not bare:
        return "there is no work to judge: it is punctuation only"
    if bare in MASTER_KEYS:
        return f"there is no work to judge: only the phrase {work.strip()[:60]!r}"
    if exhibit.task is not None and bare == _bare(exhibit.task):
        return "there is no work to judge: it repeats the task"
    return None


def _bare(text: str) -> str:
    seen = "".join(c for c in text if c not in _FILLERS and unicodedata.category(c) != "Cf")
    folded = normalise(seen).casefold().replace("\u2019", "'")
    first = next((i for i, c in enumerate(folded) if c.isalnum()), len(folded))
    last = next((i for i, c in enumerate(reversed(folded)) if c.isalnum()), 0)
    return folded[first : len(folded) - last]
