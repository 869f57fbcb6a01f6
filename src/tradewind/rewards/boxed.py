"""A child for what an agent wrote: new for each attempt, judged fairly, gone afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from tradewind.rewards.options import BoxOptions
from tradewind.rewards.sandbox.box import Box
from tradewind.rewards.sandbox.fair import fairly
from tradewind.rewards.sandbox.level import Level
from tradewind.rewards.sandbox.measure import require
from tradewind.rewards.sandbox.process import KillableProcess, NoAnswer
from tradewind.rewards.sandbox.view import INSIDE, installed_packages
from tradewind.types.record import Json

T = TypeVar("T")
_PATIENCE = 2.0
"""A helper's deadline is never the first to pass."""
UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What reading a forged answer can raise: numbers beyond all floats, nesting beyond the stack."""
Ask = Callable[[Json], Json]
"""One question to the child, within what is left of the attempt's time; raises `NoAnswer`."""


class Boxed:
    """The child of one verifier; `script` is one of ours in `sandbox/inside`."""

    def __init__(
        self,
        use: str,
        options: BoxOptions,
        script: str,
        level: Level | None = None,
        *,
        packages: Sequence[Path] = (),
    ) -> None:
        """Raises `UserError` if this machine cannot isolate as well as `options` ask.

        `level` is the one to use, for measurements; otherwise the highest that holds. `packages`
        are folders that a script of ours imports from.
        """
        self.level = require(options.minimum, f"verifier {use!r}") if level is None else level
        folders = packages or (installed_packages() if options.packages else ())
        box = Box(self.level, options.limits(), packages=folders)
        self._process = KillableProcess(box, Path(INSIDE, script))
        self._deadline = options.deadline_s

    def fairly(self, attempt: Callable[[Ask], T], control: Callable[[Ask], object]) -> T:
        """What `attempt` finds with a child of its own, at the second try if need be.

        Raises `PolicysFault` if it fails twice though `control` works, else `VerifierFailed`.
        """
        return fairly(
            lambda seconds: self._once(attempt, seconds),
            lambda: self._once(control, self._deadline),
            self._deadline,
        )

    def beside(self, attempt: Callable[[Ask], T]) -> T:
        """What `attempt` finds with a child of its own that serves another one's attempt.

        Raises `NoAnswer`; whose fault it is, the other one decides.
        """
        return self._once(attempt, _PATIENCE * self._deadline)

    def close(self) -> None:
        """Give back what the box holds."""
        self._process.close()

    def _once(self, attempt: Callable[[Ask], T], seconds: float) -> T:
        until = time.monotonic() + seconds

        def ask(question: Json) -> Json:
            return self._process.ask(question, max(0.0, until - time.monotonic()))

        try:
            return attempt(ask)
        except UNREADABLE as error:
            raise NoAnswer("the process answered with something that is no answer") from error
        finally:
            self._process.kill()
