"""A random Llama, and what a training step makes of it."""

from __future__ import annotations

import numpy as np

from tradewind.weights.tensors import Array

WIDTH, INNER, VOCAB, LAYERS, HEAD = 128, 192, 320, 2, 32


def random_llama() -> dict[str, Array]:
    """200,000 bf16 parameters; attention heads of 32 are the smallest that vLLM takes."""
    draw = np.random.default_rng(3)
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCAB, WIDTH)}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        shapes |= {
            f"{at}self_attn.{part}_proj.weight": (WIDTH if part in "qo" else WIDTH // 2, WIDTH)
            for part in "qkvo"
        }
        shapes |= {f"{at}mlp.{part}_proj.weight": (INNER, WIDTH) for part in ("gate", "up")}
        shapes[f"{at}mlp.down_proj.weight"] = (WIDTH, INNER)
        shapes |= {f"{at}{part}_layernorm.weight": (WIDTH,) for part in ("input", "post_attention")}
    shapes["model.norm.weight"] = (WIDTH,)
    return {name: _draw(draw, shape) for name, shape in shapes.items()}


def _draw(draw: np.random.Generator, shape: tuple[int, ...]) -> Array:
    spread, middle = (0.3, 0.0) if len(shape) > 1 else (0.2, 1.0)
    values = (draw.standard_normal(shape, np.float32) * spread + middle).astype(np.float32)
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def stepped(tensors: dict[str, Array], seed: int) -> dict[str, Array]:
    """As after a training step: of every tensor a hundredth of the weights has moved."""
    draw = np.random.default_rng(seed)
    after = {}
    for name, array in tensors.items():
        moved = array.copy()
        flat = moved.reshape(-1)
        flat[draw.choice(flat.size, max(1, flat.size // 100), replace=False)] ^= 0x0020
        after[name] = moved
    return after


CPU = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",  # two would wait for each other, on a busy machine for long
}
"""Environment of vLLM in these tests."""
