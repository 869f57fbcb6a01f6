"""The six counts behind the effort penalty, from the captured turns of one rollout.

    sampled ids   thinking | calls | message     as the gateway split them (`Turn.parts`)
    prompt ids    outputs                        what stands in a prompt after the last answer

Every sampled token counts once, on whatever branch it was said; side calls of the agent
(`auxiliary`) and calls that never came back do not count. What comes back from tools is exact
where a turn extends its parent, by ids. After a fork the history was written anew, so the same
messages are measured by their share of the prompt's characters, and `estimated` says how many.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tradewind.types.record import Record
from tradewind.types.turn import TokenParts, Turn


class Effort(Record):
    """Counts of one rollout, in tokens, calls and turns.

    Example: `Effort(thinking=120, calls=44, message=30, outputs=310, call_count=2, turn_count=3)`.
    """

    thinking: int = 0
    calls: int = 0
    """Tokens of tool calls."""
    message: int = 0
    outputs: int = 0
    """Tokens that tools and the environment put into prompts."""
    call_count: int = 0
    turn_count: int = 0
    estimated: int = 0
    """Of `outputs`, those measured by characters, after a fork."""
    unsplit: int = 0
    """Sampled tokens of turns that no gateway split: all counted as calls or all as message."""

    def __str__(self) -> str:
        return (
            f"{self.thinking} thinking, {self.calls} call, {self.outputs} output and "
            f"{self.message} message tokens, {self.call_count} calls, {self.turn_count} turns"
        )


def count_effort(turns: Sequence[Turn]) -> Effort:
    """The counts over all turns of one rollout, in any order."""
    counted = sorted((t for t in turns if t.completion and not t.auxiliary), key=lambda t: t.index)
    parts = [_parts(turn) for turn in counted]
    outputs = estimated = 0
    for exact, tokens in _returned(counted):
        outputs += tokens
        estimated += 0 if exact else tokens
    return Effort(
        thinking=sum(part.thinking for part in parts),
        calls=sum(part.calls for part in parts),
        message=sum(part.message for part in parts),
        outputs=outputs,
        call_count=sum(len(turn.tool_calls) for turn in counted),
        turn_count=len({turn.choice_of or turn.turn_id for turn in counted}),
        estimated=estimated,
        unsplit=sum(_sampled(turn) for turn in counted if turn.parts is None),
    )


def _returned(turns: Sequence[Turn]) -> Iterable[tuple[bool, int]]:
    """What came back before each turn: whether it is exact, and how many tokens.

    A prompt that was asked twice (a sibling, a retry) is counted once.
    """
    by_id = {turn.turn_id: turn for turn in turns}
    seen: set[tuple[int, ...]] = set()
    for turn in turns:
        if turn.prompt_ids in seen:
            continue
        seen.add(turn.prompt_ids)
        parent = by_id.get(turn.parent or "")
        if parent is not None and parent.completion is not None:
            yield True, len(turn.prompt_ids) - len(parent.prompt_ids) - _sampled(parent)
        elif turn.index > turns[0].index:
            yield False, _share_after_last_answer(turn)


def _share_after_last_answer(turn: Turn) -> int:
    """Prompt tokens of the messages after the last answer; none if nobody has answered yet."""
    lengths = [len(str(message.get("content") or "")) for message in turn.messages]
    lengths = [
        n + len(str(m.get("tool_calls") or "")) for n, m in zip(lengths, turn.messages, strict=True)
    ]
    answers = [n for n, message in enumerate(turn.messages) if message.get("role") == "assistant"]
    whole = sum(lengths) + len(str(list(turn.tools) or ""))
    if not answers or not whole:
        return 0
    return round(len(turn.prompt_ids) * sum(lengths[answers[-1] + 1 :]) / whole)


def _parts(turn: Turn) -> TokenParts:
    if turn.parts is not None:
        return turn.parts
    if turn.tool_calls:
        return TokenParts(calls=_sampled(turn))
    return TokenParts(message=_sampled(turn))


def _sampled(turn: Turn) -> int:
    return len(turn.completion.output_ids) if turn.completion else 0
