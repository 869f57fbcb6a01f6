"""Learning rate of a step."""

from __future__ import annotations

import math

from tradewind.trainer.config import MidtrainConfig, TrainerConfig


def rate(config: TrainerConfig | MidtrainConfig, step: int) -> float:
    """The learning rate of 0-based `step` of a stage."""
    steps = config.steps if config.schedule == "cosine" else None
    return learning_rate(config.lr, step, config.warmup_steps, steps, config.lr_floor)


def learning_rate(
    peak: float, step: int, warmup: int, steps: int | None = None, floor: float = 1.0
) -> float:
    """Linear warm-up to `peak`, then constant, or a cosine that ends at `peak * floor`.

    Args:
        peak: the highest rate.
        step: 0-based.
        warmup: steps of the rise; step 0 already gets peak / warmup.
        steps: length of the whole run for the cosine; None is constant.
        floor: share of the peak at the last step.
    """
    if step < warmup:
        return peak * (step + 1) / warmup
    if steps is None or steps <= warmup + 1:
        return peak
    progress = min(1.0, (step - warmup) / (steps - 1 - warmup))
    return peak * (floor + (1.0 - floor) * 0.5 * (1.0 + math.cos(math.pi * progress)))
