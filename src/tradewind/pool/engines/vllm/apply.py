"""Two ways of giving verified tensors to a vLLM model; runs in vLLM's worker process.

sparse   changed positions ──► load_checkpoint_weight_patches ──► the loader, with NaN for
                               what stays; in place, for layouts that the loader can write to
dense    all tensors ──► layerwise reload ──► loader, packing and all, as at the first load
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tradewind.pool.engines.vllm.parcel import Item
from tradewind.weights.tensors import Array

DTYPES = {
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "F32": torch.float32,
    "F64": torch.float64,
}


def tensor_of(item: Item) -> Tensor:
    """`values` as torch sees them, without a copy."""
    return as_torch(item.values, item.tag)


def as_torch(array: Array, tag: str) -> Tensor:
    """A tensor over the same memory; numpy has no bf16, so its bits are reinterpreted."""
    if tag == "BF16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    tensor = torch.from_numpy(array)
    assert tensor.dtype == DTYPES.get(tag, tensor.dtype), f"{tag} is not {tensor.dtype}"
    return tensor


def apply_sparse(model: Any, items: Sequence[Item], device: torch.device) -> None:
    """Overwrites the given positions. Raises what vLLM's loader raises; a part may be written."""
    from vllm.model_executor.model_loader import checkpoint_weight_patch as patching

    patches = []
    for item in items:
        assert item.indices is not None, "a sparse parcel has positions"
        patches.append(
            patching.CheckpointWeightPatch(
                name=item.name,
                shape=item.shape,
                dtype=DTYPES[item.tag],
                values=tensor_of(item).to(device),
                indices=torch.from_numpy(item.indices).to(device),
            )
        )
    # The pool writes positions in ascending order without repetition.
    patching.load_checkpoint_weight_patches(model, patches, validate_unique_indices=False)
    _derive_again(model)


def apply_dense(model: Any, model_config: Any, items: Sequence[Item], device: torch.device) -> None:
    """Loads every tensor anew. Raises what vLLM's loader raises; a part may be written."""
    from vllm.model_executor.model_loader.reload import (
        finalize_layerwise_reload,
        initialize_layerwise_reload,
    )

    with device:
        initialize_layerwise_reload(model)
        model.load_weights(_named(items, device))
        finalize_layerwise_reload(model, model_config)
        _derive_again(model)


def _derive_again(model: Any) -> None:
    """Modules that share a parameter make what they derive from it anew.

    A tied head is loaded by way of the embedding; the CPU build's packed copy of it would stay.
    """
    owners: dict[int, list[Any]] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            owners.setdefault(id(parameter), []).append(module)
    for modules in owners.values():
        for module in modules if len(modules) > 1 else ():
            method = getattr(module, "quant_method", None)
            if method is not None:
                method.process_weights_after_loading(module)


def _named(items: Sequence[Item], device: torch.device) -> Iterator[tuple[str, Tensor]]:
    for item in items:
        assert item.indices is None, "a dense parcel has whole tensors"
        yield item.name, tensor_of(item).to(device)
