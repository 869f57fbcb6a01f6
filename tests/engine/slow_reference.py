"""Slow references: transformers with no KV cache of ours, one sequence at a time."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import torch

from tradewind.pool.engines.embedded.stack import bits_of


def scores(model: Any, prompt: list[int], ids: list[int]) -> tuple[list[int], list[float]]:
    """What transformers would have chosen greedily before each of `ids`, and its logprob of each.

    One forward over prompt + ids: if the choices equal `ids`, then by induction a token by token
    greedy decode gives `ids`.
    """
    with torch.no_grad():
        logits = model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1].float()
    logprobs = logits.log_softmax(-1)[torch.arange(len(ids)), torch.tensor(ids)]
    return logits.argmax(-1).tolist(), logprobs.tolist()


def cached_greedy(models: list[tuple[Any, int]], prompt: list[int]) -> list[int]:
    """Greedy ids with one KV cache that several models fill in turn: (model, how many ids)."""
    from transformers import DynamicCache

    # transformers 5.24 renames the argument
    accepted = inspect.signature(models[0][0].forward).parameters
    key = "cache" if "cache" in accepted else "past_key_values"
    cache, fresh, out = DynamicCache(), list(prompt), []
    with torch.no_grad():
        for model, n in models:
            for _ in range(n):
                logits = model(torch.tensor([fresh]), **{key: cache}).logits[0, -1]
                fresh = [int(logits.argmax())]
                out += fresh
    return out


def prompts(count: int, seed: int, *, low: int = 3, high: int = 40) -> list[list[int]]:
    """Random prompts of random lengths."""
    random = np.random.default_rng(seed)
    lengths = random.integers(low, high, count)
    return [random.integers(0, 300, n).tolist() for n in lengths]


def bits_of_model(model: Any) -> dict[str, np.ndarray]:
    """A model's tensors as wire bits, under checkpoint names (no fused experts)."""
    state = model.state_dict()
    if getattr(model.config, "tie_word_embeddings", False):
        state.pop("lm_head.weight")
    return {name: bits_of(t, t.dtype).copy() for name, t in state.items()}
