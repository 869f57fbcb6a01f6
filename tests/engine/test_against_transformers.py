"""Greedy ids and logprobs equal those of transformers. Bound: 1e-4 in fp32, 0.1 in bf16."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from slow_reference import prompts, scores
from tinyllm import KINDS, make_model

from tradewind.pool.engines.embedded import stack


def assert_greedy(model, listener, name, prompt):
    ids, logprobs = scores(model, prompt, listener.ids(name))
    assert listener.ids(name) == ids
    np.testing.assert_allclose(listener.logprobs(name), logprobs, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_ids_and_logprobs_in_fp32(kind, models, opened):
    folder, model = models(kind)
    listener = opened(folder)
    asked = prompts(9, seed=1) + prompts(1, seed=2, low=250, high=260)  # the last in two parts
    for i, prompt in enumerate(asked):
        listener.ask(f"r{i}", prompt, 12)
    listener.wait()
    for i, prompt in enumerate(asked):
        assert len(listener.ids(f"r{i}")) == 12
        assert_greedy(model, listener, f"r{i}", prompt)


def test_unpacked_matrices_give_the_same_ids(models, opened, monkeypatch):
    monkeypatch.setattr(stack, "packs_matrices", lambda dtype: False)
    folder, model = models("llama-biased")
    listener = opened(folder)
    prompt = prompts(1, seed=3)[0]
    listener.ask("r", prompt, 12)
    listener.wait()
    assert_greedy(model, listener, "r", prompt)


def test_bf16_checkpoint_in_fp32_arithmetic_is_the_exact_upcast(tmp_path, opened):
    make_model("llama", tmp_path, dtype=torch.bfloat16)
    import transformers

    model = transformers.LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    listener = opened(tmp_path, dtype="float32")
    prompt = prompts(1, seed=4)[0]
    listener.ask("r", prompt, 12)
    listener.wait()
    assert_greedy(model, listener, "r", prompt)


def test_bf16_arithmetic_scores_its_own_ids_as_transformers_does(tmp_path, opened):
    make_model("qwen3", tmp_path, dtype=torch.bfloat16)
    import transformers

    model = transformers.Qwen3ForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    listener = opened(tmp_path, dtype="bfloat16")
    prompt = prompts(1, seed=5)[0]
    listener.ask("r", prompt, 16)
    listener.wait()
    _, logprobs = scores(model, prompt, listener.ids("r"))
    np.testing.assert_allclose(listener.logprobs("r"), logprobs, atol=0.1)
    assert listener.engine.load().dtype == "bfloat16"
