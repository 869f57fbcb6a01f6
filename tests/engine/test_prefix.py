"""A shared prefix is computed once, changes nothing, and never outlives its weight version."""

from __future__ import annotations

import numpy as np
import pytest
from slow_reference import bits_of_model, prompts, scores

from tradewind.types import Priority


def computed(engine):
    """Counts the ids that go through the model from now on."""
    forward, count = engine._model.forward, [0]

    def counting(step):
        count[0] += len(step.ids)
        return forward(step)

    engine._model.forward = counting
    return count


def ask_group(listener, group, n=10, **more):
    for i, prompt in enumerate(group):
        listener.ask(f"r{i}", prompt, n, seed=i, priority=Priority.ROLLOUT, **more)


def test_a_group_of_equal_prompts_reads_the_prompt_once(models, opened):
    folder, model = models("llama")
    prompt = prompts(1, seed=1, low=100, high=101)[0]
    listener = opened(folder, started=False)
    count = computed(listener.engine)
    ask_group(listener, [prompt] * 8)
    listener.engine.start()
    listener.wait()
    # 100 once, then for each of the others what no full block covers (100 - 96), and the decoding
    assert count[0] == 100 + 7 * 4 + 8 * 9
    for i in range(8):
        ids, logprobs = scores(model, prompt, listener.ids(f"r{i}"))
        assert listener.ids(f"r{i}") == ids
        np.testing.assert_allclose(listener.logprobs(f"r{i}"), logprobs, atol=1e-4)


@pytest.mark.parametrize("kind", ["llama", "qwen3_moe"])
def test_reuse_gives_what_no_reuse_gives(kind, models, opened):
    folder, _ = models(kind)
    system = prompts(1, seed=2, low=70, high=71)[0]
    group = [system + tail for tail in prompts(6, seed=3)] * 2
    shared, apart = opened(folder), opened(folder)
    apart.engine._prefixes._room = 0
    apart.engine._scheduler._shares_what_is_being_read = lambda sequence: False
    spans = []
    for listener in (shared, apart):
        plan = listener.engine._scheduler.next_step
        listener.engine._scheduler.next_step = lambda plan=plan: spans.append(plan()) or spans[-1]
        ask_group(listener, group, temperature=1.0)
        listener.wait()
    assert any(d.shared == 64 for step in spans if step for d in step.decodes)
    assert shared.engine._prefixes.hits > 0 and apart.engine._prefixes.hits == 0
    for i in range(len(group)):
        assert shared.ids(f"r{i}") == apart.ids(f"r{i}")
        np.testing.assert_allclose(shared.logprobs(f"r{i}"), apart.logprobs(f"r{i}"), atol=1e-4)


def test_the_next_turn_reuses_the_last_answer(models, opened):
    folder, model = models("llama")
    listener = opened(folder)
    first = prompts(1, seed=4, low=40, high=41)[0]
    listener.ask("t0", first, 30)
    listener.wait()
    second = first + listener.ids("t0") + [9, 8, 7]
    count = computed(listener.engine)
    listener.ask("t1", second, 5)
    listener.wait()
    assert count[0] == len(second) - 64 + 4  # 69 of 70 ids had KV: four full blocks
    assert listener.ids("t1") == scores(model, second, listener.ids("t1"))[0]


def test_nothing_of_another_version_is_reused(models, opened, tmp_path):
    folder, model = models("llama")
    listener = opened(folder)
    prompt = prompts(1, seed=5, low=60, high=61)[0]
    listener.ask("old", prompt, 30)
    listener.until(lambda: len(listener.ids("old")) > 3)
    listener.engine.swap(bits_of_model(model), 1)
    listener.until(lambda: "old" in listener.ended)  # it ended under version 1 with KV of both
    count = computed(listener.engine)
    listener.ask("new", prompt, 2)
    listener.wait()
    assert count[0] == 60 + 1


def test_the_cache_is_bounded_and_drops_what_was_used_least_recently(models, opened):
    folder, _ = models("llama")
    listener = opened(folder, max_tokens=256)  # a cache of 8 blocks
    cache = listener.engine._prefixes
    old, new = prompts(2, seed=6, low=64, high=65)
    for name, prompt in (("a", old), ("b", new), ("c", new[:33]), ("d", old[:48] + [1] * 40)):
        listener.ask(name, prompt, 1)
        listener.wait()
        assert len(cache) <= 8
    assert cache.covered(old) == 48 and cache.covered(new) < 64


def test_a_cancelled_reader_does_not_strand_those_that_wait_for_its_prefix(models, opened):
    listener = opened(models("llama")[0])
    prompt = prompts(1, seed=7, low=400, high=401)[0]  # three parts
    ask_group(listener, [prompt] * 4)
    listener.engine.cancel("r0")
    listener.wait()
    assert all(len(listener.ids(f"r{i}")) == 10 for i in range(1, 4))
