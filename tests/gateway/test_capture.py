"""What is recorded of a rollout's calls (promises R1, R2, R3)."""

from __future__ import annotations

import math
import time

import openai
import pytest

from tradewind.ledger.tables import turns
from tradewind.types import Outcome, TurnState


def test_answer_is_recorded_in_the_engines_ids(world):
    lease = world.lease()
    world.paris.script.append(world.reply("SELECT 1"))
    answer = world.ask(lease.model_key, "how many?")
    assert answer.choices[0].message.content == "SELECT 1"
    assert answer.choices[0].finish_reason == "stop"
    (turn,) = world.wait_until(lambda: [t for t in world.turns(lease) if t.delivered])
    renderer = world.paris.renderer
    assert turn.prompt_ids == world.paris.requests[0].prompt_ids
    assert turn.prompt_ids == renderer.render([{"role": "user", "content": "how many?"}])
    assert turn.completion.output_ids == (*renderer.encode("SELECT 1"), 258)
    assert turn.completion.logprobs == (-0.5,) * 9
    assert turn.completion.pool == "paris"
    assert turn.text == "SELECT 1"
    assert answer.usage.completion_tokens == 9
    assert answer.usage.prompt_tokens == len(turn.prompt_ids)


def test_second_turn_extends_the_engines_own_ids(world):
    lease = world.lease()
    first = world.ask(lease.model_key, "hi").choices[0].message.content
    world.ask(lease.model_key, "hi", first, "more")
    one, two = world.turns(lease)
    assert two.parent == one.turn_id
    spoken = one.prompt_ids + one.completion.output_ids
    assert two.prompt_ids[: len(spoken)] == spoken
    full = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    full.append({"role": "user", "content": "more"})
    assert two.prompt_ids == world.paris.renderer.render(full)


def test_edited_history_forks(world):
    lease = world.lease()
    world.ask(lease.model_key, "hi")
    world.ask(lease.model_key, "hi", "HELLO?", "more")
    one, two = world.turns(lease)
    assert (one.parent, two.parent) == (None, None)
    assert world.gateway.metrics.turns == {"root": 1, "edited": 1}


def test_two_branches_of_one_turn_are_both_kept(world):
    lease = world.lease()
    world.ask(lease.model_key, "hi")
    world.ask(lease.model_key, "hi", "hello", "left")
    world.ask(lease.model_key, "hi", "hello", "right")
    root, left, right = world.turns(lease)
    assert left.parent == right.parent == root.turn_id


def test_parallel_conversations_of_one_rollout_do_not_mix(world):
    lease = world.lease()
    world.paris.script.extend([world.reply("a1"), world.reply("b1"), world.reply("a2")])
    world.ask(lease.model_key, "agent a")
    world.ask(lease.model_key, "agent b")
    world.ask(lease.model_key, "agent a", "a1", "go on")
    a, b, more = world.turns(lease)
    assert (a.parent, b.parent, more.parent) == (None, None, a.turn_id)


def test_intent_is_in_the_ledger_before_the_pool_is_called(world):
    lease = world.lease()
    seen = []
    world.paris.on_request = lambda request: seen.append(
        [(t.turn_id, t.state.value) for t in world.turns(lease)]
    )
    world.ask(lease.model_key, "hi")
    assert seen == [[(world.paris.requests[0].request_id, "intent")]]


def test_answer_is_in_the_ledger_before_the_agent_has_all_of_it(world):
    lease = world.lease()
    states = []
    for event in world.ask(lease.model_key, "hi", stream=True):
        if event.choices[0].finish_reason:
            states = [t.state.value for t in world.turns(lease)]
    assert states == ["done"]


def test_streamed_and_unstreamed_answers_are_recorded_alike(world):
    streamed, whole = world.lease(), world.lease()
    world.paris.script.extend([world.reply("aé€😀"), world.reply("aé€😀")])
    pieces = [
        event.choices[0].delta.content or ""
        for event in world.ask(streamed.model_key, "hi", stream=True)
        if event.choices
    ]
    text = world.ask(whole.model_key, "hi").choices[0].message.content
    assert "".join(pieces) == text == "aé€😀"
    assert not any("�" in piece for piece in pieces)
    one, two = world.turns(streamed)[0], world.turns(whole)[0]
    assert one.completion.output_ids == two.completion.output_ids
    assert one.text == two.text


def test_misaligned_logprobs_are_never_trained_but_the_agent_goes_on(world):
    for bad in (lambda n: [-0.5] * (n + 1), lambda n: [], lambda n: [0.5] * n):
        lease = world.lease()
        world.paris.script.append(world.reply("hello", logprobs=bad))
        assert world.ask(lease.model_key, "hi").choices[0].message.content == "hello"
        assert [t.state.value for t in world.turns(lease)] == ["lost"]
    assert world.gateway.metrics.lost == {"misaligned": 3}
    assert [e.kind for e in world.ledger.events()].count("turn.lost") == 3


