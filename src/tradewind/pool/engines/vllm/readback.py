"""Reads a vLLM model's weights under checkpoint names, through its own loader, run backwards.

    load_weights([(name, scratch)]) ──► the model's map of names, fusion, tensor-parallel slices
                                    ──► the last `copy_` of each slice, with its two sides exchanged

The loader knows which part of which fused parameter a checkpoint tensor is, and this rank's share
of it. It says so in its last step, `parameter.copy_(slice of what was loaded)`; while `copy_` is
exchanged, that step fills the scratch from the parameter. So nothing here knows any architecture.
Where a loader does more than slice and copy (packed or quantised layouts) it is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


class CannotReadBack(RuntimeError):
    """This model's loader is not one that slices and copies."""


def read_back(model: Any, name: str, scratch: Tensor) -> int:
    """Fills `scratch` with what `model` multiplies under checkpoint name `name`.

    scratch: of the checkpoint's shape and dtype, on the CPU. Returns the number of elements that
    this rank filled: fewer than all with tensor parallelism, 0 for a tensor that it does not read.
    Raises CannotReadBack; the model is not written to.
    """
    if scratch.numel() == 1:
        raise CannotReadBack(f"{name} has one element, which loaders write in another way")
    with _exchanged_copy(scratch) as filled, torch.no_grad():
        try:
            model.load_weights([(name, scratch)])
        except CannotReadBack:
            raise
        except Exception as error:  # boundary: other people's loaders raise anything
            raise CannotReadBack(f"{name}: {type(error).__name__}: {error}") from error
    return sum(filled)


@contextmanager
def _exchanged_copy(scratch: Tensor) -> Iterator[list[int]]:
    original = Tensor.copy_
    home = scratch.untyped_storage().data_ptr()
    filled: list[int] = []

    def copy_back(parameter: Tensor, loaded: Tensor, *_: Any, **__: Any) -> Tensor:
        if loaded.untyped_storage().data_ptr() != home:
            raise CannotReadBack("the loader computes with what it loads")
        if parameter.shape != loaded.shape or not parameter.is_floating_point():
            raise CannotReadBack("the loader's last copy changes the shape or the kind of number")
        value = parameter.detach().to(loaded.device)
        stored = value.to(loaded.dtype)
        if not torch.equal(stored.to(value.dtype), value):
            raise CannotReadBack(f"{parameter.dtype} holds what {loaded.dtype} cannot")
        original(loaded, stored)
        filled.append(loaded.numel())
        return parameter

    Tensor.copy_ = copy_back  # type: ignore[method-assign,assignment]
    try:
        yield filled
    finally:
        Tensor.copy_ = original  # type: ignore[method-assign]
