"""What is known to go wrong between an agent and a trainer, each with the test that would see it.

The numbers are those of the project's list of pitfalls of token capture. A row names a test of
this folder, or of the file before the colon. Two of them hold by refusal: no mixture of experts is
trained (23), and no image is read (27).
"""

from __future__ import annotations

import time
from pathlib import Path

import openai
import pytest

from tradewind.algo.samples import branches
from tradewind.gateway.alarm import DeliveredAlarm, Level
from tradewind.gateway.config import GatewayConfig
from tradewind.gateway.metrics import Metrics
from tradewind.types import Outcome

TESTS = Path(__file__).parents[1]
PITFALLS = {
    "1": "render/test_extend.py:test_sampled_ids_survive_although_the_text_tokenises_otherwise",
    "2": "test_capture.py:test_second_turn_extends_the_engines_own_ids",
    "3": "render/test_extend.py:test_harmless_changes_by_the_client_do_not_fork",
    "3 tools": "render/test_tools.py:test_call_that_was_spelled_otherwise_keeps_the_engines_ids",
    "3 date": "render/test_extend.py:test_date_of_the_template_that_changed_does_not_fork",
    "3 none": "render/test_tools.py:test_no_content_and_empty_content_of_a_call_are_the_same",
    "4": "render/test_tools.py:test_bridge_after_a_call_equals_the_full_rendering",
    "4 parse": "test_tools.py:test_call_is_parsed_and_its_result_extends_the_same_ids",
    "5": "test_capture.py:test_two_branches_of_one_turn_are_both_kept",
    "6": "test_pitfalls.py:test_compaction_and_sub_agents_are_roots_of_their_own",
    "6b": "render/test_extend.py:test_canonical_ids_extend_to_exactly_the_full_rendering",
    "6c": "test_capture.py:test_misaligned_logprobs_are_never_trained_but_the_agent_goes_on",
    "7": "test_capture.py:test_what_follows_a_lost_answer_is_not_trained",
    "7 intent": "test_capture.py:test_intent_is_in_the_ledger_before_the_pool_is_called",
    "8": "test_retries.py:test_sdk_retry_does_not_sample_twice",
    "9": "test_retries.py:test_equal_bodies_without_a_mark_sample_again",
    "10": "test_parameters.py:test_agent_cannot_change_how_a_rollout_is_sampled",
    "11": "test_dialects.py:test_sampling_is_forced_in_each_dialect_and_both_values_are_recorded",
    "12": "test_capture.py:test_streamed_and_unstreamed_answers_are_recorded_alike",
    "12 tools": "test_tools.py:test_streamed_call_is_the_unstreamed_one",
    "13": "test_dialects.py:test_waiting_stream_is_kept_open_in_the_dialects_way",
    "13 status": "test_pitfalls.py:test_stream_that_is_refused_early_has_its_own_status",
    "14": "test_dialects.py:test_answer_that_breaks_in_mid_stream_is_an_error_in_each_dialect",
    "15": "test_capture.py:test_sealed_rollout_gets_no_late_turn",
    "15 cancel": "test_pitfalls.py:test_rollout_that_is_over_costs_no_more_tokens",
    "16": "test_pools.py:test_pool_that_swaps_in_mid_answer_is_seen_in_the_spans",
    "17": "test_pools.py:test_answer_that_a_pool_aborted_does_not_look_like_a_short_answer",
    "18": "test_capture.py:test_logprob_that_is_not_finite_is_never_trained",
    "19": "test_dialects.py:test_errors_have_the_dialects_shape",
    "20": "test_pitfalls.py:test_title_and_count_calls_are_never_trained",
    "21": "test_tools.py:test_call_cut_off_by_length_stays_text",
    "21 kept": "test_pitfalls.py:test_answer_cut_off_by_length_is_trained_and_says_so",
    "22": "test_pitfalls.py:test_bytes_that_are_no_characters_keep_their_ids",
    "23": "trainer/test_families.py:test_trainer_routes_tokens_to_other_experts_than_its_engine",
    "24": "algo/test_samples.py:test_forks_earn_more_weight_than_a_single_branch",
    "25": "test_pitfalls.py:test_tokens_that_do_not_arrive_raise_an_alarm_in_log_and_status",
    "26": "ledger/test_payloads.py:test_a_payload_of_a_newer_schema_is_refused_with_a_sentence",
    "27": "test_sessions.py:test_image_gets_a_sentence_in_openais_shape",
    "28": "render/test_extend.py:test_reasoning_that_the_template_strips_forks",
}


@pytest.mark.parametrize(("number", "where"), PITFALLS.items())
def test_pitfall_has_its_test(number, where):
    file, _, name = where.partition(":")
    path = TESTS / file if "/" in file else TESTS / "gateway" / file
    assert f"def {name}(" in path.read_text(encoding="utf-8")


def test_every_pitfall_is_in_the_list():
    wanted = {str(n) for n in range(1, 29)} | {"6b", "6c"}
    assert {number.split()[0] for number in PITFALLS} == wanted


