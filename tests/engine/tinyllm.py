"""Tiny random checkpoints, made on the spot, and a listener that collects chunks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tradewind.pool.engines.embedded.engine import EmbeddedEngine
from tradewind.types import GenerateChunk, GenerateRequest, Priority

VOCAB = 300
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {"tie_word_embeddings": True}),
    "llama-biased": (
        "Llama",
        {"attention_bias": True, "mlp_bias": True, "rope_parameters": LLAMA3},
    ),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {"head_dim": 16, "tie_word_embeddings": True}),
    "qwen3_moe": (
        "Qwen3Moe",
        {
            "head_dim": 16,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 24,
            "norm_topk_prob": True,
            "mlp_only_layers": [1],
        },
    ),
    "qwen3_moe-unscaled": (
        "Qwen3Moe",
        {"head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24},
    ),
}


def make_model(kind: str, folder: Path, *, dtype: torch.dtype = torch.float32, **sizes: int) -> Any:
    """Saves a random checkpoint of `kind` and returns the transformers model."""
    import transformers

    name, extra = KINDS[kind]
    torch.manual_seed(7)
    config = getattr(transformers, f"{name}Config")(**{**SIZES, **extra, **sizes})
    model = getattr(transformers, f"{name}ForCausalLM")(config).to(dtype).eval()
    with torch.no_grad():  # biases and norms start as zeros and ones, which would hide their loss
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(folder)
    return model


class Listener:
    """Collects the chunks of requests; `wait` returns when all that were asked have ended."""

    def __init__(self, engine: EmbeddedEngine) -> None:
        self.engine = engine
        self.chunks: dict[str, list[GenerateChunk]] = {}
        self.ended: list[str] = []
        self.hooks: list[Callable[[str, GenerateChunk], None]] = []
        self._bell = threading.Condition()

    def ask(self, name: str, prompt: list[int] | tuple[int, ...], n: int, **more: Any) -> str:
        options = {"stop_ids": (), "temperature": 0.0, "priority": Priority.USER} | more
        request = GenerateRequest(
            request_id=name, prompt_ids=tuple(prompt), max_tokens=n, **options
        )
        self.chunks[name] = []
        self.engine.submit(request, lambda chunk: self._hear(name, chunk))
        return name

    def _hear(self, name: str, chunk: GenerateChunk) -> None:
        for hook in self.hooks:
            hook(name, chunk)
        with self._bell:
            self.chunks[name].append(chunk)
            if chunk.finish_reason or chunk.error:
                self.ended.append(name)
            self._bell.notify_all()

    def until(self, condition: Callable[[], bool]) -> None:
        with self._bell:
            assert self._bell.wait_for(condition, timeout=60), "the engine was silent for 60 s"

    def wait(self) -> None:
        self.until(lambda: len(self.ended) == len(self.chunks))

    def ids(self, name: str) -> list[int]:
        return [i for chunk in self.chunks[name] for i in chunk.ids]

    def logprobs(self, name: str) -> list[float]:
        return [p for chunk in self.chunks[name] for p in chunk.logprobs]

    def versions(self, name: str) -> list[int]:
        return [chunk.version for chunk in self.chunks[name] for _ in chunk.ids]

    def last(self, name: str) -> GenerateChunk:
        return self.chunks[name][-1]
