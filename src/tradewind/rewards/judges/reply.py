"""A judge's reply: one JSON object, a level of the scale, and quotes that are really there.

Whoever reads a judge leniently reads what the agent wrote: a judge that thinks aloud repeats the
evidence, and evidence can hold a verdict. So a reply is the object alone (a code fence around it
and a reasoning block before it are taken off), and anything else is no verdict.

Policy of quotes: text is NFC, and runs of white space count as one space. Nothing else is forgiven.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from tradewind.rewards.criteria.criterion import Criterion
from tradewind.rewards.strictjson import read_json
from tradewind.types.record import Record

MOST_QUOTES = 20

_THOUGHTS = re.compile(r"^\s*<think>.*?</think>", re.DOTALL)
_FENCE = re.compile(r"^```(?:json)?\s*\n(.*)\n\s*```$", re.DOTALL)


class Quote(Record):
    """A passage and where it was found; None: nowhere, so it was invented."""

    text: str
    found_in: str | None


class Reply(Record):
    """A usable verdict of a judge."""

    level: str
    quotes: tuple[Quote, ...] = ()
    reason: str = ""
    confidence: float = 1.0
    """In [0, 1]: how sure the judge says it is; 1 if it says nothing."""


class Unusable(Exception):
    """The reply is no verdict; the message says why in words of ours only."""


def read_reply(text: str | None, criterion: Criterion, shown: Mapping[str, str]) -> Reply:
    """The verdict in a reply; raises `Unusable`."""
    data = _object(text)
    level = _level(data.get("verdict"), criterion)
    quotes = _quotes(data.get("quotes"), shown)
    if not quotes and (criterion.quotes == "always" or level != criterion.levels[0]):
        raise Unusable("it has no quote from the data")
    return Reply(
        level=level,
        quotes=quotes,
        reason=str(data.get("reason") or "")[:1000],
        confidence=_confidence(data.get("confidence")),
    )


def find_quote(quote: str, shown: Mapping[str, str]) -> Quote:
    """Where a quote stands in the evidence, by the policy above."""
    wanted = normalise(quote)
    if not any(character.isalnum() for character in wanted):
        return Quote(text=quote, found_in=None)
    places = (name for name, text in shown.items() if wanted in normalise(text))
    return Quote(text=quote, found_in=next(places, None))


def normalise(text: str) -> str:
    """NFC, with runs of white space as one space."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def _object(text: str | None) -> dict[str, Any]:
    bare = _THOUGHTS.sub("", text or "").strip()
    if not bare:
        raise Unusable("it is empty")
    fenced = _FENCE.match(bare)
    try:
        data = read_json(fenced[1] if fenced else bare)
        json.dumps(data, ensure_ascii=False).encode()  # half a character cannot be kept
    except (ValueError, RecursionError) as error:
        raise Unusable("it is not one JSON object") from error
    if not isinstance(data, dict):
        raise Unusable("it is not one JSON object")
    return data


def _level(said: Any, criterion: Criterion) -> str:
    if isinstance(said, bool) and set(criterion.levels) == {"no", "yes"}:
        return "yes" if said else "no"
    if isinstance(said, str):
        for level in criterion.levels:
            if said.strip().casefold() == level.casefold():
                return level
    raise Unusable(f"its verdict is none of {', '.join(criterion.levels)}")


def _quotes(said: Any, shown: Mapping[str, str]) -> tuple[Quote, ...]:
    if said is None:
        return ()
    if isinstance(said, str):
        said = [said]
    if not isinstance(said, list) or not all(isinstance(quote, str) for quote in said):
        raise Unusable("its quotes are not a list of texts")
    if len(said) > MOST_QUOTES:
        raise Unusable(f"it has more than {MOST_QUOTES} quotes")
    quotes = tuple(find_quote(quote, shown) for quote in said if quote.strip())
    invented = sum(quote.found_in is None for quote in quotes)
    if invented:
        raise Unusable(f"{invented} of its {len(quotes)} quotes are not in the data")
    return quotes


def _confidence(said: Any) -> float:
    if said is None:
        return 1.0
    if isinstance(said, bool) or not isinstance(said, int | float):
        raise Unusable("its confidence is no number")
    if not (math.isfinite(said) and 0 <= said <= 1):
        raise Unusable("its confidence is not between 0 and 1")
    return float(said)
