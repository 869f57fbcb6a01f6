"""Whose fault was it? A child that dies or is late is asked again before anybody is blamed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tradewind.rewards.sandbox.process import NoAnswer
from tradewind.rewards.signal import VerifierFailed

T = TypeVar("T")

_PATIENCE = 2.0
"""The second attempt gets so much more time, since the machine may just have been busy."""


class PolicysFault(Exception):
    """It failed twice while the sandbox works: what was run there is to blame."""


def fairly(attempt: Callable[[float], T], control: Callable[[], object], deadline_s: float) -> T:
    """What `attempt(deadline_s)` gives, at the second try if need be.

    `control` runs something that is known to work and raises `NoAnswer` if it does not. Raises
    `PolicysFault` after two failures and a control that worked, `VerifierFailed` if it did not.
    """
    try:
        return attempt(deadline_s)
    except NoAnswer:
        pass
    try:
        return attempt(_PATIENCE * deadline_s)
    except NoAnswer as error:
        why, late = str(error), error.timed_out
    try:
        control()
    except NoAnswer as error:
        raise VerifierFailed(f"the sandbox does not work: {error}") from error
    if late:
        why = f"it gave no answer within {deadline_s:g} s, nor within {_PATIENCE * deadline_s:g} s"
    raise PolicysFault(why if late else f"{why}, twice")
