"""Which pool answers, and what the agent sees when one dies: nothing."""

from __future__ import annotations

import threading
import time

import openai
import pytest

from tradewind.types import Outcome


def versions(turn) -> list[tuple[int, int]]:
    return [(span.version, span.count) for span in turn.completion.spans]


def two_pools(world) -> None:
    """Paris is preferred: oregon looks busier."""
    world.report(world.oregon, running=8)


def test_answer_goes_on_at_another_pool_from_the_tokens_so_far(world):
    two_pools(world)
    lease = world.lease()
    world.oregon.version = 3
    world.paris.script.append(world.reply("hello", die_after=3))
    world.oregon.script.append(world.reply("lo"))
    pieces = list(world.ask(lease.model_key, "hi", stream=True))
    assert "".join(p.choices[0].delta.content or "" for p in pieces) == "hello"
    (turn,) = world.turns(lease)
    renderer = world.paris.renderer
    assert turn.completion.output_ids == (*renderer.encode("hello"), 258)
    assert versions(turn) == [(0, 3), (3, 3)]
    (rest,) = world.oregon.requests
    assert rest.prompt_ids == turn.prompt_ids + turn.completion.output_ids[:3]
    assert rest.max_tokens == world.paris.requests[0].max_tokens - 3
    assert rest.request_id != turn.turn_id


@pytest.mark.parametrize(
    "failure", [{"error": "out of memory"}, {"status": 503}, {"die_after": 0}], ids=str
)
def test_failing_pool_is_left_for_another(world, failure):
    two_pools(world)
    lease = world.lease()
    world.paris.script.append(world.reply("hello", **failure))
    assert world.ask(lease.model_key, "hi").choices[0].message.content == "hello"
    (turn,) = world.turns(lease)
    assert (turn.state.value, turn.completion.pool) == ("done", "oregon")


def test_answer_that_a_pool_aborted_does_not_look_like_a_short_answer(world):
    two_pools(world)
    lease = world.lease()
    world.paris.script.append(world.reply("hel", ends=False, finish="cancelled"))
    world.oregon.script.append(world.reply("lo"))
    answer = world.ask(lease.model_key, "hi").choices[0]
    assert (answer.message.content, answer.finish_reason) == ("hello", "stop")
    assert world.turns(lease)[0].text == "hello"


def test_pool_that_swaps_in_mid_answer_is_seen_in_the_spans(world):
    lease = world.lease()
    world.paris.script.append(world.reply("hello", swap_after=2))
    world.ask(lease.model_key, "hi")
    assert versions(world.turns(lease)[0]) == [(0, 2), (1, 4)]


@pytest.mark.parametrize("cut", [{"max_tokens": 3}, {}], ids=["by length", "by the end mark"])
def test_pool_that_dies_after_the_last_token_has_answered(world, cut):
    lease = world.lease()
    world.paris.script.append(world.reply("hello", silent_end=True))
    answer = world.ask(lease.model_key, "hi", **cut)
    assert answer.choices[0].finish_reason == ("length" if cut else "stop")
    assert len(world.paris.requests) == 1
    assert world.turns(lease)[0].state.value == "done"


def test_silent_pool_is_left_for_another(bare_world):
    world = bare_world
    world.start(pool_silence_s=0.2)
    two_pools(world)
    lease = world.lease()
    world.paris.script.append(world.reply("hello", stall_after=3))
    world.oregon.script.append(world.reply("lo"))
    assert world.ask(lease.model_key, "hi").choices[0].message.content == "hello"
    assert world.turns(lease)[0].completion.pool == "oregon"


def test_when_every_attempt_fails_the_agent_gets_503_and_the_turn_is_lost(bare_world):
    world = bare_world
    world.start(pool_attempts=3, pool_cooloff_s=0.01)
    lease = world.lease()
    world.paris.script.extend([world.reply(error="engine dead")] * 3)
    with pytest.raises(openai.InternalServerError) as caught:
        world.ask(lease.model_key, "hi")
    assert caught.value.status_code == 503
    assert caught.value.code == "answer_lost"
    assert "engine dead" in caught.value.message
    assert len(world.paris.requests) == 3
    assert [t.state.value for t in world.turns(lease)] == ["lost"]


def test_attempts_that_brought_tokens_do_not_count(bare_world):
    """Each withdrawal of an unproven version ends the running requests of its pool."""
    world = bare_world
    world.start(pool_attempts=2, pool_cooloff_s=0.0)
    lease = world.lease()
    lost = [world.reply(letter + "...", die_after=1) for letter in "abcde"]
    world.paris.script.extend([*lost, world.reply("f")])
    assert world.ask(lease.model_key, "hi").choices[0].message.content == "abcdef"
    assert len(world.paris.requests) == 6
    assert len({request.request_id for request in world.paris.requests}) == 6


def test_signs_of_life_keep_a_pool_that_may_not_tell_its_tokens_yet(bare_world):
    world = bare_world
    world.start(pool_silence_s=0.5)
    lease = world.lease()
    world.paris.script.append(world.reply("hello", alive_s=1.0))
    answer = world.ask(lease.model_key, "hi").choices[0]
    assert (answer.message.content, len(world.paris.requests)) == ("hello", 1)


