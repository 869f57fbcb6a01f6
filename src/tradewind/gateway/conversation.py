"""The turns of one rollout: where a new call belongs, and whether it was made before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tradewind.gateway.answer import Answer, Reply
from tradewind.gateway.call import Call
from tradewind.gateway.meter import Meter
from tradewind.gateway.refusal import Refusal, bad_request
from tradewind.render.message import canonical
from tradewind.render.renderer import Renderer, continues, said_by
from tradewind.render.toolcalls import Said
from tradewind.types import Json, Turn, TurnId, TurnState

Messages = tuple[Json, ...]


@dataclass(frozen=True)
class Placement:
    """Where a call belongs."""

    prompt_ids: tuple[int, ...]
    parent: TurnId | None
    """The turn whose ids the prompt starts with."""
    kind: str
    """`root`, `extended`, or why it forked: `edited` (a history that was changed or compacted),
    `repeated`, `template` (it renders the history otherwise than it was read), `tools` (others are
    offered now), `after a loss`."""
    tainted: bool = False
    """The history holds text of a turn that never came back: nothing of it can be trained (R3)."""


@dataclass
class Attempt:
    """One call and its answers, as long as a retry may ask for them."""

    reply: Reply
    digest: str | None
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
    meter: Meter = field(default_factory=Meter)
    dismissed: bool = False
    """Its budget is used up, and the agent was told so."""
    _histories: dict[TurnId, Messages] = field(default_factory=dict)
    """Canonical messages of each turn."""

    @classmethod
    def of(cls, rollout_id: str, turns: Sequence[Turn]) -> Conversation:
        """The conversation that the ledger knows; finished turns can be asked for again."""
        known = cls(rollout_id, list(turns))
        known.next_index = max((turn.index + 1 for turn in turns), default=0)
        calls: dict[TurnId, list[Turn]] = {}
        for turn in turns:
            calls.setdefault(turn.choice_of or turn.turn_id, []).append(turn)
        for made in calls.values():
            if all(turn.state is TurnState.DONE for turn in made):
                reply = Reply([_answer_of(turn) for turn in made])
                known.attempts.append(Attempt(reply, made[0].digest, made[0].idempotency_key))
        return known

    @property
    def in_flight(self) -> list[Answer]:
        """Answers that are still being written."""
        return [a for known in self.attempts for a in known.reply.answers if not a.ended]

    def earlier(self, call: Call) -> Reply | None:
        """The reply that this call asks for again, if it is a retry.

        A retry carries the SDK's mark or an idempotency key. Without a mark equal bodies are new
        samples: best-of-n and pollers send them on purpose. Raises `Refusal` (422) if a key comes
        back with another body.
        """
        live = [a for a in self.attempts if a.reply.refusal is None]
        if call.idempotency_key is not None:
            for attempt in live:
                if attempt.idempotency_key == call.idempotency_key:
                    _same_body(attempt, call)
                    return attempt.reply
        if not call.retry:
            return None
        equal = [a for a in self.attempts if a.digest == call.digest]
        abandoned = [a for a in equal if a in live and not a.reply.heard and not a.reply.delivered]
        if abandoned:  # it is the one whose client went away
            return abandoned[-1].reply
        for attempt in equal:
            if attempt not in live and not attempt.repeated:
                attempt.repeated = True  # it is one that we refused: sample now
                return None
        # A client may be gone unnoticed, or an answer lost after it was written.
        rest = [a for a in equal if not a.reply.delivered] or equal
        return next((a.reply for a in reversed(rest) if a in live), None)

    def whole(self, call: Call) -> Messages:
        """The call's messages, after those of the turn that it names as the previous one.

        Raises `Refusal` (400) if there is no such turn, or it has no answer.
        """
        if call.previous is None:
            return call.messages
        known = [t for t in self.turns if t.turn_id == call.previous and t.completion]
        if not known:
            raise bad_request(
                "There is no answered response of this id in this session.",
                param="previous_response_id",
                code="previous_response_not_found",
            )
        before = known[0].messages
        # Instructions belong to one call; the next one brings its own.
        before = before[1:] if known[0].asked.get("instructions") else before
        own = 1 if call.asked.get("instructions") else 0
        return (*call.messages[:own], *before, _message_of(known[0]), *call.messages[own:])

    def place(
        self, messages: Messages, renderer: Renderer, tools: tuple[Json, ...] = ()
    ) -> Placement:
        """Extends the turn with the longest history that the call continues, or forks."""
        asked, cause = canonical(messages), ""
        done = [t for t in self.turns if t.state is TurnState.DONE and t.completion]
        # The longest history first, and of equally long ones the latest.
        for turn in sorted(done, key=lambda t: (-len(t.messages), -t.index)):
            assert turn.completion is not None
            said = _said(turn)
            if not continues(self._history(turn), said, asked):
                continue
            if turn.tools != tools:
                cause = cause or "tools"
                continue
            ids = renderer.extend(
                turn.prompt_ids,
                turn.completion.output_ids,
                turn.messages,
                said,
                messages,
                tools=tools,
            )
            if ids is not None:
                return Placement(ids, turn.turn_id, "extended")
            cause = "template"
        kind = cause or self._fork_cause(asked)
        ids = renderer.render(messages, tools=tools)
        return Placement(ids, None, kind, tainted=kind == "after a loss")

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


def _message_of(turn: Turn) -> Json:
    calls = {"tool_calls": list(turn.tool_calls)} if turn.tool_calls else {}
    return {"role": "assistant", "content": turn.text or "", **calls}


def _said(turn: Turn) -> Said:
    """What a finished turn told its agent."""
    return said_by(canonical([_message_of(turn)])[0])


def _answer_of(turn: Turn) -> Answer:
    assert turn.completion is not None
    answer = Answer(turn.turn_id)
    answer.created = turn.started_at
    answer.prompt_tokens = len(turn.prompt_ids)
    answer.output_tokens = len(turn.completion.output_ids)
    answer.version = turn.completion.spans[-1].version
    answer.delivered, answer.recorded = turn.delivered, True
    answer.add(turn.text or "")
    answer.tool_calls = turn.tool_calls
    answer.finish(turn.completion.finish_reason)
    return answer
