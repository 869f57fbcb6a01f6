"""Which stages of an arm are done: a small file that survives the launcher (kill -9 included)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import Field

from tradewind.run.workspace import write_atomic
from tradewind.types import Record


class Stage(Record):
    """One stage; active seconds leave out the time during which no launcher ran."""

    name: str
    started_at: float | None = None
    """Unix seconds of the first start."""
    finished_at: float | None = None
    seconds: float = 0.0
    """Active so far, over all launches."""


class StagesFile(Record):
    """`stages.json`."""

    arm: str
    stages: tuple[Stage, ...]
    planned: dict[str, int] = Field(default_factory=dict)
    """Steps that a stage will take, for those that count steps."""


class Stages:
    """The stages of one arm in order. Every change is on disk before the call returns."""

    def __init__(
        self,
        file: Path,
        arm: str,
        names: tuple[str, ...],
        planned: dict[str, int],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._file, self._clock = file, clock
        self._ticked_at: float | None = None
        known: dict[str, Stage] = {}
        if file.exists():
            known = {stage.name: stage for stage in read_stages(file).stages}
        self.arm, self.planned = arm, planned
        self._stages = {name: known.get(name, Stage(name=name)) for name in names}
        self._save()

    @contextmanager
    def run(self, name: str) -> Iterator[bool]:
        """Yields whether the stage is to be worked on, and marks it done if the block succeeds."""
        if self._stages[name].finished_at is not None:
            yield False
            return
        started = self._stages[name].started_at or self._clock()
        self._change(name, started_at=started)
        self._ticked_at = self._clock()
        try:
            yield True
        finally:
            self.tick(name)
            self._ticked_at = None
        self._change(name, finished_at=self._clock())

    def tick(self, name: str) -> None:
        """Count the active time since the last tick; call it every few seconds."""
        assert self._ticked_at is not None, f"stage {name} does not run"
        now = self._clock()
        self._change(name, seconds=self._stages[name].seconds + now - self._ticked_at)
        self._ticked_at = now

    def seconds(self) -> dict[str, float]:
        """Active seconds per stage, for those that began."""
        return {s.name: s.seconds for s in self._stages.values() if s.started_at is not None}

    def finished(self) -> bool:
        """Whether every stage is done."""
        return all(stage.finished_at is not None for stage in self._stages.values())

    def _change(self, name: str, **values: float) -> None:
        self._stages[name] = self._stages[name].model_copy(update=values)
        self._save()

    def _save(self) -> None:
        content = StagesFile(
            arm=self.arm, stages=tuple(self._stages.values()), planned=self.planned
        )
        self._file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(self._file, content.model_dump_json(indent=2))


def read_stages(file: Path) -> StagesFile:
    """The stages as a reader in another process sees them."""
    return StagesFile.model_validate_json(file.read_text(encoding="utf-8"))
