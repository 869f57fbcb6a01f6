"""A child that runs a library somebody else keeps, over what an agent said."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from dataclasses import replace
from pathlib import Path

from tradewind.rewards.options import ReaderOptions
from tradewind.rewards.sandbox.box import Box
from tradewind.rewards.sandbox.fair import fairly
from tradewind.rewards.sandbox.measure import require
from tradewind.rewards.sandbox.process import KillableProcess
from tradewind.rewards.sandbox.view import INSIDE, installed_packages
from tradewind.types.errors import UserError
from tradewind.types.record import Json

_CACHES_MB = 16
"""Some libraries do not import without a place for their caches."""
_START_S = 60.0
"""Longest that the import of the library may take."""


class Library:
    """The code is trusted and what it reads is not: parsers can be made to run forever. So it has
    a process of its own that lives on from verdict to verdict, and limits."""

    def __init__(
        self,
        use: str,
        options: ReaderOptions,
        script: str,
        distribution: str,
        wanted: str | None = None,
    ) -> None:
        """`wanted` is what to install if it is not `distribution` itself.

        Raises `UserError` if the library is not installed, or the machine cannot isolate as asked.
        """
        if importlib.util.find_spec(distribution.replace("-", "_")) is None:
            raise UserError(
                f"verifier {use!r} needs a package that is not installed",
                value=distribution,
                fix=f"pip install {wanted or distribution}",
            )
        self.version = importlib.metadata.version(distribution)
        """Of the library: another one may decide otherwise."""
        level = require(options.minimum, f"verifier {use!r}")
        limits = replace(options.limits(), file_mb=_CACHES_MB)
        box = Box(level, limits, packages=installed_packages())
        self._process = KillableProcess(box, Path(INSIDE, script))
        self._deadline = options.deadline_s

    def ask(self, question: Json, control: Json) -> Json:
        """The library's answer; `control` is a question that it is known to answer.

        Raises `PolicysFault` if it is late or dies twice though the control works, and
        `VerifierFailed` if it does not.
        """
        return fairly(
            lambda seconds: self._warm(control).ask(question, seconds),
            lambda: self._process.ask(control, _START_S),
            self._deadline,
        )

    def _warm(self, control: Json) -> KillableProcess:
        """The child with its library imported, which takes longer than most answers."""
        if self._process.pid is None:
            self._process.ask(control, _START_S)
        return self._process

    def close(self) -> None:
        """End the child."""
        self._process.close()
