"""Where everything of one arm lies, and the atomic write that its small files need."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tradewind.ledger.place import has_ledger, ledger_of


@dataclass(frozen=True)
class Workspace:
    """`runs/<name>` for the main arm, `runs/<name>/control` for the control."""

    folder: Path

    @property
    def ledger(self) -> str:
        """SQLite file, or URL of a database."""
        return ledger_of(self.folder)

    @property
    def has_ledger(self) -> bool:
        """Whether it was made."""
        return has_ledger(self.folder)

    @property
    def bucket(self) -> Path:
        """Weights, as pools see them."""
        return self.folder / "bucket"

    @property
    def logs(self) -> Path:
        """One file per process."""
        return self.folder / "logs"

    @property
    def checkpoints(self) -> Path:
        """The trainer's own."""
        return self.folder / "checkpoints"

    @property
    def data(self) -> Path:
        """What `[env] prepare` makes; shared by both arms."""
        return self.folder / "data"

    @property
    def stages(self) -> Path:
        """Which stages are done."""
        return self.folder / "stages.json"

    @property
    def recipe(self) -> Path:
        """The recipe with every key resolved."""
        return self.folder / "resolved.toml"

    @property
    def results(self) -> Path:
        """Figures of the whole run."""
        return self.folder / "results.json"

    @property
    def report(self) -> Path:
        """The page to look at."""
        return self.folder / "report.html"

    @property
    def control(self) -> Workspace:
        """The arm without mid-training."""
        return Workspace(self.folder / "control")


def write_atomic(file: Path, text: str) -> None:
    """Replace a file in one rename, so that a reader or a crash never sees half of it."""
    partial = file.with_name(f".{file.name}.{os.getpid()}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(file)


def write_json(file: Path, value: Any) -> None:
    """`write_atomic` of indented JSON; NaN and infinity are refused."""
    write_atomic(file, json.dumps(value, indent=2, allow_nan=False) + "\n")
