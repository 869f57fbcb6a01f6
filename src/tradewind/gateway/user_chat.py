"""Calls of the product's users: nothing is captured, how long they waited is recorded."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid

from tradewind.gateway.answer import Answer, Reply
from tradewind.gateway.call import Call
from tradewind.gateway.parts import Parts
from tradewind.gateway.refusal import Refusal, bad_request, broke_off
from tradewind.gateway.router import Route
from tradewind.gateway.turn import begin, fit
from tradewind.ledger.user_chats import USER_LEFT, UserChat
from tradewind.types import GenerateRequest, Priority, UserError

log = logging.getLogger(__name__)


class UserChats:
    """Answers users, ahead of every rollout (promise U1)."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._tasks: set[asyncio.Task[None]] = set()

    def answer(self, call: Call) -> Reply:
        """The growing reply to one user. Raises `Refusal` (400) for what no user can ask."""
        if call.previous is not None:
            raise bad_request(
                "Nothing of what users say is kept here: send the whole conversation as 'input'.",
                param="previous_response_id",
            )
        name = f"user-{uuid.uuid4().hex}"
        numbers = range(call.sampling.n)
        reply = Reply([Answer(f"{name}-{n}" if n else name) for n in numbers])
        for answer in reply.answers:
            answer.task = asyncio.create_task(self._run(call, answer))
            self._tasks.add(answer.task)
            answer.task.add_done_callback(self._tasks.discard)
        return reply

    def left(self, reply: Reply) -> None:
        """The user went away: the pool need not go on."""
        for answer in reply.answers:
            if not answer.ended and answer.task is not None:
                answer.task.cancel(USER_LEFT)

    async def close(self) -> None:
        """Cancels everything in flight."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, call: Call, answer: Answer) -> None:
        self._parts.metrics.in_flight += 1
        pool, error = None, None
        try:
            pool = await self._generate(call, answer)
        except Refusal as refusal:
            error = refusal.code
            answer.fail(refusal)
        except asyncio.CancelledError as cancelled:
            error = USER_LEFT if USER_LEFT in cancelled.args else "cancelled"
            answer.fail(broke_off("the call was cancelled"))
            raise
        except Exception as caught:  # boundary: one call's failure ends that call only
            log.exception("user chat failed")
            error = "gateway error"
            answer.fail(broke_off(f"gateway error, {caught}"))
        finally:
            self._parts.metrics.in_flight -= 1
            self._parts.metrics.user_chats += 1
            answer.task = None
            self._parts.journal.later(
                self._parts.journal.ledger.record_user_chat, _measured(answer, pool, error)
            )

    async def _generate(self, call: Call, answer: Answer) -> str:
        """Writes the answer; the pool that finished it."""
        parts = self._parts
        try:
            ids = parts.renderer.render(call.messages, tools=call.tools)
        except UserError as error:
            raise bad_request(str(error), param="messages") from error
        call, ids = begin(call, ids, parts.renderer)
        sampling = fit(ids, call.sampling, parts.window)
        route = Route(Priority.USER)
        pool = await parts.router.choose(route, wait_s=parts.config.admission_wait_s)
        answer.prompt_tokens = len(ids)
        request = GenerateRequest(
            request_id=answer.id,
            prompt_ids=ids,
            max_tokens=sampling.max_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            stop_ids=parts.renderer.stop_ids,
            priority=route.priority,
            seed=sampling.seed,
        )
        got = await parts.generator.generate(pool, request, route, call, answer)
        assert got.finish_reason is not None
        answer.finish(got.finish_reason)
        return got.pool


def _measured(answer: Answer, pool: str | None, error: str | None) -> UserChat:
    first = answer.first_token_at
    return UserChat(
        request_id=answer.id,
        started_at=answer.created,
        ttft_s=None if first is None else first - answer.created,
        seconds=time.time() - answer.created,
        tokens=answer.output_tokens,
        version=answer.version,
        pool=pool,
        error=error,
    )
