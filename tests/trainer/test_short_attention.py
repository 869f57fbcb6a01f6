import pytest
import torch
import torch.nn.functional as F

from tradewind.trainer import attention, short_attention
from tradewind.trainer.short_attention import ShortAttention, serves

GROUPS, ROWS, KEYS, WIDTH, SCALE = 3, 24, 20, 16, 0.25


def parts(dtype):
    torch.manual_seed(0)
    q, k, v = (torch.randn(GROUPS, n, WIDTH, dtype=dtype) for n in (ROWS, KEYS, KEYS))
    hidden = torch.rand(ROWS, KEYS) < 0.4
    hidden[:, 0] = False  # everybody sees something
    bias = torch.zeros(ROWS, KEYS, dtype=dtype).masked_fill_(hidden, float("-inf"))
    return q, k, v, bias, torch.randn(GROUPS, ROWS, WIDTH, dtype=dtype)


def with_gradients(attend, q, k, v, grad):
    inputs = [t.clone().requires_grad_() for t in (q, k, v)]
    out = attend(*inputs)
    return [out, *torch.autograd.grad(out, inputs, grad)]


def test_the_formulas_are_those_of_attention():
    q, k, v, bias, grad = parts(torch.float32)
    ours = with_gradients(lambda *t: ShortAttention.apply(*t, bias, SCALE), q, k, v, grad)
    theirs = with_gradients(
        lambda *t: F.scaled_dot_product_attention(*t, bias, scale=SCALE), q, k, v, grad
    )
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_in_bf16_its_error_is_that_of_rounding_as_the_fused_kernels_is():
    q, k, v, bias, grad = parts(torch.bfloat16)
    exact = with_gradients(
        lambda *t: F.scaled_dot_product_attention(*t, bias.double(), scale=SCALE),
        *(t.double() for t in (q, k, v, grad)),
    )
    ours = with_gradients(lambda *t: ShortAttention.apply(*t, bias, SCALE), q, k, v, grad)
    fused = with_gradients(
        lambda *t: F.scaled_dot_product_attention(*(x[None] for x in t), bias, scale=SCALE).squeeze(
            0
        ),
        *(q, k, v, grad),
    )
    for a, b, want in zip(ours, fused, exact, strict=True):
        assert max((a - want).norm(), (b - want).norm()) < 2.0**-7 * want.norm()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_long_blocks_and_fp32_take_the_fused_kernel(dtype, monkeypatch):
    q, k, v, bias, _ = parts(dtype)
    assert serves(q, short_attention.SHORT) is (dtype == torch.bfloat16)
    assert not serves(q, short_attention.SHORT + 1)
    block = attention._block(q.view(GROUPS, 2, ROWS // 2, WIDTH), k, v, bias, SCALE)
    monkeypatch.setattr(short_attention, "SHORT", 0)
    fused = attention._block(q.view(GROUPS, 2, ROWS // 2, WIDTH), k, v, bias, SCALE)
    torch.testing.assert_close(block, fused, atol=2e-2, rtol=2e-2)
