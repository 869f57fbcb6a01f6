"""The weights that are being served: loaded, swapped and handed out under checkpoint names."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from tradewind.pool.engines.embedded.config import ModelShape
from tradewind.pool.engines.embedded.stack import (
    TORCH_DTYPES,
    Array,
    Layout,
    Stack,
    Value,
    bits_of,
    tensor_of,
)
from tradewind.types import RefusedWeights, UserError
from tradewind.weights.tensors import TensorSet

EMBED, HEAD, NORM = "model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"


@dataclass(frozen=True)
class ExpertStacks:
    """One expert's feed-forward block."""

    gate_up: Stack
    down: Stack


@dataclass(frozen=True)
class LayerStacks:
    """One decoder layer. Exactly one of (`gate_up`, `down`) and (`router`, `experts`) is there."""

    norm_in: Stack
    qkv: Stack
    qkv_bias: Stack | None
    norm_q: Stack | None
    norm_k: Stack | None
    out: Stack
    out_bias: Stack | None
    norm_mid: Stack
    gate_up: Stack | None
    gate_up_bias: Stack | None
    down: Stack | None
    down_bias: Stack | None
    router: Stack | None
    experts: tuple[ExpertStacks, ...]


class ServedWeights:
    """All stacks of a model. Reading a snapshot and committing a swap exclude each other."""

    def __init__(
        self, shape: ModelShape, dtype: torch.dtype, head: tuple[Layout, torch.dtype]
    ) -> None:
        self._model, self._dtype = shape, dtype
        self._stacks: list[Stack] = []
        self._lock = threading.Lock()
        self._shapes: dict[str, tuple[int, ...]] = {}
        self.embed = self._plain(EMBED)
        self.layers = tuple(self._layer(shape, i) for i in range(shape.layers))
        self.norm = self._plain(NORM)
        self.head = self._stack([EMBED if shape.tied else HEAD], *head)

    def _stack(self, names: list[str], layout: Layout, dtype: torch.dtype | None = None) -> Stack:
        stack = Stack(names, layout, dtype or self._dtype)
        self._stacks.append(stack)
        return stack

    def _plain(self, *names: str) -> Stack:
        return self._stack(list(names), Layout.PLAIN)

    def _matrix(self, *names: str) -> Stack:
        return self._stack(list(names), Layout.PACKED)

    def _layer(self, shape: ModelShape, i: int) -> LayerStacks:
        at = f"model.layers.{i}."
        attn, mlp = at + "self_attn.", at + "mlp."
        sparse = i in shape.moe_layers
        qkv = [f"{attn}{x}_proj" for x in "qkv"]
        gate_up = [f"{mlp}{x}_proj" for x in ("gate", "up")]
        biased = shape.mlp_bias and not sparse
        return LayerStacks(
            norm_in=self._plain(at + "input_layernorm.weight"),
            qkv=self._matrix(*(f"{x}.weight" for x in qkv)),
            qkv_bias=self._plain(*(f"{x}.bias" for x in qkv)) if shape.qkv_bias else None,
            norm_q=self._plain(attn + "q_norm.weight") if shape.qk_norm else None,
            norm_k=self._plain(attn + "k_norm.weight") if shape.qk_norm else None,
            out=self._matrix(attn + "o_proj.weight"),
            out_bias=self._plain(attn + "o_proj.bias") if shape.out_bias else None,
            norm_mid=self._plain(at + "post_attention_layernorm.weight"),
            gate_up=None if sparse else self._matrix(*(f"{x}.weight" for x in gate_up)),
            gate_up_bias=self._plain(*(f"{x}.bias" for x in gate_up)) if biased else None,
            down=None if sparse else self._matrix(mlp + "down_proj.weight"),
            down_bias=self._plain(mlp + "down_proj.bias") if biased else None,
            router=self._matrix(mlp + "gate.weight") if sparse else None,
            experts=self._experts(shape, mlp) if sparse else (),
        )

    def _experts(self, shape: ModelShape, mlp: str) -> tuple[ExpertStacks, ...]:
        assert shape.experts is not None
        return tuple(
            ExpertStacks(
                gate_up=self._matrix(
                    *(f"{mlp}experts.{e}.{x}_proj.weight" for x in ("gate", "up"))
                ),
                down=self._matrix(f"{mlp}experts.{e}.down_proj.weight"),
            )
            for e in range(shape.experts.count)
        )

    def load(self, found: TensorSet) -> None:
        """Loads a checkpoint. `UserError` for a missing, unread or unusable tensor.

        A copy of the head beside a tied embedding is ignored, as transformers does.
        """
        wanted = {name for stack in self._stacks for name in stack.names}
        if missing := sorted(wanted - found.keys()):
            fix = "check that config.json belongs to these weights"
            raise UserError("the checkpoint lacks tensors", value=missing[:3], fix=fix)
        spare = {n for n in found.keys() - wanted if not n.endswith("inv_freq") and n != HEAD}
        if spare:
            fix = "use a checkpoint of plain Llama, Qwen2, Qwen3 or Qwen3-MoE"
            raise UserError("the engine would not read", value=sorted(spare)[:3], fix=fix)
        for stack in self._stacks:
            arrays = {name: found[name] for name in stack.names}
            for name, array in arrays.items():
                self._check_dtype(name, array)
                self._shapes[name] = array.shape
                if array.shape != (expected := shape_in(self._model, name)):
                    fix = f"check that config.json belongs to these weights: it says {expected}"
                    raise UserError(f"{name} has another shape", value=array.shape, fix=fix)
            stack.value = stack.build([tensor_of(a) for a in arrays.values()])

    def stage(self, changed: Mapping[str, Array]) -> list[tuple[Stack, Value]]:
        """Builds what `commit` will exchange, while the old weights go on serving.

        Raises `RefusedWeights` for a name, shape or dtype that does not fit; nothing is applied.
        """
        for name, array in changed.items():
            if name not in self._shapes:
                fix = "publish deltas of the checkpoint that this pool serves"
                raise RefusedWeights("the model has no such tensor", value=name, fix=fix)
            if array.shape != self._shapes[name]:
                fix = f"publish it with shape {self._shapes[name]}"
                raise RefusedWeights(f"{name} has another shape", value=array.shape, fix=fix)
            self._check_dtype(name, array)
        with torch.inference_mode():
            return [
                (stack, stack.rebuild({n: changed[n] for n in stack.names if n in changed}))
                for stack in self._stacks
                if not changed.keys().isdisjoint(stack.names)
            ]

    def commit(self, staged: list[tuple[Stack, Value]]) -> None:
        """Exchanges references: microseconds, whatever the size of the model."""
        with self._lock:
            for stack, value in staged:
                stack.value = value

    def bits(self) -> dict[str, Array]:
        """Copies of all served tensors as wire bits, of one moment; commits wait, decoding not."""
        with self._lock:
            values = [(stack, stack.value) for stack in self._stacks]
        found: dict[str, Array] = {}
        with torch.inference_mode():
            for stack, value in values:
                for name, part in zip(stack.names, stack.parts(value), strict=True):
                    if name in found:  # tied: table and head must not drift apart
                        assert torch.equal(part, tensor_of(found[name])), f"{name} is torn"
                        continue
                    array = bits_of(part, part.dtype)
                    found[name] = array if value.data.is_mkldnn else array.copy()
        return dict(sorted(found.items()))

    def _check_dtype(self, name: str, array: Array) -> None:
        stored = TORCH_DTYPES.get(array.dtype)
        if stored is None:
            fix = "serve bf16, fp16 or fp32 weights"
            raise RefusedWeights(f"{name} has an unknown dtype", value=str(array.dtype), fix=fix)
        if self._dtype != torch.float32 and stored != self._dtype:
            fix = 'open the engine with dtype "float32"'
            what = f"{name} would lose bits in {self._dtype} arithmetic"
            raise RefusedWeights(what, value=str(array.dtype), fix=fix)


def shape_in(model: ModelShape, name: str) -> tuple[int, ...]:
    """The shape that a checkpoint tensor must have."""
    q, kv = model.heads * model.head_dim, model.kv_heads * model.head_dim
    width = model.width
    if model.experts is not None and ".experts." in name:
        width = model.experts.width
    module, kind = name.rsplit(".", 2)[-2:]
    out_in = {
        "embed_tokens": (model.vocab, model.hidden),
        "lm_head": (model.vocab, model.hidden),
        "q_proj": (q, model.hidden),
        "k_proj": (kv, model.hidden),
        "v_proj": (kv, model.hidden),
        "o_proj": (model.hidden, q),
        "gate_proj": (width, model.hidden),
        "up_proj": (width, model.hidden),
        "down_proj": (model.hidden, width),
        "gate": (0 if model.experts is None else model.experts.count, model.hidden),
        "q_norm": (model.head_dim,),
        "k_norm": (model.head_dim,),
    }.get(module, (model.hidden,))
    return out_in[:1] if kind == "bias" else out_in
