"""Order of admission, limits, cancellation, failure: what a caller can rely on."""

from __future__ import annotations

import threading

import pytest
from slow_reference import prompts

from tradewind.types import FinishReason, GenerateRequest, Priority, Stalled

PROMPT = [5, 6, 7, 8]


def started(listener):
    """Requests in the order of their first token."""
    order = []
    listener.hooks.append(lambda name, chunk: name in order or order.append(name))
    return order


def test_users_come_first_then_evaluation_then_arrival(models, opened):
    listener = opened(models("llama")[0], started=False, max_batch=1)
    order = started(listener)
    for i, priority in enumerate([Priority.ROLLOUT, Priority.EVAL, Priority.ROLLOUT]):
        listener.ask(f"{priority.name}{i}", PROMPT, 2, priority=priority)
    listener.ask("USER3", PROMPT, 2, priority=Priority.USER)
    listener.engine.start()
    listener.wait()
    assert order == ["USER3", "EVAL1", "ROLLOUT0", "ROLLOUT2"]


def test_a_user_does_not_wait_for_rollouts_that_fill_the_batch(models, opened):
    listener = opened(models("llama")[0], max_batch=2, max_tokens=1024)
    for i in range(3):
        listener.ask(f"r{i}", PROMPT, 200, priority=Priority.ROLLOUT)
    listener.until(lambda: listener.ids("r1"))
    listener.ask("user", PROMPT, 3, priority=Priority.USER)
    listener.until(lambda: "user" in listener.ended)
    assert not listener.ended[:-1]  # it came, ran and went while both rollouts held their rows


def test_a_request_joins_between_two_steps_of_others(models, opened):
    listener = opened(models("llama")[0])
    listener.ask("long", PROMPT, 400)
    listener.until(lambda: listener.ids("long"))
    listener.ask("short", [9, 9], 2)
    listener.wait()
    assert listener.ended == ["short", "long"]


def test_what_does_not_fit_now_waits_and_memory_stays_bounded(models, opened):
    listener = opened(models("llama")[0], max_tokens=512, started=False)
    memory = listener.engine._scheduler.memory
    seen = []
    listener.hooks.append(lambda *_: seen.append((memory.held, listener.engine.load().running)))
    for i, prompt in enumerate(prompts(24, seed=5)):
        length = [10, 100, 220][i % 3]
        listener.ask(f"r{i}", prompt, length, priority=Priority.ROLLOUT)
    listener.engine.start()
    listener.wait()
    assert all(listener.last(f"r{i}").finish_reason == "length" for i in range(24))
    assert max(held for held, _ in seen) <= memory.budget + memory.spare
    assert max(running for _, running in seen) <= 4
    assert not any(lane.members for lane in memory.lanes.values())


def test_a_request_that_can_never_be_served_gets_an_error(models, opened):
    listener = opened(models("llama")[0], max_tokens=64)
    cases = {
        "no prompt": ([], 5, {}),
        "no tokens": (PROMPT, 0, {}),
        "outside": ([300], 5, {}),
        "negative": ([-1], 5, {}),
        "context": ([1] * 512, 5, {}),
        "memory": (PROMPT, 61, {}),
        "temperature": (PROMPT, 5, {"temperature": -1.0}),
        "top_p": (PROMPT, 5, {"top_p": 0.0}),
    }
    for name, (prompt, n, more) in cases.items():
        listener.ask(name, prompt, n, **more)
    listener.ask("fits", PROMPT, 60)
    listener.wait()
    assert listener.last("fits").finish_reason == FinishReason.LENGTH
    for name in cases:
        assert listener.last(name).error and not listener.ids(name), name
    assert "KV memory" in str(listener.last("memory").error)


def test_a_repeated_request_id_is_refused_while_it_runs(models, opened):
    listener = opened(models("llama")[0], started=False)
    listener.ask("r", PROMPT, 30)
    other = []
    again = GenerateRequest(request_id="r", prompt_ids=(1,), max_tokens=1, stop_ids=())
    listener.engine.submit(again, other.append)
    listener.engine.start()
    listener.wait()
    assert len(listener.ids("r")) == 30
    assert [chunk.error for chunk in other] == ["request r is running already"]


def test_stop_ids_and_the_context_window_end_a_request(models, opened):
    listener = opened(models("llama")[0])
    listener.ask("free", PROMPT, 8)
    listener.ask("full", [7] * 505, 100)
    listener.wait()
    ids = listener.ids("free")
    listener.ask("stopped", PROMPT, 8, stop_ids=(ids[3], 1))
    listener.wait()
    assert listener.ids("stopped") == ids[: ids.index(ids[3]) + 1]
    assert listener.last("stopped").finish_reason == FinishReason.STOP
    assert len(listener.ids("full")) == 7  # 512 - 505
    assert listener.last("full").finish_reason == FinishReason.LENGTH


