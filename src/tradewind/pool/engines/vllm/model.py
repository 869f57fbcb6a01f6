"""What the pool must know about a checkpoint before vLLM serves it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tradewind.pool.bounds import Bounds
from tradewind.types import GenerateRequest, UserError
from tradewind.weights.tensors import TensorSet

ARITHMETIC = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}


@dataclass(frozen=True)
class ServedModel:
    """vLLM itself would die of an id outside the vocabulary."""

    bounds: Bounds
    dtype: str
    """Of the arithmetic."""

    @classmethod
    def read(cls, folder: Path, tensors: TensorSet, dtype: str, limit: int | None) -> ServedModel:
        """From `folder/config.json`; raises UserError for what cannot be served."""
        path = folder / "config.json"
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
            text = raw.get("text_config", raw)
            vocab, context = int(text["vocab_size"]), int(text["max_position_embeddings"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"config.json cannot be used ({type(error).__name__}: {error})",
                value=str(path),
                fix="point at a complete checkpoint in Hugging Face layout",
            ) from error
        if limit is not None and limit > context:
            raise UserError(
                f"vllm.max_model_len is beyond the model's context of {context}",
                value=limit,
                fix="give at most the context",
            )
        return cls(Bounds(vocab, limit or context), choose_dtype(dtype, tensors))

    def objection(self, request: GenerateRequest) -> str | None:
        """Why a request can never be served; None if it can."""
        if any(not 0 <= i < self.bounds.vocab for i in request.stop_ids):
            return f"a stop id is outside the vocabulary of {self.bounds.vocab}"
        return self.bounds.objection(request)

    def limit(self, request: GenerateRequest) -> int:
        """Tokens that may be sampled for it."""
        return min(request.max_tokens, self.bounds.context - len(request.prompt_ids))

    def check_scored(self, ids: tuple[int, ...]) -> None:
        """Raises UserError for a sequence that cannot be scored: vLLM samples an id after it."""
        self.bounds.check_scored(ids, self.bounds.context - 1)


def choose_dtype(wanted: str, tensors: TensorSet) -> str:
    """`auto` is the dtype of the checkpoint, or float32 if it has several.

    Raises UserError for arithmetic in which the checkpoint would lose bits: what is served must be
    byte-equal to what was published.
    """
    tags = {tensors.tag(name) for name in tensors}
    if odd := tags - ARITHMETIC.keys():
        raise UserError(
            "vLLM as a pool serves bf16, fp16 and fp32 checkpoints",
            value=sorted(odd),
            fix="use the checkpoint that is trained, without quantisation",
        )
    natural = ARITHMETIC[next(iter(tags))] if len(tags) == 1 else "float32"
    chosen = natural if wanted == "auto" else wanted
    if chosen not in (natural, "float32"):
        raise UserError(
            f"the checkpoint would lose bits in {chosen} arithmetic",
            value=sorted(tags),
            fix=f'set dtype to "auto", which is {natural} here',
        )
    return chosen
