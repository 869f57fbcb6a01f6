"""From ids to what the agent is shown: text without end marks, stop strings and tool calls.

    ids ──► characters ──► cut at a stop string ──► content, by pieces ──► tool calls, last

What may still become a stop string or a tool call is held back until it is known. Ids are never
cut: an answer that a stop string ended keeps all ids up to the token with which it was complete.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tradewind.gateway.answer import Answer
from tradewind.gateway.call import Call
from tradewind.render.renderer import Renderer
from tradewind.render.toolcalls import Plain, overlap


class Speech:
    """One answer's text. `held` shows nothing before the end, so that it can be taken back."""

    def __init__(self, renderer: Renderer, call: Call, answer: Answer, *, held: bool) -> None:
        self._renderer, self._answer, self._held = renderer, answer, held
        self._silent = frozenset(renderer.stop_ids)
        self._stops = call.sampling.stop
        self._parser = renderer.parser(call.tools) if call.calls else Plain()
        self._opening = call.opening
        self._names: Collection[str] = call.tool_names
        self.forget()

    def forget(self) -> None:
        """Starts over; only of a held answer."""
        self._ids = self._renderer.detokeniser()
        self._text, self._shown = self._opening, 0
        self._counted: list[tuple[int, int]] = []
        self.stopped: str | None = None
        """The stop string that ended it."""

    def say(self, ids: Sequence[int], version: int) -> int:
        """How many of `ids` belong to the answer: all, or those up to a stop string's end."""
        taken = self._take(ids) if self._stops else len(ids)
        if not self._stops:
            self._text += self._ids.push([i for i in ids if i not in self._silent])
        if taken:
            self._counted.append((taken, version))
        if not self._held:
            self._show(min(self._parser.shown(self._text), self._safe()))
        return taken

    def end(self) -> None:
        """All of the content, and the calls."""
        if self.stopped is None:
            self._text += self._ids.flush()
        said = self._parser.parse(self._text, self._names)
        self._heed()
        self._answer.add(said.content[self._shown :])
        self._answer.stop_string = self.stopped
        self._answer.call(said)

    @property
    def over_budget(self) -> bool:
        """Whether the answer must end here, and there is something of it."""
        return bool(self._answer.output_tokens) and self._answer.over_budget

    def _take(self, ids: Sequence[int]) -> int:
        for number, token in enumerate(ids):
            searched = max(len(self._opening), len(self._text) - max(map(len, self._stops)))
            if token not in self._silent:
                self._text += self._ids.push([token])
            found = [(at, s) for s in self._stops if (at := self._text.find(s, searched)) >= 0]
            if found:
                at, self.stopped = min(found)
                self._text = self._text[:at]
                return number + 1
        return len(ids)

    def _safe(self) -> int:
        """Up to here no stop string can begin."""
        if self.stopped is not None or not self._stops:
            return len(self._text)
        return len(self._text) - max(overlap(self._text, stop) for stop in self._stops)

    def _show(self, limit: int) -> None:
        self._heed()
        if limit > self._shown:
            self._answer.add(self._text[self._shown : limit])
            self._shown = limit

    def _heed(self) -> None:
        for tokens, version in self._counted:
            self._answer.heed(tokens, version)
        self._counted.clear()