def test_cancel_frees_the_row_for_the_next(models, opened):
    listener = opened(models("llama")[0], max_batch=1)
    listener.ask("long", PROMPT, 500, priority=Priority.ROLLOUT)
    listener.ask("next", PROMPT, 3, priority=Priority.ROLLOUT)
    listener.ask("never", PROMPT, 3, priority=Priority.ROLLOUT)
    listener.until(lambda: listener.ids("long"))
    listener.engine.cancel("never")
    listener.engine.cancel("long")
    listener.engine.cancel("unknown")
    listener.wait()
    assert listener.last("long").finish_reason == FinishReason.CANCELLED
    assert listener.last("never").finish_reason == FinishReason.CANCELLED
    assert not listener.ids("never") and len(listener.ids("next")) == 3
    load = listener.engine.load()
    assert (load.running, load.waiting) == (0, 0)


def test_rollouts_get_their_tokens_in_few_chunks(models, opened):
    listener = opened(models("llama")[0])
    listener.ask("rollout", PROMPT, 20, priority=Priority.ROLLOUT)
    listener.ask("user", PROMPT, 20, priority=Priority.USER)
    listener.wait()
    assert listener.ids("rollout") == listener.ids("user")
    assert len(listener.chunks["rollout"]) == 3 and len(listener.chunks["user"]) == 20


def test_a_dead_engine_tells_everyone(models, opened, monkeypatch, caplog):
    listener = opened(models("llama")[0], max_batch=1)
    listener.ask("running", PROMPT, 500, priority=Priority.ROLLOUT)
    listener.ask("waiting", PROMPT, 500, priority=Priority.ROLLOUT)
    listener.until(lambda: listener.ids("running"))
    engine = listener.engine

    def broken(step):
        raise RuntimeError("boom")

    monkeypatch.setattr(engine._model, "forward", broken)
    listener.wait()
    listener.ask("late", PROMPT, 3)
    listener.wait()
    for name in ("running", "waiting", "late"):
        assert "boom" in str(listener.last(name).error)
    assert "boom" in str(engine.load().error)
    with pytest.raises(Stalled, match="boom"):
        engine.swap({}, 1)


def test_weights_that_are_not_numbers_are_a_crash_with_a_sentence(models, opened, caplog):
    listener = opened(models("llama")[0])
    broken = listener.engine.tensors()["model.norm.weight"] * float("nan")
    listener.engine.swap({"model.norm.weight": broken}, 1)
    listener.ask("r", PROMPT, 3)
    listener.wait()
    assert "not finite" in str(listener.last("r").error)


def test_one_listener_that_fails_ends_only_its_request(models, opened, caplog):
    listener = opened(models("llama")[0])

    def hook(name, chunk):
        if name == "bad" and not chunk.finish_reason:
            raise ValueError("client went away")

    listener.hooks.append(hook)
    listener.ask("bad", PROMPT, 400)
    listener.ask("good", PROMPT, 30)
    listener.wait()
    assert len(listener.ids("good")) == 30 and listener.engine.load().error is None
    assert listener.last("bad").finish_reason == FinishReason.CANCELLED


def test_stop_cancels_everyone_and_refuses_the_late(models, opened):
    listener = opened(models("llama")[0], max_batch=1)
    listener.ask("running", PROMPT, 500)
    listener.ask("waiting", PROMPT, 500)

    def both_are_known():
        load = listener.engine.load()
        return listener.ids("running") and load.running + load.waiting == 2

    listener.until(both_are_known)
    listener.engine.stop()
    listener.engine.stop()
    assert listener.last("running").finish_reason == FinishReason.CANCELLED
    assert listener.last("waiting").finish_reason == FinishReason.CANCELLED
    listener.ask("late", PROMPT, 3)
    assert "stopped" in str(listener.last("late").error)


def test_many_threads_may_submit_cancel_and_swap(models, opened):
    listener = opened(models("llama")[0], max_batch=4)
    norm = listener.engine.tensors()["model.norm.weight"]
    asked = prompts(32, seed=9)

    def client(k):
        for i in range(k, 32, 4):
            name = listener.ask(f"r{i}", asked[i], 25, priority=Priority.ROLLOUT)
            if i % 5 == 0:
                listener.engine.cancel(name)

    threads = [threading.Thread(target=client, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for version in range(1, 6):
        listener.engine.swap({"model.norm.weight": norm}, version)
    for thread in threads:
        thread.join()
    listener.wait()
    ends = {listener.last(f"r{i}").finish_reason for i in range(32)}
    assert ends <= {FinishReason.LENGTH, FinishReason.CANCELLED}
