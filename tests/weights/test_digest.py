"""The state id: every bit, name, shape and dtype counts; incremental equals whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import blake3
import numpy as np
import pytest

from tradewind.weights.digest import (
    BLOCK,
    Hashed,
    hashed,
    joined,
    leaves_of,
    root,
    state_id,
    tensor_digest,
)
from tradewind.weights.state import State
from tradewind.weights.tensors import Array, TensorSet


def slow_digest(data: bytes) -> str:
    blocks = [blake3.blake3(data[i : i + 65536]).digest() for i in range(0, len(data), 65536)]
    return blake3.blake3(b"\x02" + b"".join(blocks)).hexdigest()


def slow_root(tensors: TensorSet) -> str:
    """The definition, read aloud: recursion over the largest power of two (RFC 6962, 2.1)."""

    def node(level: list[bytes]) -> bytes:
        if len(level) == 1:
            return level[0]
        split = 1
        while split * 2 < len(level):
            split *= 2
        both = node(level[:split]) + node(level[split:])
        return blake3.blake3(b"\x01" + both).digest()

    rows = []
    for name in sorted(tensors):
        array = tensors[name]
        inner = slow_digest(array.tobytes())
        shape = ",".join(str(n) for n in array.shape)
        row = f'["{name}","{tensors.tag(name)}",[{shape}],"{inner}"]'
        rows.append(blake3.blake3(b"\x00" + row.encode()).digest())
    return "b3:" + node(rows).hex()


@pytest.mark.parametrize("count", range(1, 18))
def test_the_tree_is_that_of_the_definition(count: int) -> None:
    draw = np.random.default_rng(count)
    tensors = TensorSet(
        {f"t{i}": draw.integers(0, 2**16, (i + 1, 2), np.uint16) for i in range(count)}
    )
    assert state_id(tensors) == slow_root(tensors) == state_id(tensors, threads=3)


@pytest.mark.parametrize("size", [0, 2, BLOCK - 2, BLOCK, BLOCK + 2, 5 * BLOCK, 5 * BLOCK + 1000])
@pytest.mark.parametrize("ranks", [1, 2, 3, 7, 64])
def test_a_digest_depends_on_who_holds_which_rows(size: int, ranks: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    chunk = -(-size // (2 * ranks)) * 2
    cuts = [(min(r * chunk, size), min((r + 1) * chunk, size)) for r in range(ranks)]
    runs = [hashed(data[begin:end], begin, size) for begin, end in cuts]
    assert joined(runs, size) == slow_digest(data.tobytes()) == tensor_digest(data)
    runs = [Hashed.model_validate_json(run.model_dump_json()) for run in runs]
    assert joined(runs, size) == slow_digest(data.tobytes())
    whole = sum(len(run.head) + len(run.tail) for run in runs)
    assert whole <= 2 * ranks * BLOCK and (ranks > 1 or size < BLOCK or not whole)


def test_every_bit_name_shape_and_dtype_counts(model: dict[str, Array]) -> None:
    flipped = {name: array.copy() for name, array in model.items()}
    flipped["model.up.weight"][-1, -1] ^= 1
    weight = model["model.up.weight"]
    rest = {name: array for name, array in model.items() if name != "model.up.weight"}
    variants = [
        model,
        flipped,
        {**rest, "model.up.weights": weight},
        {**rest, "model.up.weight": weight.reshape(32, 48)},
        {**rest, "model.up.weight": weight.view(np.float16)},
        rest,
    ]
    ids = [state_id(variant) for variant in variants]
    assert len(set(ids)) == len(ids)
    tagged = TensorSet({"w": np.zeros(4, np.uint8)}, {"w": "F8_E4M3"})
    assert state_id(tagged) != state_id({"w": np.zeros(4, np.uint8)})


def test_the_order_of_the_mapping_does_not_count(model: dict[str, Array]) -> None:
    assert state_id(dict(reversed(model.items()))) == state_id(model)


def test_a_successor_state_equals_one_hashed_anew(
    model: dict[str, Array], step: Callable[..., Any]
) -> None:
    before = State.of(0, model)
    after = step(model, 1)
    changed = {name: after[name] for name in ("model.scale", "model.up.weight")}
    follows = before.changed(1, changed, leaves_of(changed))
    assert follows.state_id == state_id({**model, **changed})
    assert root(follows.leaves) == follows.state_id
    assert before.state_id == state_id(model)
