"""What the sampled tokens of an answer were for: thinking, tool calls, or message.

    ids ──► text ──► spans of characters ──► the tokens that begin in each, by bisection

The ids are the engine's; nothing is tokenised again. A token that straddles two parts belongs to
the one in which it begins, a token without text (an end mark) to that of the token before it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence

from tradewind.render.renderer import Renderer
from tradewind.types import Json
from tradewind.types.turn import TokenParts

THINKING = (("<think>", "</think>"), ("[THINK]", "[/THINK]"), ("<thinking>", "</thinking>"))
"""Marks of the families that have them, as they stand in decoded text."""

Span = tuple[int, int]

_TAIL = 16
"""So many last prompt ids are enough to see whether the template has opened the thinking."""


def count_parts(
    renderer: Renderer,
    prompt_ids: Sequence[int],
    output_ids: Sequence[int],
    tools: Collection[Json] = (),
    opening: str = "",
) -> TokenParts:
    """The three counts of one answer; they sum to `len(output_ids)`.

    `opening` is the beginning of a call with which the prompt ended, if one was forced.
    """
    ids = list(output_ids)
    spoken = ids[:-1] if ids and ids[-1] in renderer.stop_ids else ids
    text = opening + renderer.decode(spoken)
    thinking = _thinking(text, renderer.decode(prompt_ids[-_TAIL:]).rstrip())
    rest = max((end for _, end in thinking), default=0)
    names = {str(tool["function"]["name"]) for tool in tools}
    calls = [(a + rest, b + rest) for a, b in renderer.parser(tools).spans(text[rest:], names)]

    def begins(position: int) -> int:
        """The number of the first token that begins at this character or later."""
        if position >= len(text):
            return len(ids)
        position -= len(opening)
        return bisect_left(
            range(len(spoken)), position, key=lambda n: _length(renderer, spoken[:n])
        )

    thought = sum(begins(end) - begins(start) for start, end in thinking)
    called = sum(begins(end) - begins(start) for start, end in calls)
    return TokenParts(thinking=thought, calls=called, message=len(ids) - thought - called)


def _length(renderer: Renderer, ids: Sequence[int]) -> int:
    """Whole characters of `ids`; one that they leave unfinished is not there yet."""
    return len(renderer.decode(ids).rstrip("\ufffd"))


def _thinking(text: str, prompt: str) -> list[Span]:
    """Spans with their marks, ascending and apart; the first may have been opened by the prompt,
    the last stay open. What stands between marks of two families is thinking once.
    """
    apart: list[Span] = []
    for start, end in sorted(s for marks in THINKING for s in _between(text, prompt, *marks)):
        if apart and start < apart[-1][1]:
            apart[-1] = apart[-1][0], max(apart[-1][1], end)
        else:
            apart.append((start, end))
    return apart


def _between(text: str, prompt: str, opening: str, closing: str) -> Iterator[Span]:
    position = 0
    first, close = text.find(opening), text.find(closing)
    if prompt.endswith(opening) or (close >= 0 and not 0 <= first < close):
        position = len(text) if close < 0 else close + len(closing)
        yield 0, position
    while (start := text.find(opening, position)) >= 0:
        close = text.find(closing, start)
        position = len(text) if close < 0 else close + len(closing)
        yield start, position
