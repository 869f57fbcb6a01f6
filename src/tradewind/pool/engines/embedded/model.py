"""The decoder: ids of one step in, next-id logits out."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import rms_norm

from tradewind.pool.engines.embedded.attention import queries_and_kv, read_prompt
from tradewind.pool.engines.embedded.config import ModelShape
from tradewind.pool.engines.embedded.operations import Operations
from tradewind.pool.engines.embedded.served import LayerStacks, ServedWeights
from tradewind.pool.engines.embedded.stack import Stack, linear
from tradewind.pool.engines.embedded.step import Step


class Model:
    """Llama, Qwen2, Qwen3 and Qwen3-MoE: pre-norm, rotary, grouped queries, gated SiLU."""

    def __init__(
        self, shape: ModelShape, weights: ServedWeights, dtype: torch.dtype, operations: Operations
    ) -> None:
        self.shape, self.weights, self.dtype = shape, weights, dtype
        self._do = operations

    def forward(self, step: Step) -> Tensor:
        """Logits of the rows to be sampled: (S, vocab) in fp32."""
        do, delta = self._do, None
        do.begin(step)
        x = self.weights.embed.data[step.ids].to(self.dtype)
        for i, layer in enumerate(self.weights.layers):
            h = do.add_and_normalise(x, delta, layer.norm_in)
            h = do.add_and_normalise(x, self._attention(layer, i, h, step), layer.norm_mid)
            delta = self._feed_forward(layer, h)
        assert delta is not None, "a model has layers"
        if step.last_rows is not None:
            x, delta = x[step.last_rows], delta[step.last_rows]
            if len(x) == 0:  # a part of a prompt, nothing to sample yet
                return torch.empty(0, self.shape.vocab)
        return do.logits(do.add_and_normalise(x, delta, self.weights.norm), self.weights.head)

    def _attention(self, layer: LayerStacks, i: int, h: Tensor, step: Step) -> Tensor:
        s = self.shape
        heads = linear(h, layer.qkv, layer.qkv_bias).view(len(h), -1, s.head_dim)
        self._normalise_heads(layer, heads)
        self._do.rotate(heads)
        out = heads.new_empty(len(h), s.heads, s.head_dim)
        for span in step.decodes:
            rows = slice(span.start, span.start + span.count)
            self._do.decode(span, i, heads[rows], out[rows])
        for prompt in step.prompts:
            rows = slice(prompt.start, prompt.start + len(prompt.rows) * prompt.count)
            out[rows] = read_prompt(prompt, i, *queries_and_kv(heads[rows], s))
        return linear(out.view(len(h), -1), layer.out, layer.out_bias)

    def _normalise_heads(self, layer: LayerStacks, heads: Tensor) -> None:
        """Queries and keys of each head, where the family does so (Qwen3)."""
        q = self.shape.heads
        for norm, some in (
            (layer.norm_q, heads[:, :q]),
            (layer.norm_k, heads[:, q : q + self.shape.kv_heads]),
        ):
            if norm is not None:
                some.copy_(rms_norm(some, (some.shape[-1],), norm.data, self.shape.eps))

    def _feed_forward(self, layer: LayerStacks, h: Tensor) -> Tensor:
        if layer.router is not None:
            return self._mixture(layer, layer.router, h)
        assert layer.gate_up is not None and layer.down is not None
        fused = linear(h, layer.gate_up, layer.gate_up_bias)
        return linear(self._do.gate(fused), layer.down, layer.down_bias)

    def _mixture(self, layer: LayerStacks, router: Stack, h: Tensor) -> Tensor:
        """Each row goes through its best experts, weighted by the router's probabilities."""
        assert self.shape.experts is not None
        scores = linear(h, router).float().softmax(dim=-1)
        share, chosen = scores.topk(self.shape.experts.per_token, dim=-1)
        if self.shape.experts.renormalise:
            share = share / share.sum(dim=-1, keepdim=True)
        share, out = share.to(h.dtype), torch.zeros_like(h)
        for e in sorted(set(chosen.flatten().tolist())):
            rows, place = (chosen == e).nonzero(as_tuple=True)
            expert = layer.experts[e]
            result = linear(self._do.gate(linear(h[rows], expert.gate_up)), expert.down)
            out.index_add_(0, rows, result * share[rows, place].unsqueeze(1))
        return out
