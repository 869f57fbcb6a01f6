"""The decoder: ids of one step in, next-id logits out."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, silu

from tradewind.pool.engines.embedded.attention import attend
from tradewind.pool.engines.embedded.config import ModelShape
from tradewind.pool.engines.embedded.rope import RotaryTable, rotate
from tradewind.pool.engines.embedded.served import LayerStacks, ServedWeights
from tradewind.pool.engines.embedded.stack import Stack, linear
from tradewind.pool.engines.embedded.step import Step


class Model:
    """Llama, Qwen2, Qwen3 and Qwen3-MoE: pre-norm, rotary, grouped queries, gated SiLU."""

    def __init__(self, shape: ModelShape, weights: ServedWeights, dtype: torch.dtype) -> None:
        self.shape, self.weights, self.dtype = shape, weights, dtype
        self._rotary = RotaryTable(shape.rope, shape.head_dim, dtype)

    def forward(self, step: Step) -> Tensor:
        """Logits of the rows to be sampled: (S, vocab) in fp32."""
        x = self.weights.embed.data[step.ids].to(self.dtype)
        rotation = self._rotary.at(step.positions, step.longest)
        for i, layer in enumerate(self.weights.layers):
            x = x.add_(self._attention(layer, i, x, step, rotation))
            x = x.add_(self._feed_forward(layer, x))
        if step.last_rows is not None:
            x = x[step.last_rows]
            if len(x) == 0:  # a part of a prompt, nothing to sample yet
                return x.new_empty(0, self.shape.vocab)
        return linear(self._norm(x, self.weights.norm).float(), self.weights.head)

    def _norm(self, x: Tensor, weight: Stack) -> Tensor:
        return rms_norm(x, (x.shape[-1],), weight.data, self.shape.eps)

    def _attention(
        self, layer: LayerStacks, i: int, x: Tensor, step: Step, rotation: tuple[Tensor, Tensor]
    ) -> Tensor:
        s = self.shape
        fused = linear(self._norm(x, layer.norm_in), layer.qkv, layer.qkv_bias)
        heads = fused.view(len(x), s.heads + 2 * s.kv_heads, s.head_dim)
        rotated = heads[:, : s.heads + s.kv_heads]
        if layer.norm_q is not None and layer.norm_k is not None:
            q, k = torch.split(rotated, [s.heads, s.kv_heads], dim=1)
            rotated = torch.cat((self._norm(q, layer.norm_q), self._norm(k, layer.norm_k)), dim=1)
        heads[:, : s.heads + s.kv_heads] = rotate(rotated, *rotation)
        kv = heads[:, s.heads :].view(len(x), 2, s.kv_heads, s.head_dim)
        mixed = attend(step, i, heads[:, : s.heads], kv)
        return linear(mixed, layer.out, layer.out_bias)

    def _feed_forward(self, layer: LayerStacks, x: Tensor) -> Tensor:
        h = self._norm(x, layer.norm_mid)
        if layer.router is not None:
            return self._mixture(layer, h)
        assert layer.gate_up is not None and layer.down is not None
        fused = linear(h, layer.gate_up, layer.gate_up_bias)
        return linear(_gated(fused), layer.down, layer.down_bias)

    def _mixture(self, layer: LayerStacks, h: Tensor) -> Tensor:
        """Each row goes through its best experts, weighted by the router's probabilities."""
        assert self.shape.experts is not None and layer.router is not None
        scores = linear(h, layer.router).float().softmax(dim=-1)
        share, chosen = scores.topk(self.shape.experts.per_token, dim=-1)
        if self.shape.experts.renormalise:
            share = share / share.sum(dim=-1, keepdim=True)
        share, out = share.to(h.dtype), torch.zeros_like(h)
        for e in sorted(set(chosen.flatten().tolist())):
            rows, place = (chosen == e).nonzero(as_tuple=True)
            expert = layer.experts[e]
            result = linear(_gated(linear(h[rows], expert.gate_up)), expert.down)
            out.index_add_(0, rows, result * share[rows, place].unsqueeze(1))
        return out


def _gated(fused: Tensor) -> Tensor:
    """silu(gate) * up; fused: (N, 2W), gate first. Returns (N, W)."""
    gate, up = fused.chunk(2, dim=-1)
    return silu(gate).mul_(up)