def test_answer_that_breaks_in_mid_stream_ends_in_an_error_not_in_a_short_answer(bare_world):
    world = bare_world
    world.start(pool_attempts=1)
    lease = world.lease()
    world.paris.script.extend([world.reply("hello", die_after=3), world.reply(error="dead")])
    stream = world.ask(lease.model_key, "hi", stream=True)
    with pytest.raises(openai.APIError, match="could not be finished"):
        list(stream)
    assert [t.state.value for t in world.turns(lease)] == ["lost"]


def test_no_living_pool_is_429_with_retry_after_and_leaves_no_turn(bare_world):
    world = bare_world
    world.start(pool_alive_s=5.0, admission_wait_s=0.0)
    world.ledger.record_pool(world.ledger.pools()[0], now=time.time() - 60)
    lease = world.lease()
    with pytest.raises(openai.RateLimitError) as caught:
        world.ask(lease.model_key, "hi")
    assert float(caught.value.response.headers["retry-after"]) >= 1
    assert "no pool has reported lately" in caught.value.message
    assert world.turns(lease) == []


def test_call_waits_for_a_pool_that_is_about_to_serve(bare_world):
    world = bare_world
    world.start(admission_wait_s=20.0)
    world.report(world.paris, state="starting")
    lease = world.lease()
    answers = []
    caller = threading.Thread(
        target=lambda: answers.append(world.ask(lease.model_key, "hi").choices[0].message.content)
    )
    caller.start()
    world.wait_until(lambda: world.gateway.metrics.in_flight)
    assert not world.paris.requests
    world.report(world.paris)
    caller.join(20)
    assert answers == ["hello"]


def test_pool_that_refuses_a_new_version_goes_on_serving_its_own(world):
    world.report(world.paris, state="refusing", detail="bad digest")
    assert world.ask(world.lease().model_key, "hi").choices[0].message.content == "hello"


def test_wrong_pool_key_is_said(bare_world):
    world = bare_world
    world.start(pool_attempts=1)
    world.paris.script.append(world.reply(status=401))
    with pytest.raises(openai.InternalServerError, match="status 401"):
        world.ask(world.lease().model_key, "hi")


def test_turns_of_a_rollout_and_its_group_stay_with_their_pool(world):
    world.report(world.oregon)
    one, two = world.lease(), world.lease()
    for lease in (one, two):
        world.ask(lease.model_key, "hi")
        world.ask(lease.model_key, "hi", "hello", "more")
    assert {t.completion.pool for lease in (one, two) for t in world.turns(lease)} == {"oregon"}


def test_busy_pool_gives_its_rollouts_away(world):
    world.report(world.oregon)
    lease = world.lease()
    world.ask(lease.model_key, "hi")
    (first,) = world.turns(lease)
    busy = world.oregon if first.completion.pool == "oregon" else world.paris
    world.report(busy, running=8, waiting=4)
    world.servers.run(_reread(world.gateway.router))
    world.ask(lease.model_key, "hi", "hello", "more")
    assert world.turns(lease)[1].completion.pool != first.completion.pool


async def _reread(router) -> None:
    router._read_at = float("-inf")


def test_evaluation_is_answered_by_exactly_its_version(world):
    world.oregon.version = 1
    world.report(world.oregon)
    lease = world.eval_lease(0)
    world.ask(lease.model_key, "hi")
    world.ask(lease.model_key, "hi", "hello", "more")
    assert [versions(t) for t in world.turns(lease)] == [[(0, 6)], [(0, 6)]]
    assert not world.oregon.requests
    assert {r.temperature for r in world.paris.requests} == {0.0}


def test_evaluation_that_was_swapped_in_mid_answer_is_asked_for_again(world):
    world.report(world.oregon, running=8)
    lease = world.eval_lease(0)
    world.paris.script.append(world.reply("hexxx", swap_after=2))
    answer = world.ask(lease.model_key, "hi", stream=True)
    assert "".join(p.choices[0].delta.content or "" for p in answer) == "hello"
    (turn,) = world.turns(lease)
    assert versions(turn) == [(0, 6)]
    assert turn.completion.pool == "oregon"


def test_evaluation_waits_a_bounded_time_for_its_version(bare_world):
    world = bare_world
    world.start(eval_wait_s=0.05)
    lease = world.eval_lease(0)
    world.paris.version = 4
    world.report(world.paris)
    with pytest.raises(openai.RateLimitError, match=r"version 0 is asked for .* serve \[4\]"):
        world.ask(lease.model_key, "hi")
    world.ledger.finish(lease.rollout_id, Outcome(status="infra_error", detail="x"), time.time())


def test_pool_with_weights_too_old_for_the_group_is_left_out(world):
    """The group was opened when pools served version 2; tokens of version 1 would be too stale."""
    world.paris.version, world.oregon.version = 1, 2
    world.report(world.paris)
    world.report(world.oregon, running=8)
    world.ledger.open_training_group(8, None, 2)
    leases = [world.lease() for _ in range(9)]
    world.ask(leases[-1].model_key, "hi")
    (turn,) = world.turns(leases[-1])
    assert turn.completion.pool == "oregon"
    assert versions(turn) == [(2, 6)]


def test_rollout_waits_a_bounded_time_for_weights_that_are_new_enough(world):
    world.ledger.open_training_group(8, None, 2)
    leases = [world.lease() for _ in range(9)]
    with pytest.raises(openai.RateLimitError, match=r"version 2 or newer is needed .* serve \[0\]"):
        world.ask(leases[-1].model_key, "hi")


def test_connections_to_pools_are_used_again(world):
    for _ in range(5):
        world.ask("user-key", "hi")
    assert len(world.paris.peers) == 1
