"""The blockwise inverse CDF draws what softmax says, and reports its probability."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from slow_reference import prompts

from tradewind.pool.engines.embedded.sampler import Draw, sample, uniform
from tradewind.types import Priority


def draws(n, *, temperature=1.0, top_p=1.0, seed=0):
    return [Draw(temperature, top_p, uniform(seed, i)) for i in range(n)]


def chi_square(counts, probabilities):
    """Over entries that are expected at least 5 times, the rest as one; and degrees of freedom."""
    expected = probabilities * counts.sum()
    often = expected >= 5
    counts = np.append(counts[often], counts[~often].sum())
    expected = np.append(expected[often], expected[~often].sum())
    keep = expected > 0
    return float(((counts - expected)[keep] ** 2 / expected[keep]).sum()), int(keep.sum()) - 1


@pytest.mark.parametrize("vocab", [300, 512, 97, 1184])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_frequencies_fit_softmax(vocab, temperature):
    torch.manual_seed(0)
    logits, n = torch.randn(vocab) * 2, 20000
    p = (logits.double() / temperature).softmax(0)
    chosen, logprobs = sample(logits.repeat(n, 1), draws(n, temperature=temperature))
    statistic, freedom = chi_square(np.bincount(chosen, minlength=vocab), p.numpy())
    assert statistic < freedom + 4 * np.sqrt(2 * freedom)  # 4 standard deviations
    np.testing.assert_allclose(logprobs, p.log()[chosen], atol=1e-5)


def test_frequencies_fit_the_nucleus():
    torch.manual_seed(1)
    logits, n, top_p = torch.randn(300) * 2, 5000, 0.7
    p, order = logits.double().softmax(0).sort(descending=True)
    size = int((p.cumsum(0) < top_p).sum()) + 1
    nucleus = torch.zeros(300, dtype=torch.double)
    nucleus[order[:size]] = p[:size] / p[:size].sum()
    chosen, logprobs = sample(logits.repeat(n, 1), draws(n, top_p=top_p))
    statistic, freedom = chi_square(np.bincount(chosen, minlength=300), nucleus.numpy())
    assert statistic < freedom + 4 * np.sqrt(2 * freedom)
    np.testing.assert_allclose(logprobs, nucleus.log()[chosen], atol=1e-5)


def test_greedy_takes_the_best_and_reports_temperature_one():
    torch.manual_seed(2)
    logits = torch.randn(5, 512)
    chosen, logprobs = sample(logits.clone(), draws(5, temperature=0.0))
    assert chosen == logits.argmax(1).tolist()
    np.testing.assert_allclose(logprobs, logits.log_softmax(1).max(1).values, atol=1e-5)


@pytest.mark.parametrize("u", [0.0, 0.5, 1 - 2**-53])
def test_an_impossible_entry_is_never_drawn(u):
    logits = torch.full((1, 512), float("-inf"))
    logits[0, [3, 300]] = 0.0
    for top_p in (1.0, 0.999):
        chosen, logprobs = sample(logits.clone(), [Draw(1.0, top_p, u)])
        assert chosen[0] in (3, 300)
        assert logprobs[0] == pytest.approx(np.log(0.5))


@pytest.mark.parametrize("u", [0.0, 1 - 2**-53])
def test_both_ends_of_the_unit_interval_are_inside_the_vocabulary(u):
    torch.manual_seed(3)
    for vocab in (300, 49152):
        chosen, _ = sample(torch.randn(4, vocab), [Draw(1.0, 1.0, u)] * 4)
        assert all(0 <= token < vocab for token in chosen)


def test_numbers_depend_on_seed_and_position_and_are_uniform():
    grid = np.array([[uniform(seed, position) for position in range(200)] for seed in range(100)])
    assert len(np.unique(grid)) == grid.size and grid.min() >= 0 and grid.max() < 1
    counts = np.histogram(grid, bins=50, range=(0, 1))[0]
    statistic, freedom = chi_square(counts, np.full(50, 1 / 50))
    assert statistic < freedom + 4 * np.sqrt(2 * freedom)
    assert abs(np.corrcoef(grid[:, :-1].ravel(), grid[:, 1:].ravel())[0, 1]) < 0.03


def test_a_seed_gives_the_same_ids_in_any_company(models, opened):
    folder, _ = models("llama")
    asked = prompts(12, seed=11)
    alone = opened(folder, max_batch=1)
    crowd = opened(folder, max_batch=16)
    for listener in (alone, crowd):
        for i, prompt in enumerate(asked):
            listener.ask(f"r{i}", prompt, 30, temperature=1.0, seed=i, priority=Priority.ROLLOUT)
    for listener in (alone, crowd):
        listener.wait()
    for i in range(len(asked)):
        assert alone.ids(f"r{i}") == crowd.ids(f"r{i}")
        np.testing.assert_allclose(alone.logprobs(f"r{i}"), crowd.logprobs(f"r{i}"), atol=1e-4)


def test_a_request_that_another_pool_continues_samples_the_same_ids(models, opened):
    listener = opened(models("llama")[0])
    listener.ask("whole", [1, 2, 3], 20, temperature=1.0, seed=5)
    listener.wait()
    ids = listener.ids("whole")
    listener.ask("rest", [1, 2, 3, *ids[:8]], 12, temperature=1.0, seed=5)
    listener.wait()
    assert listener.ids("rest") == ids[8:]


def test_requests_without_a_seed_differ(models, opened):
    listener = opened(models("llama")[0])
    for i in range(3):
        listener.ask(f"r{i}", [1, 2, 3], 20, temperature=1.0)
    listener.wait()
    assert len({tuple(listener.ids(f"r{i}")) for i in range(3)}) == 3


@pytest.mark.parametrize("temperature", [1e-6, 1e-38, 5e-324])
def test_one_request_with_a_tiny_temperature_kills_the_engine(temperature, models, opened):
    listener = opened(models("llama")[0])
    listener.ask("cold", (5, 9, 11), 4, temperature=temperature)
    listener.ask("greedy", (5, 9, 11), 4)
    listener.wait()
    assert listener.engine.load().error is None
    assert listener.ids("cold") == listener.ids("greedy")
    np.testing.assert_allclose(listener.logprobs("cold"), 0.0, atol=1e-5)
