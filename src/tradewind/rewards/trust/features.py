"""What an error may depend on: plain numbers of an answer, kept with each verdict."""

from __future__ import annotations

import re

from tradewind.types.record import Json

FEATURES = "features"
"""Key of a judged score's evidence."""
VERSION = "version"
"""The policy's version, as a feature: does the judge err more on newer answers?"""

_MARK = re.compile(r"^\s*(?:[-*+] |#+ |\d+[.)] |\|)|\*\*|`", re.MULTILINE)
_WORD = re.compile(r"\w{4,}")


def features_of(work: str, question: str) -> Json:
    """Of an answer and the criterion's question.

    length: characters; markdown: marks (headings, bullets, bold, code) per 1,000 characters;
    echo: share of the question's longer words that the answer repeats, in [0, 1].
    """
    asked = {word.casefold() for word in _WORD.findall(question)}
    said = {word.casefold() for word in _WORD.findall(work)}
    return {
        "length": float(len(work)),
        "markdown": round(1000 * len(_MARK.findall(work)) / max(1, len(work)), 3),
        "echo": round(len(asked & said) / len(asked), 3) if asked else 0.0,
    }
