"""From the faults of single cases to a verdict."""

from __future__ import annotations

from collections.abc import Sequence

from tradewind.rewards.signal import Verdict


def tally(faults: Sequence[str | None], *, partial: bool) -> Verdict:
    """1.0 if no case has a fault, else 0.0, or the share of right cases with `partial`."""
    n = len(faults)
    right = sum(fault is None for fault in faults)
    evidence = {"cases": n, "right": right}
    if right == n:
        return Verdict(value=1.0, evidence=evidence)
    first = next(index for index, fault in enumerate(faults) if fault is not None)
    cause = f"{right} of {n} cases are right; case {first + 1}: {faults[first]}"
    return Verdict(value=right / n if partial else 0.0, cause=cause, evidence=evidence)