def test_logprob_that_is_not_finite_is_never_trained(world):
    lease = world.lease()
    world.paris.script.append(world.reply("hello", logprobs=lambda n: [-math.inf] * n))
    assert world.ask(lease.model_key, "hi").choices[0].message.content == "hello"
    assert [t.state.value for t in world.turns(lease)] == ["lost"]


def test_what_follows_an_answer_that_a_crash_of_the_database_took_back_is_not_trained(world):
    """Commits of turns are not flushed one by one: the server may lose what the gateway knows."""
    lease = world.lease()
    text = world.ask(lease.model_key, "hi").choices[0].message.content
    (answered,) = world.turns(lease)
    with world.ledger.write() as conn:
        unfinished = {"state": TurnState.INTENT.value, "answer": None}
        conn.execute(turns.update().where(turns.c.turn_id == answered.turn_id).values(unfinished))
    for asked in (("hi", text, "more"), ("hi", text, "another branch")):
        assert world.ask(lease.model_key, *asked).choices[0].message.content, "the agent goes on"
    assert [t.state.value for t in world.turns(lease)] == ["intent", "lost", "lost"]
    details = [e.detail for e in world.ledger.events() if e.kind == "turn.lost"]
    assert len(details) == 2 and all("has no tokens" in detail for detail in details)


def test_what_follows_a_lost_answer_is_not_trained(world):
    lease = world.lease()
    world.paris.script.append(world.reply("hello", logprobs=lambda n: []))
    world.ask(lease.model_key, "hi")
    world.ask(lease.model_key, "hi", "hello", "more")
    world.ask(lease.model_key, "hi", "hello", "more", "hello", "and more")
    assert [t.state.value for t in world.turns(lease)] == ["lost"] * 3
    world.ask(lease.model_key, "something else")
    assert world.turns(lease)[-1].state.value == "done"


def test_client_gone_in_mid_stream_cancels_at_the_pool_and_loses_the_turn(world):
    lease = world.lease()
    world.paris.script.append(world.reply("hello", stall_after=3))
    stream = world.ask(lease.model_key, "hi", stream=True)
    next(stream)
    world.paris.stalled.wait(10)
    stream.close()
    (turn,) = world.wait_until(lambda: [t for t in world.turns(lease) if t.state.value == "lost"])
    world.wait_until(lambda: turn.turn_id in world.paris.cancelled)
    world.wait_until(lambda: turn.turn_id in world.paris.dropped)
    assert not turn.delivered
    world.ask(lease.model_key, "hi", "hel", "more")
    assert [t.state.value for t in world.turns(lease)] == ["lost", "lost"]


def test_client_gone_before_an_unstreamed_answer_loses_the_turn_after_a_grace(world):
    lease = world.lease()
    world.paris.script.append(world.reply("hello", stall_after=1))
    client = world.client(lease.model_key, timeout=0.3)
    with pytest.raises(openai.APITimeoutError):
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])
    world.wait_until(lambda: [t for t in world.turns(lease) if t.state.value == "lost"])
    world.wait_until(lambda: world.paris.cancelled)


def test_gateway_killed_in_mid_answer_loses_the_turn_at_its_next_start(world):
    lease = world.lease()
    turn = world.turns(lease)
    assert turn == []
    world.paris.script.append(world.reply("hello"))
    world.ask(lease.model_key, "hi")
    (done,) = world.turns(lease)
    world.stop()
    # What a kill -9 leaves: an intent that nobody will answer.
    orphan = done.model_copy(
        update={
            "turn_id": f"{lease.rollout_id}-t1",
            "index": 1,
            "state": TurnState.INTENT,
            "completion": None,
            "text": None,
            "finished_at": None,
            "delivered": False,
        }
    )
    world.ledger.write_intent(orphan)
    world.start()
    assert [t.state.value for t in world.turns(lease)] == ["done", "lost"]
    world.ask(lease.model_key, "hi", "hello", "more")
    assert [t.parent for t in world.turns(lease)] == [None, None, done.turn_id]


def test_sealed_rollout_gets_no_late_turn(world):
    lease = world.lease()
    world.paris.script.append(world.reply("hello", stall_after=2))
    stream = world.ask(lease.model_key, "hi", stream=True)
    next(stream)
    world.paris.stalled.wait(10)
    world.ledger.finish(lease.rollout_id, Outcome(status="completed"), time.time())
    world.paris.release()
    with pytest.raises(openai.APIError, match=r"is over|given up|has ended"):
        list(stream)
    assert [t.state.value for t in world.turns(lease)] == ["lost"]


def test_delivered_share_counts_what_reached_the_agents(world):
    world.ask(world.lease().model_key, "hi")
    world.paris.script.append(world.reply("hello", logprobs=lambda n: []))
    world.ask(world.lease().model_key, "hi")
    metrics = world.gateway.metrics
    world.wait_until(lambda: metrics.delivered_tokens)
    assert metrics.to_json()["tokens"] == {"sampled": 12, "delivered": 6, "delivered_share": 0.5}
