"""Reading weights back through a loader, on a module whose loader fuses as vLLM's do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor

from tradewind.pool.engines.vllm.readback import CannotReadBack, read_back


class Fused:
    """q, k and v in one parameter, of which this rank holds a half of each."""

    def __init__(self, rank: int = 0, dtype: torch.dtype = torch.float32) -> None:
        self.rank = rank
        self.qkv = torch.zeros(6, 4, dtype=dtype)
        self.norm = torch.zeros(4, dtype=dtype)
        self.compose = False

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        for name, loaded in weights:
            if name == "norm":
                self.norm.data.copy_(loaded)
            elif name in "qkv":
                at = 2 * "qkv".index(name)
                part = loaded.narrow(0, 2 * self.rank, 2)
                if self.compose:
                    part = part * 2
                self.qkv.narrow(0, at, 2).copy_(part)
        return set()


def checkpoint(dtype: torch.dtype = torch.bfloat16) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(0)
    return {n: torch.randn(4, 4, generator=draw).to(dtype) for n in "qkv"} | {
        "norm": torch.randn(4, generator=draw).to(dtype)
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_two_ranks_together_give_what_was_loaded(dtype: torch.dtype) -> None:
    wanted = checkpoint()
    ranks = [Fused(0, dtype), Fused(1, dtype)]
    for rank in ranks:
        rank.load_weights(wanted.items())
    for name, tensor in wanted.items():
        scratch = torch.zeros_like(tensor)
        filled = [read_back(rank, name, scratch) for rank in ranks]
        assert torch.equal(scratch, tensor)
        assert sum(filled) == (8 if name == "norm" else 16)


def test_a_weight_that_was_changed_in_the_engine_is_seen() -> None:
    model = Fused()
    model.load_weights(checkpoint().items())
    model.qkv[2, 1] = 0.5
    scratch = torch.zeros(4, 4, dtype=torch.bfloat16)
    read_back(model, "k", scratch)
    assert scratch[0, 1] == 0.5


def test_the_model_is_not_written_to() -> None:
    model = Fused()
    model.load_weights(checkpoint().items())
    before = model.qkv.clone()
    read_back(model, "q", torch.zeros(4, 4, dtype=torch.bfloat16))
    assert torch.equal(model.qkv, before)
    copied = torch.zeros(2).copy_(torch.ones(2))
    assert copied.tolist() == [1, 1], "copy_ is what it was"


def test_what_the_model_never_reads_is_not_filled() -> None:
    assert read_back(Fused(), "lm_head", torch.zeros(4, 4)) == 0


def refusal(model: Any, name: str, scratch: Tensor) -> str:
    with pytest.raises(CannotReadBack) as refused:
        read_back(model, name, scratch)
    assert torch.zeros(1).copy_(torch.ones(1)).item() == 1, "copy_ is what it was"
    return str(refused.value)


def test_a_loader_that_computes_is_refused() -> None:
    model = Fused()
    model.load_weights(checkpoint().items())
    before = model.qkv.clone()
    model.compose = True
    assert "computes" in refusal(model, "q", torch.zeros(4, 4, dtype=torch.bfloat16))
    assert torch.equal(model.qkv, before)


def test_a_parameter_that_is_gone_is_refused() -> None:
    model = Fused()
    model.qkv = torch.zeros(0)
    said = refusal(model, "q", torch.zeros(4, 4))
    assert any(word in said for word in ("narrow", "range", "length"))


def test_digits_that_the_checkpoint_cannot_hold_are_refused() -> None:
    model = Fused()
    model.norm[0] = 1 + 2**-20
    assert "cannot" in refusal(model, "norm", torch.zeros(4, dtype=torch.bfloat16))


def test_one_element_is_refused() -> None:
    assert "one element" in refusal(Fused(), "scale", torch.zeros(1))
