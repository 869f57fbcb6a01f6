"""The model being trained: a folder of safetensors -> log-probabilities of a forest's entries."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar

from tradewind.trainer import attention
from tradewind.trainer.forest import Forest
from tradewind.trainer.head import ChunkedLogProbs
from tradewind.types import UserError


class Policy(nn.Module):
    """transformers' decoder with forest attention and a chunked head.

    Any causal family whose attention goes through transformers' attention interface serves:
    Llama, Qwen2, Qwen3 and their relatives; what would be computed otherwise than transformers
    does is refused. Parameters hold bf16-exact values.
    """

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner
        inner.config._attn_implementation = attention.NAME
        self._shared = inner.config.num_attention_heads // inner.config.num_key_value_heads
        if _is_windowed(inner.config):
            raise UserError(
                "the trainer has no sliding-window attention",
                value=inner.config.model_type,
                fix="use a model with full attention in every layer",
            )
        if _is_mixture(inner.config):
            raise UserError(
                "the trainer trains no mixture of experts: it would choose others than the engine "
                "did, and no record holds the engine's choices",
                value=inner.config.model_type,
                fix="train a dense model; pools serve mixtures",
            )

    @classmethod
    def open(cls, folder: Path, dtype: torch.dtype, recompute: bool = False) -> Policy:
        """Load a checkpoint folder; weights are rounded to bf16 whatever they were stored in.

        Raises:
            UserError: the folder or its config is missing or not a causal language model.
        """
        if not (folder / "config.json").exists():
            raise UserError(
                "the model folder has no config.json",
                value=str(folder),
                fix="point [model] path at a folder of safetensors with its config.json",
            )
        disable_progress_bar()  # type: ignore[no-untyped-call]  # logs are plain lines
        try:
            inner = AutoModelForCausalLM.from_pretrained(
                str(folder), dtype=torch.bfloat16, local_files_only=True, use_safetensors=True
            )
        except (OSError, ValueError, KeyError, json.JSONDecodeError) as error:
            raise UserError(
                "the model folder cannot be read",
                value=f"{folder}: {error}",
                fix="check that it holds a causal language model that transformers knows",
            ) from error
        return cls.wrap(inner, dtype, recompute)

    @classmethod
    def wrap(cls, inner: Any, dtype: torch.dtype, recompute: bool = False) -> Policy:
        """Take a transformers model; round its weights to bf16 and store them as `dtype`."""
        rope = {name: buffer.clone() for name, buffer in inner.named_buffers()}
        inner = inner.to(torch.bfloat16).to(dtype)
        for name, buffer in inner.named_buffers():
            buffer.data = rope[name].data  # rotary frequencies stay as they were computed, in fp32
        _check_head(inner)
        if recompute:
            inner.activation_checkpointing_enable({"use_reentrant": False})
        inner.train()
        return cls(inner)

    def forward(self, forest: Forest) -> tuple[Tensor, Tensor]:
        """(log-probability of each entry, fp32 [N]; entropy of each row in nats, fp32 [R])."""
        hidden = self.inner.model(
            input_ids=forest.ids[None],
            position_ids=forest.positions[None],
            use_cache=False,
            cuts=attention.cuts(forest.blocks, self._shared, self.inner.dtype),
        ).last_hidden_state[0]
        logp, entropy = ChunkedLogProbs.apply(  # type: ignore[no-untyped-call]
            hidden[forest.rows],
            self.inner.lm_head.weight,
            forest.row_temperature,
            forest.entry_row,
            forest.target,
        )
        return logp, entropy

    def exact(self) -> Policy:
        """What computes the same values in fp32: a copy, 4 bytes for each, unless this does."""
        if self.inner.dtype == torch.float32:
            return self
        return Policy(copy.deepcopy(self.inner).float())

    def layers(self) -> Iterator[nn.Module]:
        """The decoder layers, in order; FSDP shards one at a time."""
        yield from self.inner.model.layers

    def trained(self) -> list[tuple[str, nn.Parameter]]:
        """(checkpoint name, parameter), tied ones once, in the model's order."""
        return list(self.inner.named_parameters())


def _is_mixture(config: Any) -> bool:
    names = ("num_experts", "num_local_experts", "n_routed_experts")  # of several families
    return any(getattr(config, name, None) for name in names)


def _is_windowed(config: Any) -> bool:
    """By layer, or all of them, as Mistral's first models."""
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    return kinds != {"full_attention"} or bool(getattr(config, "sliding_window", None))


@torch.no_grad()
def _check_head(inner: Any) -> None:
    """`forward` multiplies by the head's matrix and does nothing else: raises UserError for a model
    whose logits are scaled, capped or shifted after that, as those of Granite, Cohere and Gemma 2.
    """
    ids = torch.tensor([[0, 1]])
    hidden = inner.model(input_ids=ids, use_cache=False).last_hidden_state
    logits = inner(input_ids=ids, use_cache=False).logits.float()
    product = nn.functional.linear(hidden, inner.lm_head.weight).float()
    if not torch.allclose(logits, product, rtol=0.0, atol=1e-3 * float(product.abs().max())):
        raise UserError(
            "the trainer's head is a product, and this model does more than that to its logits",
            value=inner.config.model_type,
            fix="use a model whose logits are the product of hidden state and head",
        )
