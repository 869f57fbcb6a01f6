"""Tool calls that bring nothing new."""

from __future__ import annotations

import json

from tradewind.rewards.behaviour.counted import Counted
from tradewind.rewards.signal import Verdict
from tradewind.rewards.trajectory import Act, trajectory
from tradewind.types.config import Config
from tradewind.types.episode import Episode


class Repeats(Counted):
    """Value: repeated calls / all calls, in [0, 1); 0 without calls.

    A call repeats if tool, arguments and result are those of an earlier call: tests that are run
    again after an edit and then say something else are no repetition.
    """

    takes = Config
    """Nothing to set."""

    def score(self, episode: Episode) -> Verdict:
        """The share; the evidence counts both."""
        acts = trajectory(episode).acts
        repeated = len(acts) - len({_same(act) for act in acts})
        return Verdict(
            value=repeated / len(acts) if acts else 0.0,
            cause=f"{repeated} of {len(acts)} calls repeat an earlier one",
            evidence={"calls": len(acts), "repeated": repeated},
        )


def _same(act: Act) -> tuple[str, str, str | None]:
    return act.tool, json.dumps(act.arguments, sort_keys=True), act.result
