"""What every signal has in common that only counts."""

from __future__ import annotations

from tradewind.rewards.signal import Kind, Signal


class Counted(Signal):
    """Looks at turns, can score every task, holds nothing open."""

    version = "1"
    kind = Kind.BEHAVIOUR
    needs_turns = True
