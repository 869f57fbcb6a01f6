"""Weights change between two decode steps; what is served is byte-equal to what was given."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from slow_reference import bits_of_model, cached_greedy, prompts, scores
from tinyllm import make_model

from tradewind.pool.engines.embedded.scheduler import KvPolicy
from tradewind.types import RefusedWeights
from tradewind.weights.checkpoint import read_folder


@pytest.fixture
def other(tmp_path):
    """A model of the same shape as `models("llama")` with other weights."""
    model = make_model("llama", tmp_path)
    torch.manual_seed(8)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


def swap_after(listener, name, tokens, changed, version):
    """Swaps when `name` has `tokens` tokens, from inside the engine thread: exact to the step."""
    engine = listener.engine
    staged = engine._model.weights.stage(changed)

    def hook(who, chunk):
        if who == name and sum(len(c.ids) for c in listener.chunks[name]) == tokens - 1:
            engine._model.weights.commit(staged)
            engine._scheduler.turn_to(version)

    listener.hooks.append(hook)


def test_a_running_request_goes_on_over_its_old_kv(models, opened, other):
    folder, model = models("llama")
    listener = opened(folder)
    prompt = prompts(1, seed=1)[0]
    swap_after(listener, "r", 5, bits_of_model(other), 3)
    listener.ask("r", prompt, 14)
    listener.wait()
    assert listener.ids("r") == cached_greedy([(model, 5), (other, 9)], prompt)
    # the step that sampled token 5 belongs to version 0; its hook ran before the version was read
    assert listener.versions("r") == [0] * 5 + [3] * 9


def test_recomputed_requests_go_on_over_old_kv(models, opened, other):
    """After the swap every token and logprob is that of a fresh forward with the new weights."""
    folder, model = models("llama")
    listener = opened(folder, kv_policy=KvPolicy.RECOMPUTE, max_batch=8)
    asked = prompts(4, seed=1)
    for i, prompt in enumerate(asked):
        listener.ask(f"r{i}", prompt, 200)
    listener.until(lambda: all(listener.ids(f"r{i}") for i in range(4)))
    listener.engine.swap(bits_of_model(other), 3)
    listener.wait()
    for i, prompt in enumerate(asked):
        ids, versions = listener.ids(f"r{i}"), listener.versions(f"r{i}")
        before = versions.count(0)
        assert 0 < before < 200 and versions == [0] * before + [3] * (200 - before)
        chosen, logprobs = scores(other, prompt + ids[:before], ids[before:])
        assert ids[before:] == chosen
        np.testing.assert_allclose(listener.logprobs(f"r{i}")[before:], logprobs, atol=1e-4)
        assert ids[:before] == scores(model, prompt, ids[:before])[0]


def test_recomputing_under_many_swaps_mixes_rows(models, opened, other):
    """Requests of several lanes and ages, swapped back and forth; the last version decides."""
    folder, model = models("llama")
    listener = opened(folder, kv_policy=KvPolicy.RECOMPUTE, max_batch=6)
    asked = prompts(10, seed=6, low=3, high=150)
    for i, prompt in enumerate(asked):
        listener.ask(f"r{i}", prompt, 60 + 9 * i)
    for version in range(1, 7):
        listener.engine.swap(bits_of_model(other if version % 2 else model), version)
    listener.wait()
    for i, prompt in enumerate(asked):
        ids, versions = listener.ids(f"r{i}"), listener.versions(f"r{i}")
        assert versions == sorted(versions)
        for version in set(versions):
            begin, end = versions.index(version), versions.index(version) + versions.count(version)
            right = other if version % 2 else model
            chosen, logprobs = scores(right, prompt + ids[:begin], ids[begin:end])
            assert ids[begin:end] == chosen
            np.testing.assert_allclose(listener.logprobs(f"r{i}")[begin:end], logprobs, atol=1e-4)


def test_swap_blocks_until_the_version_is_active(models, opened, other):
    folder, _ = models("llama")
    listener = opened(folder)
    pause = listener.engine.swap(bits_of_model(other), 7)
    assert 0 <= pause < 60 and listener.engine.load().version == 7
    prompt = prompts(1, seed=2)[0]
    listener.ask("r", prompt, 10)
    listener.wait()
    ids, logprobs = scores(other, prompt, listener.ids("r"))
    assert listener.ids("r") == ids and listener.versions("r") == [7] * 10
    np.testing.assert_allclose(listener.logprobs("r"), logprobs, atol=1e-4)


def test_a_swap_among_running_requests_splits_their_spans_once(models, opened, other):
    folder, _ = models("llama")
    listener = opened(folder)
    for i, prompt in enumerate(prompts(6, seed=3)):
        listener.ask(f"r{i}", prompt, 200)
    listener.until(lambda: all(listener.ids(f"r{i}") for i in range(6)))
    listener.engine.swap(bits_of_model(other), 1)
    listener.wait()
    for i in range(6):
        versions = listener.versions(f"r{i}")
        assert versions == sorted(versions) and set(versions) == {0, 1}


@pytest.mark.parametrize("kind", ["llama", "llama-biased", "qwen3_moe"])
def test_served_bits_are_the_checkpoint(kind, models, opened):
    folder, _ = models(kind)
    served, stored = opened(folder).engine.tensors(), read_folder(folder)
    assert served.keys() == stored.keys()
    assert all(served[n].dtype == stored[n].dtype for n in stored)
    assert all(np.array_equal(served[n], stored[n]) for n in stored)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_served_bits_are_those_that_were_given(tmp_path, opened, dtype):
    model = make_model("qwen3", tmp_path, dtype=torch.bfloat16)
    engine = opened(tmp_path, dtype=dtype).engine
    before = bits_of_model(model)
    names = ["model.embed_tokens.weight", "model.layers.1.self_attn.k_proj.weight"]
    names += ["model.layers.0.mlp.up_proj.weight", "model.layers.2.self_attn.q_norm.weight"]
    random = np.random.default_rng(0)
    changed = {n: before[n] ^ random.integers(0, 4, before[n].shape, np.uint16) for n in names}
    for array in changed.values():
        array.flags.writeable = False
    engine.swap(changed, 1)
    served = engine.tensors()
    assert all(np.array_equal(served[n], changed.get(n, before[n])) for n in before)
    # the tied head is packed apart from the table: both must have changed
    head = engine._model.weights.head
    table = torch.from_numpy(changed[names[0]].copy()).view(torch.bfloat16)
    assert torch.equal(head.parts(head.value)[0], table)


def test_a_refused_swap_changes_nothing(models, opened):
    folder, _ = models("llama")
    engine = opened(folder).engine
    before = engine.tensors()
    good = {"model.norm.weight": before["model.norm.weight"] + 1}
    bad = [
        {"model.norm.wait": np.zeros(48, np.float32)},
        {"model.norm.weight": np.zeros(47, np.float32)},
        {"model.norm.weight": np.zeros(48, np.int32)},
    ]
    for changed in bad:
        with pytest.raises(RefusedWeights):
            engine.swap(good | changed, 1)
    assert engine.load().version == 0
    assert all(np.array_equal(a, before[n]) for n, a in engine.tensors().items())


def test_a_bf16_update_of_an_fp32_checkpoint_is_served_as_bf16(models, opened):
    folder, _ = models("llama")
    engine = opened(folder).engine
    bits = np.full(48, 0x3F81, np.uint16)
    engine.swap({"model.norm.weight": bits}, 1)
    served = engine.tensors()["model.norm.weight"]
    assert served.dtype == np.uint16 and np.array_equal(served, bits)


def test_bf16_arithmetic_refuses_weights_that_it_would_round(models, opened):
    folder, _ = models("llama")
    with pytest.raises(RefusedWeights, match="would lose bits"):
        opened(folder, dtype="bfloat16")
