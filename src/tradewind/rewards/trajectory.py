"""What the agent did, read from the captured turns: acts, what came back, what was said.

    Turn.tool_calls ──► Act ◄── the message with its id in a later prompt
    Turn.text       ──► fenced blocks, where no tools were offered: those agents act in text
    outcome         ──► artefacts, flattened to path -> text

Forks repeat history in their prompts; each act and each result is taken once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tradewind.types.episode import Episode
from tradewind.types.ids import TurnId
from tradewind.types.record import Json
from tradewind.types.turn import Turn

_FENCE = re.compile(r"```([\w+-]*)[^\n`]*\n(.*?)```", re.DOTALL)
_UNREAD_CALL = re.compile(r"<tool_call>|\[TOOL_CALLS\]|<function=")


@dataclass(frozen=True)
class Act:
    """One thing that the agent did in its environment."""

    turn_id: TurnId
    tool: str
    """Name of the tool, or the language of a fenced block."""
    arguments: Json
    result: str | None
    """What came back, as the model read it; None if no later prompt holds it."""


@dataclass(frozen=True)
class Trajectory:
    """One rollout."""

    acts: tuple[Act, ...]
    said: tuple[tuple[TurnId, str], ...]
    """Content of each answer."""
    artefacts: dict[str, str]
    """Every string that the outcome holds, by its path: `files/src/a.py`."""
    offered: bool
    """Whether any prompt named tools."""
    unread_calls: int
    """Answers in which a call was begun that no parser could read."""

    @property
    def final(self) -> str:
        """The last thing that was said; empty if nothing was."""
        return self.said[-1][1] if self.said else ""


def trajectory(episode: Episode) -> Trajectory:
    """Reads an episode; side calls, and calls that never came back, are left out."""
    turns = [t for t in episode.turns if t.completion is not None and not t.auxiliary]
    turns.sort(key=lambda turn: turn.index)
    results = _results(turns)
    acts: list[Act] = []
    for number, turn in enumerate(turns):
        for call in turn.tool_calls:
            name, arguments = _function(call)
            acts.append(Act(turn.turn_id, name, arguments, results.get(str(call.get("id")))))
        if not turn.tool_calls and not turn.tools:
            reply = _reply(turn, turns[number + 1 :])
            for language, code in _FENCE.findall(turn.text or ""):
                acts.append(Act(turn.turn_id, language or "text", {"code": code}, reply))
    said = tuple((turn.turn_id, turn.text or "") for turn in turns)
    return Trajectory(
        acts=tuple(acts),
        said=said,
        artefacts=dict(flatten(episode.outcome.artefacts)),
        offered=any(turn.tools for turn in turns),
        unread_calls=sum(bool(_UNREAD_CALL.search(text)) for _, text in said),
    )


def flatten(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Every string in plain data with the path to it.

    >>> dict(flatten({"files": {"a.py": "pass"}, "notes": ["x"]}))
    {'files/a.py': 'pass', 'notes/0': 'x'}
    """
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in pairs:
            yield from flatten(inner, f"{path}/{key}" if path else str(key))


def content(message: Json) -> str:
    """The text of a message, whose content may be parts."""
    found = message.get("content")
    if isinstance(found, list):
        return "\n".join(str(part.get("text", "")) for part in found if isinstance(part, dict))
    return str(found or "")


def _results(turns: Sequence[Turn]) -> dict[str, str]:
    """Results by the id of their call, as the first prompt that holds them has them."""
    found: dict[str, str] = {}
    for turn in turns:
        for message in turn.messages:
            if message.get("role") == "tool" and message.get("tool_call_id"):
                found.setdefault(str(message["tool_call_id"]), content(message))
    return found


def _reply(turn: Turn, later: Sequence[Turn]) -> str | None:
    """What stands right after this answer in the first later prompt that continues it."""
    n = len(turn.messages)
    for following in later:
        messages = following.messages
        if len(messages) > n and messages[:n] == turn.messages:
            after = list[str]()
            for message in messages[n + 1 :]:
                if message.get("role") == "assistant":
                    break
                after.append(content(message))
            return "\n".join(after)
    return None


def _function(call: Json) -> tuple[str, Json]:
    """Name and arguments of a call; arguments that are no JSON object are kept as text."""
    function = call.get("function") or {}
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            arguments = {"text": arguments}
    return str(function.get("name")), arguments if isinstance(arguments, dict) else {}
