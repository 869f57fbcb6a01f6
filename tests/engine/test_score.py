"""Scores equal transformers' log-probabilities (1e-4 in fp32) and disturb nobody."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from slow_reference import bits_of_model, cached_greedy, prompts
from tinyllm import KINDS

from tradewind.types import Stalled, UserError


def slow_scores(model, sequences):
    """One sequence at a time, the whole softmax."""
    out = []
    for ids in sequences:
        with torch.no_grad():
            logp = model(torch.tensor([ids])).logits[0].float().log_softmax(-1)
        out.append([float(logp[i, token]) for i, token in enumerate(ids[1:])])
    return out


def assert_scores(engine, model, sequences):
    found, expected = engine.score(sequences), slow_scores(model, sequences)
    assert [len(row) for row in found] == [len(ids) - 1 for ids in sequences]
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_scores_differ_from_those_of_transformers(kind, models, opened):
    folder, model = models(kind)
    engine = opened(folder).engine
    # short ones share a step; the long one has one of its own
    assert_scores(engine, model, [[5, 9], *prompts(6, seed=1), *prompts(1, 2, low=250, high=260)])
    assert engine.score([]) == []


def test_scores_are_of_the_version_before_the_swap(models, opened):
    folder, model = models("llama")
    engine = opened(folder).engine
    sequences = prompts(3, seed=3)
    before = engine.score(sequences)
    changed = {name: bits.copy() for name, bits in bits_of_model(model).items()}
    changed["model.norm.weight"] *= 2
    engine.swap(changed, 1)
    assert engine.score(sequences) != before
    engine.swap(bits_of_model(model), 2)
    assert engine.score(sequences) == before


def test_a_score_takes_rows_or_blocks_from_running_requests(models, opened):
    folder, model = models("llama")
    listener = opened(folder, max_tokens=128, max_batch=1)
    engine, (prompt, other) = listener.engine, prompts(2, seed=4, low=30, high=31)
    listener.ask("r", prompt, 60)
    listener.until(lambda: len(listener.ids("r")) > 3)
    blocks, hits = len(engine._prefixes), engine._prefixes.hits
    for _ in range(5):
        assert_scores(engine, model, [prompt, other])
    assert (len(engine._prefixes), engine._prefixes.hits) == (blocks, hits)
    assert engine._scheduler.memory.held == 128
    listener.wait()
    assert listener.ids("r") == cached_greedy([(model, 60)], prompt)


def test_a_score_reads_what_the_prefix_cache_holds(models, opened):
    """A cache with wrong content must not lend its numbers to the proof."""
    folder, model = models("llama")
    listener = opened(folder)
    prompt = prompts(1, seed=5, low=40, high=41)[0]
    listener.ask("r", prompt, 2)
    listener.wait()
    cache = listener.engine._prefixes
    assert len(cache) > 1
    with torch.inference_mode():
        for block in cache._blocks.values():
            block.kv.fill_(3.0)
    assert_scores(listener.engine, model, [prompt])


@pytest.mark.parametrize("ids", [[], [1], [1, 300], [-1, 2], list(range(300)) + [0] * 213])
def test_what_cannot_be_scored_kills_the_engine(ids, models, opened):
    folder, model = models("llama")
    engine = opened(folder).engine
    with pytest.raises(UserError):
        engine.score([[1, 2], ids])
    assert_scores(engine, model, [[1, 2]])


def test_a_dead_engine_keeps_who_asks_for_scores_waiting(models, opened):
    folder, _ = models("llama")
    engine = opened(folder).engine
    engine.stop()
    with pytest.raises(Stalled, match="scores"):
        engine.score([[1, 2]])


def test_scoring_that_kills_the_engine_keeps_who_asked_waiting(models, opened, monkeypatch, caplog):
    engine = opened(models("llama")[0]).engine

    def broken(step):
        raise RuntimeError("boom")

    monkeypatch.setattr(engine._model, "forward", broken)
    with pytest.raises(Stalled, match="boom") as stalled:
        engine.score([[1, 2]])
    assert stalled.value.seconds == 0
    assert "boom" in str(engine.load().error)


def test_broken_weights_kill_the_engine_instead_of_giving_their_scores(models, opened):
    folder, _ = models("llama")
    engine = opened(folder).engine
    engine.swap({"model.norm.weight": np.full(48, np.nan, np.float32)}, 1)
    assert np.isnan(engine.score([[1, 2]])[0]).all()
    assert engine.load().error is None
