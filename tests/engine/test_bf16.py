"""The compiled bf16 operations against torch's in fp32, over the same bf16 numbers.

Bound: one rounding to bf16 of what fp32 computes (2^-8 relative), where torch itself rounds more
often; logits within 1e-5 of their size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tinyllm import Listener, make_model

from tradewind.pool.engines.embedded.bf16.blocks import pack, unpack
from tradewind.pool.engines.embedded.config import ModelShape, read_shape
from tradewind.pool.engines.embedded.kv import Lane
from tradewind.pool.engines.embedded.operations import (
    Operations,
    TorchOperations,
    choose_operations,
)
from tradewind.pool.engines.embedded.stack import Layout, Stack
from tradewind.pool.engines.embedded.step import DecodeSpan, Step

BF16, FP32 = torch.bfloat16, torch.float32
VOCAB = 301
"""Not divisible by a tile's 48 columns."""

units = pytest.mark.skipif(
    not torch.cpu.get_capabilities().get("avx512_bf16"),
    reason="this processor has no AVX-512 bf16",
)


@pytest.fixture(scope="module", params=["llama", "qwen3"])
def shape(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModelShape:
    """Three query heads of 32 or of 64 for each kv head."""
    folder = tmp_path_factory.mktemp(request.param)
    make_model(request.param, folder, hidden_size=192, intermediate_size=96, vocab_size=VOCAB)
    return replace(read_shape(folder), head_dim=32 if request.param == "llama" else 64)


@pytest.fixture
def fast(shape: ModelShape) -> Operations:
    found = choose_operations(shape, BF16, 2)
    assert not isinstance(found, TorchOperations)
    return found


@pytest.fixture
def slow(shape: ModelShape) -> TorchOperations:
    return TorchOperations(shape, FP32)


def drawn(*size: int) -> torch.Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(sum(size))).to(BF16)


def stack(tensor: torch.Tensor, layout: Layout, dtype: torch.dtype) -> Stack:
    made = Stack(["w"], layout, dtype)
    made.value = made.build([tensor])
    return made


def close(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found.float(), wanted.float(), rtol=2**-8, atol=2**-7)


def step_of(positions: list[int]) -> Step:
    numbers = torch.tensor(positions)
    return Step(numbers, numbers, max(positions) + 1, (), (), None, (), ())


@pytest.mark.parametrize("rows", [1, 47, 48, VOCAB])
def test_a_packed_matrix_is_unpacked_to_the_same_bits(rows: int) -> None:
    matrix = drawn(rows, 64)
    assert torch.equal(unpack(pack(matrix), rows), matrix)


@units
@pytest.mark.parametrize("rows", [1, 4, 9, 64])
def test_norm_gate_and_logits_equal_torch(
    fast: Operations, slow: TorchOperations, shape: ModelShape, rows: int
) -> None:
    x, delta, weight = drawn(rows, 192), drawn(rows + 1, 192)[1:], drawn(192)
    x_fp32 = (x.float() + delta.float()).to(BF16).float()
    plain, plain_fp32 = (stack(weight, Layout.PLAIN, d) for d in (BF16, FP32))
    normal = fast.add_and_normalise(x, delta, plain)
    assert torch.equal(x.float(), x_fp32), "x is the sum, rounded once"
    close(normal, slow.add_and_normalise(x_fp32, None, plain_fp32))
    assert torch.equal(fast.add_and_normalise(x, None, plain), normal), "x was left alone"

    fused = drawn(rows, 2 * 96)
    close(fast.gate(fused), slow.gate(fused.float()))

    head = drawn(VOCAB, 192)
    logits = fast.logits(normal, stack(head, *fast.head))
    assert logits.dtype == FP32 and logits.is_contiguous()
    wanted = slow.logits(normal, stack(head, *slow.head))
    torch.testing.assert_close(logits, wanted, rtol=1e-5, atol=1e-4)


