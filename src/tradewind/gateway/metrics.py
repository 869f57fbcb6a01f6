"""What the gateway counts since it started."""

from __future__ import annotations

from collections import Counter

from tradewind.types import Json


class Metrics:
    """Plain counters; one event loop writes them."""

    def __init__(self) -> None:
        self.sampled_tokens = 0
        """Received from pools for rollouts."""
        self.delivered_tokens = 0
        """Of those, in whole answers that reached their agent and can be trained."""
        self.turns: Counter[str] = Counter()
        """Turns of rollouts by how they began: root, extended, or the cause of a fork."""
        self.lost: Counter[str] = Counter()
        """Turns that cannot be trained, by cause."""
        self.lost_tokens: Counter[str] = Counter()
        """Sampled tokens of those turns, by cause."""
        self.refused: Counter[str] = Counter()
        """Refusals by code."""
        self.overridden: Counter[str] = Counter()
        """Request parameters replaced by ours, by name."""
        self.joined = 0
        """Retries that got the answer of their first attempt."""
        self.continued = 0
        """Answers that went on at another pool, or at the same one anew."""
        self.in_flight = 0
        """Answers being written now, users included."""
        self.user_chats = 0

    def to_json(self) -> Json:
        """All counters, and the share of sampled tokens that was delivered."""
        sampled = self.sampled_tokens
        return {
            "tokens": {
                "sampled": sampled,
                "delivered": self.delivered_tokens,
                "delivered_share": self.delivered_tokens / sampled if sampled else None,
            },
            "turns": dict(self.turns),
            "lost": dict(self.lost),
            "lost_tokens": dict(self.lost_tokens),
            "refused": dict(self.refused),
            "overridden": dict(self.overridden),
            "joined": self.joined,
            "continued": self.continued,
            "in_flight": self.in_flight,
            "user_chats": self.user_chats,
        }
