"""A synthetic policy: random bf16 weights, AdamW steps on correlated noise.

fp32 masters, gradients half new in every step. At a rate of 1e-6 about one weight in a hundred
changes per step, as in RL (the record says which share it was); which ones is decided by their
exponents, as there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tradewind.weights.checkpoint import write_file
from tradewind.weights.tensors import TensorSet

Shapes = Mapping[str, tuple[int, ...]]


def matrices(weights: int) -> Shapes:
    """Eight square ones."""
    side = max(8, int((weights / 8) ** 0.5))
    return {f"layer.{i}.weight": (side, side) for i in range(8)}


class Policy:
    """`step` is one AdamW step."""

    def __init__(self, shapes: Shapes, lr: float) -> None:
        self._draw = np.random.default_rng(0)
        self._shapes, self._lr, self._count = shapes, lr, 0
        size = sum(int(np.prod(shape)) for shape in shapes.values())
        self._master = self._draw.normal(0, 0.02, size).astype(np.float32)
        for name, cut in self._cuts().items():
            if len(shapes[name]) == 1:  # norms
                self._master[cut] += 1
        self._master = (bf16(self._master).astype(np.uint32) << 16).view(np.float32)
        self._gradient = np.zeros_like(self._master)
        self._mean, self._square = np.zeros_like(self._master), np.zeros_like(self._master)

    def step(self) -> None:
        new = self._draw.standard_normal(self._master.size, np.float32)
        self._gradient = (self._gradient + new) / 2
        self._count += 1
        self._mean += 0.1 * (self._gradient - self._mean)
        self._square += 0.05 * (self._gradient**2 - self._square)
        mean_now = self._mean / (1 - 0.9**self._count)
        square_now = self._square / (1 - 0.95**self._count)
        self._master -= self._lr * mean_now / (np.sqrt(square_now) + 1e-8)

    def tensors(self) -> TensorSet:
        bits = bf16(self._master)
        return TensorSet(
            {n: bits[cut].reshape(self._shapes[n]).copy() for n, cut in self._cuts().items()}
        )

    def _cuts(self) -> dict[str, slice]:
        ends = np.cumsum([int(np.prod(shape)) for shape in self._shapes.values()])
        begins = [0, *ends[:-1]]
        return {
            n: slice(int(b), int(e)) for n, b, e in zip(self._shapes, begins, ends, strict=True)
        }


def bf16(values: np.ndarray) -> np.ndarray:
    """Rounded to nearest, ties to even, as uint16 bits."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def llama(weights: int) -> dict[str, Any]:
    """The `config.json` of a Llama of about so many weights, eight layers deep."""
    width = max(64, round((weights / 115) ** 0.5 / 64) * 64)
    return {
        "model_type": "llama",
        "hidden_size": width,
        "intermediate_size": 3 * width,
        "num_hidden_layers": 8,
        "num_attention_heads": width // 32,
        "num_key_value_heads": width // 64,
        "vocab_size": 8192,
        "max_position_embeddings": 1024,
        "tie_word_embeddings": True,
    }


def llama_shapes(config: Mapping[str, Any]) -> Shapes:
    """The tensors of its checkpoint."""
    width, inner = config["hidden_size"], config["intermediate_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config["vocab_size"], width)
    }
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}."
        for part in "qkvo":
            rows = width if part in "qo" else width // 2
            shapes[f"{name}self_attn.{part}_proj.weight"] = (rows, width)
        shapes |= {f"{name}mlp.{part}_proj.weight": (inner, width) for part in ("gate", "up")}
        shapes[f"{name}mlp.down_proj.weight"] = (width, inner)
        shapes |= {f"{name}{at}_layernorm.weight": (width,) for at in ("input", "post_attention")}
    shapes["model.norm.weight"] = (width,)
    return shapes


def write_checkpoint(folder: Path, config: Mapping[str, Any], tensors: TensorSet) -> None:
    """What a pool's `model` names."""
    folder.mkdir(parents=True)
    write_file(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
