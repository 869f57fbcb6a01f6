"""What a judge or a checker is shown of an episode: the evidence that a criterion names.

    artefact   outcome.artefacts["reply"], or "report.body" for a key inside it
    answer     without an artefact: the text of the agent's last turn
    tool_log   without an artefact: calls and their results, as the last turn saw them
    turns      the whole conversation without system messages

What is not there is the empty string: the policy can cause that, so it is graded, never null.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tradewind.rewards.criteria.criterion import Criterion, Evidence, Example, Scope
from tradewind.types.outcome import Outcome
from tradewind.types.record import Json, Record
from tradewind.types.task import Task
from tradewind.types.turn import Turn, TurnState


class Exhibit(Record):
    """Texts by the name of the evidence, in the criterion's order."""

    shown: dict[str, str]
    task: str | None = None
    """What the agent was asked."""

    @property
    def work(self) -> str:
        """The first piece of evidence: the policy's own."""
        return next(iter(self.shown.values()))


def exhibit_of(
    criterion: Criterion, task: Task, outcome: Outcome, turns: Sequence[Turn]
) -> Exhibit:
    """The evidence of one rollout."""
    shown = {piece.name: _text_of(piece, outcome, turns) for piece in criterion.evidence}
    return Exhibit(shown=shown, task=_plain(_single(task.input)))


def exhibit_of_example(criterion: Criterion, example: Example) -> Exhibit:
    """The evidence of an example."""
    shown = {piece.name: example.shown.get(piece.name, "") for piece in criterion.evidence}
    return Exhibit(shown=shown, task=example.task)


def _text_of(piece: Evidence, outcome: Outcome, turns: Sequence[Turn]) -> str:
    if piece.artefact is not None:
        return _plain(_found(outcome.artefacts, piece.artefact))
    last = _last_turn(turns)
    if last is None:
        return ""
    if piece.scope is Scope.ANSWER:
        return last.text or ""
    lines = _conversation(last) if piece.scope is Scope.TURNS else _tool_log(last)
    return "\n".join(lines)


def _last_turn(turns: Sequence[Turn]) -> Turn | None:
    """The last answer of the agent's own conversation; side calls and siblings are none."""
    own = [
        turn
        for turn in turns
        if turn.state is TurnState.DONE and not turn.auxiliary and turn.choice_of is None
    ]
    return own[-1] if own else None


def _conversation(last: Turn) -> Iterator[str]:
    for message in _messages(last):
        if message.get("role") != "system":
            text = _plain(message.get("content"))
            calls = "".join(f"\n{line}" for line in _calls(message))
            yield f"[{message.get('role')}] {text}{calls}"


def _tool_log(last: Turn) -> Iterator[str]:
    for message in _messages(last):
        yield from _calls(message)
        if message.get("role") == "tool":
            yield f"[result] {_plain(message.get('content'))}"


def _messages(last: Turn) -> tuple[Json, ...]:
    said = {"role": "assistant", "content": last.text, "tool_calls": list(last.tool_calls)}
    return (*last.messages, said)


def _calls(message: Json) -> Iterator[str]:
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        yield f"[call] {function.get('name')} {_plain(function.get('arguments'))}"


def _found(data: Mapping[str, Any], key: str) -> Any:
    """`data[key]`, or what a dotted key leads to; None if it leads nowhere."""
    if key in data:
        return data[key]
    head, dot, rest = key.partition(".")
    inner = data.get(head)
    return _found(inner, rest) if dot and isinstance(inner, Mapping) else None


def _single(data: Json) -> Any:
    """The one text of an input that holds nothing else."""
    values = list(data.values())
    return values[0] if len(values) == 1 and isinstance(values[0], str) else data


def _plain(value: Any) -> str:
    """As text that can be sent: what is no Unicode becomes "?", what has no end becomes nothing."""
    if value is None:
        return ""
    try:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    except (RecursionError, TypeError, ValueError):
        return ""
    return text.encode(errors="replace").decode()