def test_compaction_and_sub_agents_are_roots_of_their_own(world):
    lease = world.lease()
    world.ask(lease.model_key, "long task")
    world.ask(lease.model_key, "a sub-agent's own task")
    world.ask(lease.model_key, "long task", "hello", "go on")
    world.ask(lease.model_key, "summary of all so far; go on")
    world.ask(lease.model_key, "long task", "[shortened]", "go on")
    turns = world.turns(lease)
    kinds = [turn.kind for turn in turns]
    assert kinds == ["root", "root", "extended", "root", "edited"]
    assert [turn.parent for turn in turns] == [None, None, turns[0].turn_id, None, None]
    assert all(turn.state.value == "done" for turn in turns)


def test_stream_that_is_refused_early_has_its_own_status(bare_world):
    world = bare_world
    world.start(pool_alive_s=5.0, admission_wait_s=0.0)
    world.ledger.record_pool(world.ledger.pools()[0], now=time.time() - 60)
    with pytest.raises(openai.RateLimitError):
        world.ask(world.lease().model_key, "hi", stream=True)
    with pytest.raises(openai.BadRequestError, match="context length"):
        world.ask(world.lease().model_key, "x" * 500, stream=True)


def test_rollout_that_is_over_costs_no_more_tokens(world):
    """The agent listens on, the pool would decode on: neither is let."""
    lease = world.lease()
    world.paris.script.append(world.reply("hello", stall_after=2))
    stream = world.ask(lease.model_key, "hi", stream=True)
    next(stream)
    world.paris.stalled.wait(10)
    world.ledger.finish(lease.rollout_id, Outcome(status="completed"), time.time())
    with pytest.raises(openai.APIError, match=r"has ended"):
        list(stream)
    (turn,) = world.turns(lease)
    world.wait_until(lambda: turn.turn_id in world.paris.cancelled)
    assert turn.state.value == "lost"


def test_answer_cut_off_by_length_is_trained_and_says_so(world):
    """Long answers are kept, with their reason beside them; leaving them out would teach length."""
    lease = world.lease()
    world.ask(lease.model_key, "hi", max_tokens=3)
    (turn,) = world.turns(lease)
    assert (turn.completion.finish_reason.value, len(turn.completion.output_ids)) == ("length", 3)
    assert [cause for _, cause in branches([turn])] == [None]


def test_title_and_count_calls_are_never_trained(world):
    lease = world.lease()
    client = world.client(lease.model_key)
    user = {"role": "user", "content": "a title for this, please"}
    client.chat.completions.create(model="claude-3-5-haiku-latest", messages=[user])
    world.ask(lease.model_key, "the task")
    side, task = world.turns(lease)
    assert (side.auxiliary, task.auxiliary) == (True, False)
    assert [cause for _, cause in branches([side, task])] == ["auxiliary", None]


def test_bytes_that_are_no_characters_keep_their_ids(world):
    """Text is for display: what the agent sends back is not what was sampled, and extends it."""
    lease = world.lease()
    whole = world.paris.renderer.encode("€")
    world.paris.script.append(world.reply("a€b", drop=(2,)))
    text = world.ask(lease.model_key, "hi").choices[0].message.content
    assert text == "a�b"
    world.ask(lease.model_key, "hi", text, "more")
    one, two = world.turns(lease)
    assert whole[1] not in one.completion.output_ids
    assert two.parent == one.turn_id
    spoken = one.prompt_ids + one.completion.output_ids
    assert two.prompt_ids[: len(spoken)] == spoken


def test_tokens_that_do_not_arrive_raise_an_alarm_in_log_and_status(bare_world, caplog):
    world = bare_world
    world.start(delivered_window=10)
    world.paris.script.append(world.reply("hello hello", logprobs=lambda n: []))
    world.ask(world.lease().model_key, "hi")
    beat = world.wait_until(
        lambda: next((b for b in world.ledger.beats() if "delivered" in b.doing), None)
    )
    assert "stop: only 0.000 of the sampled tokens were delivered" in beat.doing
    assert "12 misaligned" in beat.doing
    assert world.client().get("/metrics", cast_to=object)["alarm"]["level"] == "stop"
    events = [e for e in world.ledger.events() if e.kind == "tokens.delivered"]
    assert events[0].detail in beat.doing
    assert any(record.levelname == "ERROR" for record in caplog.records)


def test_alarm_forgets_what_is_long_ago():
    metrics = Metrics()
    alarm = DeliveredAlarm(GatewayConfig(delivered_window=1000), metrics)
    found = []
    for lost in (0, 30, 60, 0, 0):
        metrics.sampled_tokens += 1000
        metrics.delivered_tokens += 1000 - lost
        alarm.check()
        found.append(alarm.level)
    assert found == [Level.FINE, Level.WARN, Level.STOP, Level.FINE, Level.FINE]


def test_alarm_says_nothing_of_too_few_tokens():
    metrics = Metrics()
    metrics.sampled_tokens = 999
    alarm = DeliveredAlarm(GatewayConfig(delivered_window=1000), metrics)
    assert (alarm.check(), alarm.level) == (None, Level.FINE)


def test_call_after_the_deadline_gets_409(world):
    from tradewind.ledger.rollouts import LeaseTerms

    terms = LeaseTerms(ttl_s=600.0, deadline_s=0.0, max_running=10)
    lease = world.ledger.lease_next("w", time.time(), terms, ())
    with pytest.raises(openai.ConflictError, match="deadline"):
        world.ask(lease.model_key, "hi")
