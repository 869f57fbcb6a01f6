"""Tool calls that failed."""

from __future__ import annotations

import re

from pydantic import field_validator

from tradewind.rewards.behaviour.counted import Counted
from tradewind.rewards.pattern import checked_pattern
from tradewind.rewards.signal import Verdict
from tradewind.rewards.trajectory import trajectory
from tradewind.types.config import Config
from tradewind.types.episode import Episode


class ToolErrorsOptions(Config):
    """How a failed call is known."""

    failed: str = (
        r"(?i)\A\s*(error\b|fatal:|traceback \(most recent|\w+(error|exception):|command not found"
        r"|usage error|invalid (argument|tool|json))|exit(ed with)?[ _](code|status)[:= ]+[1-9]"
        r"|\"is_?error\": *true"
    )
    """A regular expression over what came back; searched."""

    _compiles = field_validator("failed")(checked_pattern)


class ToolErrors(Counted):
    """Value: failed calls / all calls, in [0, 1]; 0 without calls.

    A call that no parser could read counts as failed: it would be a way out otherwise.
    """

    takes = ToolErrorsOptions

    def __init__(self, options: ToolErrorsOptions) -> None:
        self._failed = re.compile(options.failed)

    def score(self, episode: Episode) -> Verdict:
        """The share; the evidence counts what it is made of."""
        seen = trajectory(episode)
        failed = [act for act in seen.acts if act.result and self._failed.search(act.result)]
        calls = len(seen.acts) + seen.unread_calls
        bad = len(failed) + seen.unread_calls
        return Verdict(
            value=bad / calls if calls else 0.0,
            cause=f"{bad} of {calls} calls failed",
            evidence={
                "calls": calls,
                "failed": len(failed),
                "unread": seen.unread_calls,
                "tools": sorted({act.tool for act in failed}),
            },
        )
