"""What one rollout has sampled, of what its key allows."""

from __future__ import annotations

_NO_LIMIT = 1 << 40


class Meter:
    """Counts every token that a pool sent, whether or not its answer was finished."""

    def __init__(self, budget: int | None = None, spent: int = 0) -> None:
        """`budget` in tokens, None is no limit; `spent` before this life of the gateway."""
        self.budget, self.spent = budget, spent

    def count(self, tokens: int) -> None:
        """More were sampled."""
        self.spent += tokens

    @property
    def left(self) -> int:
        """Tokens that may still be sampled; at most 0 once the budget is used up."""
        return _NO_LIMIT if self.budget is None else self.budget - self.spent
