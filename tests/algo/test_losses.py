import math

import pytest
import torch

from tradewind.algo.losses.dppo import dppo
from tradewind.algo.losses.ratios import k3, ratio_means, ratio_sums
from tradewind.algo.losses.registry import loss_named
from tradewind.algo.losses.reinforce import reinforce
from tradewind.algo.losses.terms import Terms
from tradewind.types import UserError


def terms(n=64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logp = -torch.rand(n, generator=generator) * 3
    return Terms(
        logp=logp.requires_grad_(),
        behaviour=(logp + 0.8 * torch.randn(n, generator=generator)).detach().clamp(max=-1e-3),
        advantage=torch.randn(n, generator=generator),
        weight=torch.rand(n, generator=generator),
    )


def naive_gradient(t, *, truncate, high=None, low=None):
    """dL/dlogp token by token in Python floats."""
    out = []
    for p, mu, a, w in zip(
        t.logp.tolist(), t.behaviour.tolist(), t.advantage.tolist(), t.weight.tolist(), strict=True
    ):
        ratio = 1.0 if truncate == 0 else min(math.exp(p - mu), truncate)
        moved = math.exp(p) - math.exp(mu)
        masked = high is not None and ((a > 0 and moved > high) or (a <= 0 and moved < -low))
        out.append(0.0 if masked else -w * a * ratio)
    return torch.tensor(out)


@pytest.mark.parametrize("truncate", [0.0, 1.0, 2.0])
def test_reinforce_gradient_differs_from_the_naive_one(truncate):
    t = terms()
    loss, n, _ = reinforce(t, truncate=truncate)
    (gradient,) = torch.autograd.grad(loss, t.logp)
    assert n == 64
    torch.testing.assert_close(gradient, naive_gradient(t, truncate=truncate))


def test_dppo_gradient_differs_from_the_naive_one():
    t = terms()
    loss, _, metrics = dppo(t, high=0.2, low=0.1, truncate=2.0)
    (gradient,) = torch.autograd.grad(loss, t.logp)
    naive = naive_gradient(t, truncate=2.0, high=0.2, low=0.1)
    torch.testing.assert_close(gradient, naive)
    assert metrics["trust_masked"] == (naive == 0).sum() > 0
    assert metrics["ratio_truncated"] == ((t.logp - t.behaviour).exp() > 2.0).sum() > 0


def test_dppo_masks_a_move_against_the_advantage():
    t = Terms(
        logp=torch.tensor([-0.1, -3.0]),
        behaviour=torch.tensor([-3.0, -0.1]),
        advantage=torch.tensor([-1.0, 1.0]),
        weight=torch.ones(2),
    )
    assert dppo(t)[2]["trust_masked"] == 0


def test_ratio_of_an_impossible_token_overflows():
    t = Terms(torch.zeros(1), torch.tensor([-1e4]), torch.ones(1), torch.ones(1))
    assert all(torch.isfinite(loss(t)[0]) for loss in (dppo, reinforce))


def test_k1_kl_as_a_loss_term_has_a_gradient_and_in_the_reward_has_none():
    """Exact expectation over one categorical action (design section 6)."""
    logits = torch.tensor([0.3, -1.0, 0.9, 0.1], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([1.0, 0.2, -0.4, 0.0], dtype=torch.float64).log_softmax(0)
    logp = logits.log_softmax(0)
    probability = logp.detach().exp()
    k1 = logp - reference
    (as_loss,) = torch.autograd.grad((probability * k1).sum(), logits, retain_graph=True)
    torch.testing.assert_close(as_loss, torch.zeros(4, dtype=torch.float64), atol=1e-12, rtol=0)

    t = Terms(logp, logp.detach(), -k1.detach(), probability)
    (in_reward,) = torch.autograd.grad(reinforce(t)[0], logits, retain_graph=True)
    kl = (logp.exp() * (logp - reference)).sum()
    (of_kl,) = torch.autograd.grad(kl, logits)
    torch.testing.assert_close(in_reward, of_kl)
    assert of_kl.norm() > 0.1


def test_mismatch_is_mixed_with_drift():
    t = Terms(
        logp=torch.tensor([-1.0, -1.0, -1.0]),
        behaviour=torch.tensor([-1.0, -1.001, -1.5]),
        advantage=torch.ones(3),
        weight=torch.ones(3),
    )
    sums = {k: v.item() for k, v in ratio_sums(t, torch.tensor([True, True, False])).items()}
    means = ratio_means(sums)
    assert means["ratio/mismatch_k3"] < 1e-6
    assert math.isclose(means["ratio/stale_k3"], math.exp(0.5) - 1.5, rel_tol=1e-5)
    assert math.isclose(means["ratio/stale_log_ratio"], 0.5, rel_tol=1e-5)
    assert means["ratio/drift_k3"] > 0.1
    assert "ratio/mismatch_k3" not in ratio_means(
        {
            "stale/tokens": 1,
            "stale/k3": 1,
            "stale/log_ratio": 0,
            "stale/abs_log_ratio": 0,
            "mismatch/k3": 0,
        }
    )


def test_k3_is_negative_somewhere():
    assert (k3(torch.linspace(-5, 5, 101)) >= 0).all()


def test_unknown_loss_is_a_traceback():
    with pytest.raises(UserError, match=r"no loss of this name: 'ppo'.*dppo"):
        loss_named("ppo", {})
    with pytest.raises(UserError, match=r"no such value.*clip"):
        loss_named("dppo", {"clip": 0.1})
    assert loss_named("dppo", {"high": 0.3})(terms())[1] == 64
