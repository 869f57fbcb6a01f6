"""Statistics of pi / mu, with engine mismatch told apart from update drift.

For a token sampled by the very version that is being trained, log(pi / mu) is nothing but the
numerical mismatch between engine and trainer. For an older token it is mismatch plus the drift of
the updates in between; the two cannot be separated on that token without keeping old weights, so
the difference of the two means is reported as drift.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tradewind.algo.losses.terms import Terms

SUMS = ("tokens", "k3", "log_ratio", "abs_log_ratio")


def k3(log_ratio: Tensor) -> Tensor:
    """rho - log rho - 1 >= 0 per token [N]: Schulman's k3 (joschu.net/blog/kl-approx.html)."""
    return log_ratio.expm1() - log_ratio


def ratio_sums(terms: Terms, same_version: Tensor) -> dict[str, Tensor]:
    """Sums over tokens of `SUMS`, under `mismatch/` (same version) and `stale/` (older).

    Args:
        terms: tensors of shape [N].
        same_version: bool [N], whether the version being trained sampled the token.
    """
    log_ratio = terms.log_ratio()
    rows = torch.stack([torch.ones_like(log_ratio), k3(log_ratio), log_ratio, log_ratio.abs()])
    out: dict[str, Tensor] = {}
    for name, flags in (("mismatch", same_version), ("stale", ~same_version)):
        for key, value in zip(SUMS, (rows * flags).sum(dim=1), strict=True):
            out[f"{name}/{key}"] = value
    return out


def ratio_means(sums: dict[str, float]) -> dict[str, float]:
    """Means from summed `ratio_sums`; a part without tokens is left out.

    `ratio/k3` is over all tokens; `ratio/mismatch_k3` over tokens of the trained version;
    `ratio/stale_k3` over older ones; `ratio/drift_k3` is stale minus mismatch where both exist.
    """
    out: dict[str, float] = {}
    total = sums.get("mismatch/tokens", 0.0) + sums.get("stale/tokens", 0.0)
    if total:
        out["ratio/k3"] = (sums["mismatch/k3"] + sums["stale/k3"]) / total
    for name in ("mismatch", "stale"):
        tokens = sums.get(f"{name}/tokens", 0.0)
        if tokens:
            for key in SUMS[1:]:
                out[f"ratio/{name}_{key}"] = sums[f"{name}/{key}"] / tokens
    if "ratio/mismatch_k3" in out and "ratio/stale_k3" in out:
        out["ratio/drift_k3"] = out["ratio/stale_k3"] - out["ratio/mismatch_k3"]
    return out
