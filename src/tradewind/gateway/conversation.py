"""The turns of one rollout: where a new call belongs, and whether it was made before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tradewind.gateway.answer import Answer
from tradewind.gateway.call import Call
from tradewind.gateway.refusal import Refusal
from tradewind.render.message import canonical
from tradewind.render.renderer import Renderer, continues
from tradewind.types import Json, Turn, TurnId, TurnState

Messages = tuple[Json, ...]


@dataclass(frozen=True)
class Placement:
    """Where a call belongs."""

    prompt_ids: tuple[int, ...]
    parent: TurnId | None
    """The turn whose ids the prompt starts with."""
    kind: str
    """`root`, `extended`, or why it forked: `edited`, `repeated`, `template`, `after a loss`."""
    tainted: bool = False
    """The history holds text of a turn that never came back: nothing of it can be trained (R3)."""


@dataclass
class Attempt:
    """One call and its answer, as long as a retry may ask for it."""

    answer: Answer
    messages: Messages
    digest: str | None
    """None for a turn that an earlier life of the gateway served; messages are compared then."""
    idempotency_key: str | None = None
    repeated: bool = False
    """It was refused, and the client has asked again since."""


@dataclass
class Conversation:
    """In memory while its rollout runs; rebuilt from the ledger after a restart."""

    rollout_id: str
    turns: list[Turn] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    next_index: int = 0
    _histories: dict[TurnId, Messages] = field(default_factory=dict)
    """Canonical messages of each turn."""

    @classmethod
    def of(cls, rollout_id: str, turns: Sequence[Turn]) -> Conversation:
        """The conversation that the ledger knows; finished turns can be asked for again."""
        known = cls(rollout_id, list(turns))
        known.next_index = max((turn.index + 1 for turn in turns), default=0)
        for turn in turns:
            if turn.state is TurnState.DONE:
                known.attempts.append(Attempt(_answer_of(turn), canonical(turn.messages), None))
        return known

    @property
    def in_flight(self) -> list[Answer]:
        """Answers that are still being written."""
        return [a.answer for a in self.attempts if not a.answer.ended]

    def earlier(self, call: Call, asked: Messages) -> Answer | None:
        """The answer that this call asks for again, if it is a retry; `asked` is canonical.

        A retry carries the SDK's mark or an idempotency key. Without a mark equal bodies are new
        samples: best-of-n and pollers send them on purpose. Raises `Refusal` (422) if a key comes
        back with another body.
        """
        live = [a for a in self.attempts if a.answer.refusal is None]
        if call.idempotency_key is not None:
            for attempt in live:
                if attempt.idempotency_key == call.idempotency_key:
                    _same_body(attempt, call)
                    return attempt.answer
        if not call.retry:
            return None
        equal = [
            a
            for a in self.attempts
            if a.digest == call.digest or (a.digest is None and a.messages == asked)
        ]
        abandoned = [
            a for a in equal if a in live and not a.answer.heard and not a.answer.delivered
        ]
        if abandoned:  # it is the one whose client went away
            return abandoned[-1].answer
        for attempt in equal:
            if attempt not in live and not attempt.repeated:
                attempt.repeated = True  # it is one that we refused: sample now
                return None
        # A client may be gone unnoticed, or an answer lost after it was written.
        rest = [a for a in equal if not a.answer.delivered] or equal
        return next((a.answer for a in reversed(rest) if a in live), None)

    def place(self, messages: Messages, renderer: Renderer) -> Placement:
        """Extends the turn with the longest history that the call continues, or forks."""
        asked = canonical(messages)
        done = [t for t in self.turns if t.state is TurnState.DONE and t.completion]
        refused_by_template = False
        # The longest history first, and of equally long ones the latest.
        for turn in sorted(done, key=lambda t: (-len(t.messages), -t.index)):
            assert turn.completion is not None and turn.text is not None
            if not continues(self._history(turn), turn.text, asked):
                continue
            ids = renderer.extend(
                turn.prompt_ids, turn.completion.output_ids, turn.messages, turn.text, messages
            )
            if ids is not None:
                return Placement(ids, turn.turn_id, "extended")
            refused_by_template = True
        kind = "template" if refused_by_template else self._fork_cause(asked)
        return Placement(renderer.render(messages), None, kind, tainted=kind == "after a loss")

    def keep(self, turn: Turn) -> None:
        """Keeps the newest state of a turn."""
        for position, known in enumerate(self.turns):
            if known.turn_id == turn.turn_id:
                self.turns[position] = turn
                return
        self.turns.append(turn)

    def _history(self, turn: Turn) -> Messages:
        if turn.turn_id not in self._histories:
            self._histories[turn.turn_id] = canonical(turn.messages)
        return self._histories[turn.turn_id]

    def _fork_cause(self, asked: Messages) -> str:
        if self._follows_a_loss(asked):
            return "after a loss"
        histories = [self._history(turn) for turn in self.turns]
        if asked in histories:
            return "repeated"
        return "edited" if any(asked[0] == history[0] for history in histories) else "root"

    def _follows_a_loss(self, asked: Messages) -> bool:
        """Whether `asked` goes on from a call that was not answered, and no equal one was."""
        answered = [self._history(t) for t in self.turns if t.state is TurnState.DONE]
        return any(
            asked[: len(before)] == before
            and _role(asked, len(before)) == "assistant"
            and before not in answered
            for before in (self._history(t) for t in self.turns if t.state is not TurnState.DONE)
        )


def _role(messages: Messages, index: int) -> str | None:
    return messages[index]["role"] if index < len(messages) else None


def _same_body(attempt: Attempt, call: Call) -> None:
    if attempt.digest is not None and attempt.digest != call.digest:
        raise Refusal(
            422,
            "idempotency_key_reused",
            "This Idempotency-Key came before with another body. Use a new key for a new call.",
        )


def _answer_of(turn: Turn) -> Answer:
    assert turn.completion is not None
    answer = Answer(turn.turn_id)
    answer.created = turn.started_at
    answer.prompt_tokens = len(turn.prompt_ids)
    answer.output_tokens = len(turn.completion.output_ids)
    answer.version = turn.completion.spans[-1].version
    answer.delivered, answer.recorded = turn.delivered, True
    answer.add(turn.text or "")
    answer.finish(turn.completion.finish_reason)
    return answer
