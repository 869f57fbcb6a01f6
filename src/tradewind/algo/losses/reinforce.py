"""REINFORCE with a truncated importance ratio."""

from __future__ import annotations

import torch

from tradewind.algo.losses.terms import LossResult, Terms, count, weighted_policy_gradient


def reinforce(terms: Terms, *, truncate: float = 2.0) -> LossResult:
    """L = - sum_t w_t A_t sg(min(rho_t, C)) log pi_t with rho = pi / mu.

    Truncated importance sampling (TIS), "Your efficient RL framework secretly brings you
    off-policy RL training" (fengyao.notion.site/off-policy-rl), per token. `truncate` is C;
    0 leaves the ratio out (rho = 1), the on-policy estimator.

    Args:
        terms: tensors of shape [N].
        truncate: C > 0, or 0 for no ratio.

    Returns:
        (loss sum, N, {"ratio_truncated": number of tokens whose ratio was cut}).
    """
    if truncate == 0.0:
        return (
            weighted_policy_gradient(terms, torch.ones_like(terms.behaviour)),
            terms.logp.numel(),
            {"ratio_truncated": terms.behaviour.new_zeros(())},
        )
    ratio = terms.log_ratio().exp()
    return (
        weighted_policy_gradient(terms, ratio.clamp(max=truncate)),
        terms.logp.numel(),
        {"ratio_truncated": count(ratio > truncate)},
    )
