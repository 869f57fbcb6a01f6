"""A checkpoint's `config.json` as the few numbers that the engine needs, or a clear refusal."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tradewind.pool.bounds import Bounds
from tradewind.types import UserError

FAMILIES = ("llama", "qwen2", "qwen3", "qwen3_moe")
_FIX = f"use a full-attention checkpoint of one of the families {', '.join(FAMILIES)}"


@dataclass(frozen=True)
class Rope:
    """Rotary position embedding; `llama3` is None for the plain kind."""

    theta: float
    llama3: tuple[float, float, float, float] | None = None
    """(factor, low_freq_factor, high_freq_factor, original context) of Llama 3.1's scaling."""


@dataclass(frozen=True)
class Experts:
    """Mixture of experts (Qwen3-MoE)."""

    count: int
    per_token: int
    width: int
    renormalise: bool
    """Whether the chosen experts' weights are scaled to sum to 1 (`norm_topk_prob`)."""


@dataclass(frozen=True)
class ModelShape:
    """What the arithmetic needs to know about a decoder."""

    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    width: int
    """Of the dense feed-forward block."""
    vocab: int
    context: int
    """Most tokens of one sequence (`max_position_embeddings`)."""
    eps: float
    rope: Rope
    tied: bool
    qkv_bias: bool
    out_bias: bool
    mlp_bias: bool
    qk_norm: bool
    experts: Experts | None
    moe_layers: frozenset[int]

    @property
    def bounds(self) -> Bounds:
        """What it can be asked for."""
        return Bounds(self.vocab, self.context)


def read_shape(folder: Path) -> ModelShape:
    """Reads `folder/config.json`; raises `UserError` for anything the engine cannot honour."""
    if not folder.is_dir():
        raise UserError("the model folder does not exist", value=str(folder), fix="check its path")
    path = folder / "config.json"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        fix = "point at a folder in Hugging Face layout"
        raise UserError("the model folder has no config.json", value=str(folder), fix=fix) from None
    except ValueError as error:
        fix = "copy the file again"
        raise UserError(f"config.json is not JSON ({error})", value=str(path), fix=fix) from None
    try:
        return shape_of(raw)
    except KeyError as error:
        fix = "use the complete config.json of the checkpoint"
        raise UserError("config.json lacks a key", value=str(error.args[0]), fix=fix) from None


def shape_of(raw: dict[str, Any]) -> ModelShape:
    """The shape that a parsed `config.json` describes; `KeyError` names a missing key."""
    family = raw.get("model_type")
    if family not in FAMILIES:
        raise UserError("the engine cannot read this model family", value=family, fix=_FIX)
    _refuse_options(raw)
    heads, layers = int(raw["num_attention_heads"]), int(raw["num_hidden_layers"])
    biased = bool(raw.get("attention_bias", False))
    experts, moe_layers = _experts(raw, layers)
    return ModelShape(
        family=family,
        layers=layers,
        hidden=int(raw["hidden_size"]),
        heads=heads,
        kv_heads=int(raw.get("num_key_value_heads") or heads),
        head_dim=int(raw.get("head_dim") or int(raw["hidden_size"]) // heads),
        width=int(raw["intermediate_size"]),
        vocab=int(raw["vocab_size"]),
        context=int(raw["max_position_embeddings"]),
        eps=float(raw.get("rms_norm_eps", 1e-6)),
        rope=_rope(raw),
        tied=bool(raw.get("tie_word_embeddings", False)),
        qkv_bias=biased or family == "qwen2",
        out_bias=biased and family != "qwen2",
        mlp_bias=bool(raw.get("mlp_bias", False)) and family == "llama",
        qk_norm=family in ("qwen3", "qwen3_moe"),
        experts=experts,
        moe_layers=moe_layers,
    )


def _refuse_options(raw: dict[str, Any]) -> None:
    """Raises for options that would change the arithmetic and are not implemented."""
    if raw.get("hidden_act", "silu") != "silu":
        raise UserError("the activation is not supported", value=raw["hidden_act"], fix=_FIX)
    if raw.get("quantization_config"):
        fix = "use the unquantised checkpoint (bf16, fp16 or fp32)"
        raise UserError("the checkpoint is quantised", value=raw["quantization_config"], fix=fix)
    kinds = set(raw.get("layer_types") or ()) - {"full_attention"}
    if kinds or (raw.get("use_sliding_window") and raw.get("sliding_window")):
        raise UserError("some layers do not use full attention", value=sorted(kinds), fix=_FIX)
    if int(raw["num_attention_heads"]) % int(raw.get("num_key_value_heads") or 1):
        value = raw["num_key_value_heads"]
        raise UserError("kv heads do not divide the heads", value=value, fix="check config.json")


def _rope(raw: dict[str, Any]) -> Rope:
    """From `rope_parameters` (transformers 5) or `rope_theta` and `rope_scaling` (before)."""
    given = {**(raw.get("rope_scaling") or {}), **(raw.get("rope_parameters") or {})}
    kind = given.get("rope_type", given.get("type", "default"))
    theta = float(given.get("rope_theta", raw.get("rope_theta", 10000.0)))
    share = given.get("partial_rotary_factor", raw.get("partial_rotary_factor", 1.0))
    if kind not in ("default", "llama3") or share not in (None, 1, 1.0):
        raise UserError("the rotary embedding is not supported", value=given, fix=_FIX)
    if kind == "default":
        return Rope(theta)
    factors = (given["factor"], given["low_freq_factor"], given["high_freq_factor"])
    original = given["original_max_position_embeddings"]
    return Rope(theta, (*(float(f) for f in factors), float(original)))  # type: ignore[arg-type]


def _experts(raw: dict[str, Any], layers: int) -> tuple[Experts | None, frozenset[int]]:
    if raw["model_type"] != "qwen3_moe":
        return None, frozenset()
    count = int(raw.get("num_experts") or raw["num_local_experts"])
    experts = Experts(
        count=count,
        per_token=int(raw["num_experts_per_tok"]),
        width=int(raw["moe_intermediate_size"]),
        renormalise=bool(raw.get("norm_topk_prob", False)),
    )
    dense = set(raw.get("mlp_only_layers") or ())
    every = int(raw.get("decoder_sparse_step", 1))
    sparse = (i for i in range(layers) if i not in dense and count and (i + 1) % every == 0)
    return experts, frozenset(sparse)
