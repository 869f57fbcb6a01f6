"""Next-token loss: what mid-training lowers, and what rehearsal keeps low."""

from __future__ import annotations

from torch import Tensor

from tradewind.trainer.forest import Forest


def next_token(forest: Forest, logp: Tensor, entropy: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Cross-entropy in nats, summed over the N targets."""
    return -logp.sum(), {"tokens": logp.new_tensor(float(logp.numel()))}