@units
@pytest.mark.parametrize("positions", [[0], [5, 0, 40, 15, 16], [127] * 3])
def test_rotation_and_decoding_equal_torch(
    fast: Operations, slow: TorchOperations, shape: ModelShape, positions: list[int]
) -> None:
    n, step = len(positions), step_of(positions)
    heads = drawn(n, shape.heads + 2 * shape.kv_heads, shape.head_dim)
    heads_fp32 = heads.float()
    for operations, some in ((fast, heads), (slow, heads_fp32)):
        operations.begin(step)
        operations.rotate(some)
    close(heads, heads_fp32)

    heads_fp32 = heads.float()
    spans = [decode_span(shape, step, dtype) for dtype in (BF16, FP32)]
    out = torch.empty(n, shape.heads, shape.head_dim, dtype=BF16)
    out_fp32 = torch.empty(out.shape)
    fast.decode(spans[0], 0, heads, out)
    slow.decode(spans[1], 0, heads_fp32, out_fp32)
    close(out, out_fp32)
    kept, kept_fp32 = spans[0].lane.layers[0], spans[1].lane.layers[0]
    assert torch.equal(kept.float(), kept_fp32), "new keys and values lie where torch puts them"


@units
def test_a_key_that_is_no_number_is_not_hidden(fast: Operations, shape: ModelShape) -> None:
    step = step_of([20, 20])
    span = decode_span(shape, step, BF16)
    span.lane.layers[0][0, 0, 0, 3, 0] = float("nan")
    heads = drawn(2, shape.heads + 2 * shape.kv_heads, shape.head_dim)
    out = torch.empty(2, shape.heads, shape.head_dim, dtype=BF16)
    fast.begin(step)
    fast.decode(span, 0, heads, out)
    group = shape.heads // shape.kv_heads
    assert out[0, :group].isnan().all() and out[0, group:].isfinite().all()
    assert out[1].isfinite().all()


@units
@pytest.mark.parametrize("kind", ["llama", "qwen3", "qwen3_moe", "llama-biased"])
def test_kernels_are_no_further_from_fp32_than_torch_in_bf16_is(
    kind: str, tmp_path: Path, opened: Callable[..., Listener], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_model(kind, tmp_path, dtype=BF16, initializer_range=0.1, **WIDE[kind])
    exact = opened(tmp_path, dtype="float32")
    fast = opened(tmp_path, dtype="bfloat16", threads=2)
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
    slow = opened(tmp_path, dtype="bfloat16")
    assert type(fast.engine._model._do) is not type(slow.engine._model._do)

    def mean_error(engine: Listener) -> float:
        """Of the logprobs of sampled ids, read by the fp32 engine."""
        for n in (3, 20, 33):  # rows of different lengths decode together
            engine.ask(str(n), list(range(7, 7 + n)), 24, temperature=1.0, seed=n)
        engine.wait()
        errors: list[float] = []
        for n in (3, 20, 33):
            ids = engine.ids(str(n))
            scores = exact.engine.score([[*range(7, 7 + n), *ids]])[0][n - 1 :]
            found = zip(engine.logprobs(str(n)), scores, strict=True)
            errors += [abs(one - other) for one, other in found]
        return sum(errors) / len(errors)

    found, torchs = mean_error(fast), mean_error(slow)
    print(f"{kind}: {found:.4f} kernels, {torchs:.4f} torch")
    assert found < 1.25 * torchs < 0.1


def decode_span(shape: ModelShape, step: Step, dtype: torch.dtype) -> DecodeSpan:
    """Rows of a lane with random keys and values behind them."""
    n, longest = len(step.positions), step.longest
    lane = Lane(128, shape, dtype)
    lane.resize(n)
    for layer in lane.layers:
        layer.copy_(drawn(*layer.shape))
    hidden = torch.arange(longest) > step.positions.unsqueeze(1)
    mask = torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, float("-inf"))
    return DecodeSpan(
        lane, 0, n, longest, torch.arange(n), step.positions, mask.view(n, 1, 1, longest), 0
    )


WIDE: dict[str, dict[str, Any]] = {
    "llama": {"hidden_size": 192, "intermediate_size": 96},
    "llama-biased": {"hidden_size": 192, "intermediate_size": 96},
    "qwen3": {"hidden_size": 64, "intermediate_size": 96, "head_dim": 32},
    "qwen3_moe": {
        "hidden_size": 64,
        "intermediate_size": 96,
        "head_dim": 32,
        "moe_intermediate_size": 32,
    },
}
