import pytest
import torch
from torch import nn

from tradewind.trainer.config import OptimiserConfig
from tradewind.trainer.master import MasterWeights
from tradewind.types import UserError

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


def parameters(dtype, seed=0, device="cpu"):
    torch.manual_seed(seed)
    values = [torch.randn(5, 3).to(torch.bfloat16).to(device, dtype) for _ in range(2)]
    return [(f"w{i}", nn.Parameter(value)) for i, value in enumerate(values)]


def exact(parameter):
    return torch.equal(parameter.detach().float(), parameter.detach().to(torch.bfloat16).float())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_small_updates_are_lost_to_rounding(dtype):
    """400 steps of 1e-5: each far below half a bf16 ulp near 1, together one ulp."""
    named = [("w", nn.Parameter(torch.ones(4, dtype=dtype)))]
    master = MasterWeights(named, OptimiserConfig(lr=1e-5))
    for step in range(400):
        named[0][1].grad = torch.ones(4, dtype=dtype)
        master.step(1e-5, 1.0, step)
        assert exact(named[0][1])
    torch.testing.assert_close(master.masters[0].detach(), torch.full((4,), 1 - 4e-3))
    assert (named[0][1] < 1).all()


def test_update_differs_from_torch_adamw_with_clipping():
    config = OptimiserConfig(lr=1e-2, clip=0.5, weight_decay=0.1)
    named = parameters(torch.float32)
    reference = [p.detach().clone().requires_grad_() for _, p in named]
    optimiser = torch.optim.AdamW(
        reference, lr=1e-2, betas=config.betas, eps=config.eps, weight_decay=0.1, foreach=False
    )
    master = MasterWeights(named, config)
    for step in range(3):
        torch.manual_seed(step)
        gradients = [torch.randn(5, 3) for _ in named]
        for (_, p), r, g in zip(named, reference, gradients, strict=True):
            p.grad, r.grad = g * 4.0, g.clone()
        norm = master.step(1e-2, 0.25, step)
        expected = nn.utils.clip_grad_norm_(reference, 0.5)
        optimiser.step()
        assert norm == pytest.approx(float(expected), rel=1e-6)
    for m, r in zip(master.masters, reference, strict=True):
        torch.testing.assert_close(m, r)


def test_bf16_gradients_are_summed_in_bf16():
    named = [("w", nn.Parameter(torch.zeros(1, dtype=torch.bfloat16)))]
    master = MasterWeights(named, OptimiserConfig())
    for _ in range(1000):
        named[0][1].grad = torch.ones(1, dtype=torch.bfloat16)
        master.accumulate()
    assert master.step(0.0, 1.0, 0) == 1000.0


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nonfinite_gradient_reaches_the_weights(value):
    named = parameters(torch.float32)
    before = [p.detach().clone() for _, p in named]
    master = MasterWeights(named, OptimiserConfig())
    named[0][1].grad = torch.full((5, 3), value)
    with pytest.raises(UserError, match=r"gradient norm of step 7 is not finite.*lower lr"):
        master.step(1e-3, 1.0, 7)
    assert all(torch.equal(a, p) for a, (_, p) in zip(before, named, strict=True))
    assert not master._adamw.state


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
def test_restored_state_takes_another_path(device):
    """A checkpoint is read into the CPU's memory, wherever the masters are."""

    def run(restore_at):
        named = parameters(torch.float32, device=device)
        master = MasterWeights(named, OptimiserConfig(lr=1e-2))
        for step in range(4):
            if step == restore_at:
                saved = {k: v.cpu().clone() for k, v in master.state().items()}
                named = parameters(torch.float32, seed=9, device=device)
                master = MasterWeights(named, OptimiserConfig(lr=1e-2))
                master.restore(saved)
            torch.manual_seed(step)
            for _, p in named:
                p.grad = torch.randn(5, 3).to(device)
            master.step(1e-2, 1.0, step)
        return [m.detach() for m in master.masters]

    for restore_at in (0, 2):
        for a, b in zip(run(None), run(restore_at), strict=True):
            assert torch.equal(a, b)


def test_adopting_published_weights_throws_hidden_digits_away():
    named = parameters(torch.float32)
    master = MasterWeights(named, OptimiserConfig())
    with torch.no_grad():
        master.masters[0].add_(1e-6)
    hidden = master.masters[0].detach().clone()
    published = {name: p.detach().to(torch.bfloat16) for name, p in named}
    published["w1"] = published["w1"] + 1
    assert master.adopt(published) == 15
    assert torch.equal(master.masters[0], hidden)
    assert torch.equal(named[1][1].detach(), published["w1"].float())
