"""One turn of a rollout, from messages to a recorded answer. Every dialect ends here.

    call ─► place (extend or fork) ─► choose a pool ─► intent in the ledger      (R3: before)
                                                        ▼
            agent ◄─ text pieces ◄─ detokenise ◄─ generate (one or several pools)
                                                        ▼
            agent ◄─ end of the answer ◄──────── turn DONE in the ledger         (R1: the ids)

An answer without a finished record is LOST: the agent may have seen its text, but nothing of it
is trained, and nothing of what continues it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from dataclasses import dataclass, replace

from tradewind.gateway.answer import Answer
from tradewind.gateway.call import ANY, Call, Sampling
from tradewind.gateway.conversation import Conversation, Placement
from tradewind.gateway.generation import Generated
from tradewind.gateway.parts import Parts
from tradewind.gateway.refusal import Refusal, bad_request, broke_off, context_overflow, ended
from tradewind.gateway.router import Route
from tradewind.ledger.turns import Session
from tradewind.render.parts import count_parts
from tradewind.render.renderer import Renderer
from tradewind.types import (
    Conflict,
    Event,
    GenerateRequest,
    ParentLost,
    Priority,
    Purpose,
    TokenParts,
    Turn,
    TurnId,
    TurnState,
    turn_id,
)

log = logging.getLogger(__name__)


def fit(ids: tuple[int, ...], sampling: Sampling, window: int) -> Sampling:
    """Clamps the answer to what the prompt leaves of the window; raises `Refusal` if nothing."""
    left = window - len(ids)
    if left < 1:
        raise context_overflow(len(ids), window)
    return replace(sampling, max_tokens=min(sampling.max_tokens, left))


def begin(call: Call, ids: tuple[int, ...], renderer: Renderer) -> tuple[Call, tuple[int, ...]]:
    """A call, and its prompt, with the beginning of the function call that it must make.

    What is forced is prompt and never trained; what follows is sampled as ever, so that the ratio
    stays exact. Raises `Refusal` (400) if this model's calls cannot be begun.
    """
    if call.must is None:
        return call, ids
    opening = renderer.form.opening(None if call.must == ANY else call.must)
    if opening is None:
        said = "This model's way of writing calls cannot be begun for it: ask with 'auto'."
        raise bad_request(said, param="tool_choice", code="unsupported_parameter")
    return replace(call, opening=opening), (*ids, *renderer.encode(opening))


def turn_seed(session_seed: int, index: int) -> int:
    """63 bits that differ between the turns of a rollout, so that equal bodies sample anew."""
    digest = hashlib.sha256(f"{session_seed} {index}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


@dataclass
class Placed:
    """A call whose place is known; its answers share prompt and parent."""

    call: Call
    placement: Placement
    first: TurnId | None = None
    """The turn of the first answer, once its number is known."""


class TurnRun:
    """The writer of one answer and of its record."""

    def __init__(
        self,
        parts: Parts,
        session: Session,
        conversation: Conversation,
        ask: Placed,
        answer: Answer,
    ) -> None:
        self._parts, self._session, self._conversation = parts, session, conversation
        self._ask, self._call, self._answer = ask, ask.call, answer
        self._turn: Turn | None = None
        """None until the intent is written."""

    async def run(self) -> None:
        """Whatever happens, answer and record have an end after it."""
        self._parts.metrics.in_flight += 1
        try:
            await self._steps()
        except Conflict as conflict:
            await self._give_up("the rollout ended", ended(str(conflict)))
        except Refusal as refusal:
            await self._give_up(refusal.code, refusal)
        except asyncio.CancelledError:
            await asyncio.shield(self._give_up("cancelled", broke_off("the call was cancelled")))
            raise
        except Exception as error:  # boundary: one call's failure ends that call only
            log.exception("turn of %s failed", self._session.rollout_id)
            await self._give_up("gateway error", broke_off(f"gateway error, {error}"))
        finally:
            self._parts.metrics.in_flight -= 1
            self._parts.metrics.sampled_tokens += self._answer.output_tokens
            self._answer.task = None

    async def _steps(self) -> None:
        parts, route = self._parts, _route(self._session)
        placement = self._ask.placement
        sampling = fit(placement.prompt_ids, self._call.sampling, parts.window)
        evaluation = self._session.purpose is Purpose.EVAL
        wait_s = parts.config.eval_wait_s if evaluation else parts.config.admission_wait_s
        pool = await parts.router.choose(route, wait_s=wait_s)
        turn = await self._intend(placement, sampling)
        request = self._request(turn, sampling, route)
        got = await parts.generator.generate(pool, request, route, self._call, self._answer)
        await self._record(turn, got, placement)
        assert got.finish_reason is not None
        self._answer.finish(got.finish_reason)

    async def _intend(self, placement: Placement, sampling: Sampling) -> Turn:
        """Makes the turn known to the ledger, before any pool hears of it."""
        index = self._conversation.next_index
        self._conversation.next_index += 1
        call, first = self._call, self._ask.first
        self._ask.first = first or turn_id(self._session.rollout_id, index)
        turn = Turn(
            turn_id=turn_id(self._session.rollout_id, index),
            rollout_id=self._session.rollout_id,
            index=index,
            parent=placement.parent,
            state=TurnState.INTENT,
            prompt_ids=placement.prompt_ids,
            completion=None,
            temperature=sampling.temperature,
            messages=call.messages,
            tools=call.tools,
            kind=placement.kind,
            choice_of=first,
            auxiliary=call.auxiliary,
            dialect=call.dialect,
            asked=call.asked,
            digest=call.digest,
            idempotency_key=call.idempotency_key,
            started_at=time.time(),
        )
        await self._parts.journal.write(self._parts.journal.ledger.write_intent, turn)
        self._turn = turn
        self._conversation.keep(turn)
        self._answer.id, self._answer.prompt_tokens = turn.turn_id, len(turn.prompt_ids)
        self._parts.metrics.turns[placement.kind if first is None else "sibling"] += 1
        return turn

    def _request(self, turn: Turn, sampling: Sampling, route: Route) -> GenerateRequest:
        greedy = sampling.temperature == 0
        return GenerateRequest(
            request_id=turn.turn_id,
            prompt_ids=turn.prompt_ids,
            max_tokens=sampling.max_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            stop_ids=self._parts.renderer.stop_ids,
            priority=route.priority,
            seed=None if greedy else turn_seed(self._session.seed, turn.index),
        )

    async def _record(self, turn: Turn, got: Generated, placement: Placement) -> None:
        """DONE, or LOST if it must not be trained; the agent gets its text either way."""
        if got.flaw is not None:
            await self._lose(turn, "misaligned", f"pool {got.pool}: {got.flaw}")
        elif placement.tainted:
            await self._lose(turn, "tainted", "it continues an answer that never came back")
        else:
            completion = got.completion()
            done = turn.model_copy(
                update={
                    "state": TurnState.DONE,
                    "completion": completion,
                    "parts": self._token_parts(turn, completion.output_ids),
                    "text": self._answer.text,
                    "tool_calls": self._answer.tool_calls,
                    "finished_at": time.time(),
                }
            )
            try:
                await self._parts.journal.write(self._parts.journal.ledger.finish_turn, done)
            except ParentLost as lost:
                await self._lose(turn, "tainted", str(lost))
                return
            self._conversation.keep(done)
            self._answer.recorded = True

    def _token_parts(self, turn: Turn, output_ids: tuple[int, ...]) -> TokenParts:
        call = self._call
        tools = call.tools if call.calls else ()
        return count_parts(
            self._parts.renderer, turn.prompt_ids, output_ids, tools, opening=call.opening
        )

    async def _give_up(self, cause: str, refusal: Refusal) -> None:
        if self._turn is not None:
            await self._lose(self._turn, cause, refusal.message)
        self._answer.fail(refusal)

    async def _lose(self, turn: Turn, cause: str, detail: str) -> None:
        self._parts.metrics.lost[cause] += 1
        self._parts.metrics.lost_tokens[cause] += self._answer.output_tokens
        self._conversation.keep(turn.model_copy(update={"state": TurnState.LOST}))
        journal = self._parts.journal
        await journal.write(journal.ledger.lose_turn, turn.turn_id, self._answer.output_tokens)
        event = Event(
            at=time.time(),
            process="gateway",
            kind="turn.lost",
            subject=turn.turn_id,
            detail=f"{cause}: {detail}",
        )
        await journal.write(journal.ledger.event, event)


def _route(session: Session) -> Route:
    evaluation = session.purpose is Purpose.EVAL
    return Route(
        priority=Priority.EVAL if evaluation else Priority.ROLLOUT,
        version=session.version,
        min_version=session.min_version,
        rollout_id=session.rollout_id,
        group_id=session.group_id,
    )
