"""DPPO: a trust region on probabilities instead of ratios."""

from __future__ import annotations

import torch

from tradewind.algo.losses.terms import LossResult, Terms, count, weighted_policy_gradient


def dppo(terms: Terms, *, high: float = 0.2, low: float = 0.2, truncate: float = 2.0) -> LossResult:
    """L = - sum_t w_t M_t A_t sg(min(rho_t, C)) log pi_t with rho = pi / mu.

    M_t = 0 where the token has already moved further in the direction of its advantage than
    the trust region allows: A > 0 and pi - mu > high, or A < 0 and mu - pi > low; else 1.
    For the binary event "this token or another" |pi - mu| is the total variation, hence the name
    binary TV (DPPO, arXiv 2602.04879; default of prime-rl). A ratio clip would freeze rare tokens,
    whose ratio moves although hardly any probability does.

    Args:
        terms: tensors of shape [N].
        high: largest rise of a probability, in [0, 1].
        low: largest fall of a probability, in [0, 1].
        truncate: C > 0.

    Returns:
        (loss sum, N, {"ratio_truncated": tokens, "trust_masked": tokens with M = 0}).
    """
    ratio = terms.log_ratio().exp()
    moved = terms.logp.detach().exp() - terms.behaviour.exp()
    outside = torch.where(terms.advantage > 0, moved > high, moved < -low)
    factor = ratio.clamp(max=truncate).masked_fill(outside, 0.0)
    return (
        weighted_policy_gradient(terms, factor),
        terms.logp.numel(),
        {"ratio_truncated": count(ratio > truncate), "trust_masked": count(outside)},
    )
