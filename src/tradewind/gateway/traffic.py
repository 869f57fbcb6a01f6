"""All calls of rollouts: which is new, which is a retry, whose client went away."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import replace

from tradewind.gateway.answer import Answer, Reply
from tradewind.gateway.call import Call
from tradewind.gateway.conversation import Attempt, Conversation
from tradewind.gateway.meter import Meter
from tradewind.gateway.parts import Parts
from tradewind.gateway.refusal import Refusal, bad_request, ended
from tradewind.gateway.session import Sessions
from tradewind.gateway.turn import Placed, TurnRun, begin
from tradewind.ledger.turns import Session
from tradewind.types import FinishReason, TurnId, UserError

_MOST_KEPT = 2048
_TOGETHER_S = 0.05
"""Deliveries within so long are written together."""


class Traffic:
    """Holds the conversations of running rollouts; rebuilt from the ledger after a restart."""

    def __init__(self, parts: Parts, sessions: Sessions) -> None:
        self._parts, self._sessions = parts, sessions
        self._conversations: OrderedDict[str, Conversation] = OrderedDict()
        self._arrived: list[TurnId] = []
        self._loading: dict[str, asyncio.Task[Conversation]] = {}

    async def lose_leftovers(self) -> int:
        """Gives up the turns that an earlier life of this gateway left open; how many."""
        journal = self._parts.journal
        left = await journal.read(journal.ledger.open_intents)
        for turn in left:
            await journal.write(journal.ledger.lose_turn, turn)
        return len(left)

    async def answer(self, session: Session, call: Call) -> Reply:
        """The growing reply to `call`; for a retry that of its first attempt."""
        conversation = await self._conversation(session)
        # No await from here to the registration, or a call and its retry could both be new.
        earlier = conversation.earlier(call)
        if earlier is not None:
            self._parts.metrics.joined += 1
            return earlier
        if conversation.meter.left <= 0:
            return self._last_word(conversation, call)
        ask = self._place(conversation, call)
        reply = Reply(
            [Answer(session.rollout_id, conversation.meter) for _ in range(call.sampling.n)]
        )
        most = self._parts.config.max_parallel
        crowded = len(conversation.in_flight) + call.sampling.n > most
        conversation.attempts.append(Attempt(reply, call.digest, call.idempotency_key))
        for answer in reply.answers:
            if crowded:
                answer.fail(Refusal(429, "too_many_calls", "Too many at once.", retry_after_s=1.0))
                continue
            run = TurnRun(self._parts, session, conversation, ask, answer)
            answer.task = asyncio.create_task(run.run())
        return reply

    def _place(self, conversation: Conversation, call: Call) -> Placed:
        """Raises `Refusal` (400) if nobody could render the messages."""
        try:
            call = replace(call, messages=conversation.whole(call))
            placement = conversation.place(call.messages, self._parts.renderer, call.tools)
        except UserError as error:
            raise bad_request(str(error), param="messages") from error
        call, ids = begin(call, placement.prompt_ids, self._parts.renderer)
        placement = replace(placement, prompt_ids=ids)
        left = max(1, conversation.meter.left // call.sampling.n)
        most = min(call.sampling.max_tokens, left)
        return Placed(replace(call, sampling=replace(call.sampling, max_tokens=most)), placement)

    def _last_word(self, conversation: Conversation, call: Call) -> Reply:
        """One message that ends the agent's loop, since an empty one would not; then 409."""
        budget = f"the budget of {conversation.meter.budget} tokens is used up"
        if conversation.dismissed:
            raise ended(f"{conversation.rollout_id} has ended: {budget}")
        conversation.dismissed = True
        answer = Answer(f"{conversation.rollout_id}-end")
        answer.add(f"This session ends here: {budget}.")
        answer.finish(FinishReason.STOP)
        reply = Reply([answer])
        conversation.attempts.append(Attempt(reply, call.digest, call.idempotency_key))
        journal = self._parts.journal
        journal.later(journal.ledger.dismiss, conversation.rollout_id, budget)
        return reply

    def delivered(self, reply: Reply) -> None:
        """The whole reply was written to the agent."""
        for answer in reply.answers:
            if answer.recorded and not answer.delivered:
                answer.delivered = True
                self._parts.metrics.delivered_tokens += answer.output_tokens
                if not self._arrived:
                    asyncio.get_running_loop().call_later(_TOGETHER_S, self._note_arrived)
                self._arrived.append(answer.id)

    def _note_arrived(self) -> None:
        """Several deliveries in one write: each is small and none is waited for."""
        arrived, self._arrived = self._arrived, []
        if arrived:
            self._parts.journal.later(self._parts.journal.ledger.deliver_turns, arrived)

    async def left(self, reply: Reply) -> None:
        """A client went away. If nobody is left, the answers are cancelled, and their turns lost.

        A reply of which nothing was shown yet goes on for a while: SDKs drop the connection at
        their timeout and then ask again, which must not sample again.
        """
        if not reply.first.streamed:
            await asyncio.sleep(self._parts.config.orphan_grace_s)
        if not reply.heard:
            _cancel([answer for answer in reply.answers if not answer.ended])

    async def end_sealed(self) -> None:
        """Cancels what is in flight for rollouts that have ended meanwhile."""
        for conversation in list(self._conversations.values()):
            in_flight = conversation.in_flight
            if in_flight and not await self._sessions.still_open(conversation.rollout_id):
                for answer in in_flight:
                    answer.fail(ended(f"{conversation.rollout_id} has ended"))
                _cancel(in_flight)

    async def close(self) -> None:
        """Cancels everything in flight; returns when it is recorded as lost."""
        tasks = [
            task for known in self._conversations.values() for task in _cancel(known.in_flight)
        ]
        await asyncio.gather(*tasks, return_exceptions=True)
        self._note_arrived()

    async def _conversation(self, session: Session) -> Conversation:
        rollout = session.rollout_id
        known = self._conversations.get(rollout)
        if known is not None:
            self._conversations.move_to_end(rollout)
            return known
        loading = self._loading.get(rollout)
        if loading is None:
            loading = asyncio.create_task(self._load(session))
            self._loading[rollout] = loading
            loading.add_done_callback(lambda _: self._loading.pop(rollout, None))
        return await asyncio.shield(loading)

    async def _load(self, session: Session) -> Conversation:
        rollout, journal = session.rollout_id, self._parts.journal
        turns = await journal.read(journal.ledger.turns, rollout)
        loaded = Conversation.of(rollout, turns)
        spent = await journal.read(journal.ledger.sampled_tokens, rollout)
        loaded.meter, loaded.dismissed = Meter(session.token_budget, spent), session.dismissed
        self._conversations[rollout] = loaded
        if len(self._conversations) > _MOST_KEPT:
            self._drop_oldest()
        return loaded

    def _drop_oldest(self) -> None:
        for rollout, known in self._conversations.items():
            if not known.in_flight:
                del self._conversations[rollout]
                return


def _cancel(answers: list[Answer]) -> list[asyncio.Task[None]]:
    tasks = [answer.task for answer in answers if answer.task is not None]
    for task in tasks:
        task.cancel()
    return tasks
