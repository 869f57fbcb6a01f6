"""The token budget of a model key: what it counts, how it ends an agent's loop."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from tradewind.ledger.keys import digest
from tradewind.ledger.tenants import Tenant


def test_used_up_budget_ends_the_agents_loop_with_words_and_then_409(bare_world):
    world = bare_world
    world.start()
    lease = world.lease(token_budget=8)
    assert world.ask(lease.model_key, "hi").choices[0].finish_reason == "stop"
    cut = world.ask(lease.model_key, "hi", "hello", "more").choices[0]
    assert (cut.message.content, cut.finish_reason) == ("he", "length")
    last = world.ask(lease.model_key, "more").choices[0]
    assert "budget of 8 tokens is used up" in last.message.content
    assert last.finish_reason == "stop"
    with pytest.raises(openai.ConflictError, match="budget of 8 tokens"):
        world.ask(lease.model_key, "and more")
    assert len(world.turns(lease)) == len(world.paris.requests) == 2
    assert [e.kind for e in world.ledger.events()] == ["rollout.budget"]


def test_budget_and_its_last_word_hold_through_restarts(bare_world):
    world = bare_world
    world.start()
    lease = world.lease(token_budget=6)
    world.ask(lease.model_key, "hi")
    world.stop()
    world.start()
    assert "used up" in world.ask(lease.model_key, "more").choices[0].message.content
    world.stop()
    world.start()
    with pytest.raises(openai.ConflictError, match="budget of 6 tokens"):
        world.ask(lease.model_key, "and more")


def test_budget_counts_tokens_of_answers_that_were_lost(bare_world):
    world = bare_world
    world.start(pool_attempts=1)
    lease = world.lease(token_budget=6)
    world.paris.script.extend([world.reply("hello!", die_after=5), world.reply(error="dead")])
    with pytest.raises(openai.InternalServerError):
        world.ask(lease.model_key, "hi")
    world.stop()
    world.start()
    cut = world.ask(lease.model_key, "hi").choices[0]
    assert (cut.message.content, cut.finish_reason) == ("h", "length")


def test_calls_in_flight_at_the_same_time_share_the_budget(bare_world):
    world = bare_world
    world.start()
    lease = world.lease(token_budget=10)
    world.paris.script.append(world.reply("a very long answer", stall_after=4))
    with ThreadPoolExecutor(1) as other:
        slow = other.submit(world.ask, lease.model_key, "one")
        world.wait_until(lambda: len(world.paris.requests) == 1 and world.paris.stalled.is_set())
        world.paris.script.append(world.reply("hello and goodbye"))
        fast = world.ask(lease.model_key, "two").choices[0]
        world.paris.release()
        first = slow.result().choices[0]
    assert (fast.message.content, fast.finish_reason) == ("hello ", "length")
    assert (first.message.content, first.finish_reason) == ("a ver", "length")
    world.wait_until(lambda: world.paris.cancelled)


def test_smaller_budget_of_run_and_tenant_holds(bare_world):
    world = bare_world
    tenant = Tenant(name="acme", token_budget=6)
    world.ledger.add_tenant(tenant, "digest")
    world.start()
    for run, holds in ((None, 6), (5, 5), (9, 6)):
        lease = world.lease(token_budget=run, tenant=tenant)
        session = world.ledger.session(digest(lease.model_key))
        assert session.token_budget == holds
