"""Where a run's things lie, and opening them for one trainer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tradewind.ledger.ledger import Ledger
from tradewind.ledger.place import ledger_of
from tradewind.render.tokenizer import FILE, open_tokenizer
from tradewind.trainer.config import OptimiserConfig
from tradewind.trainer.lineage import Lineage
from tradewind.trainer.pulse import Pulse
from tradewind.weights.bucket import Bucket
from tradewind.weights.checkpoint import read_folder
from tradewind.weights.probe import TEXT

SHORTCUTS_S = 60.0
"""Longest wait at the end of a stage for shortcuts that are being published, in seconds."""


@dataclass(frozen=True)
class Run:
    """The addresses of one arm."""

    workspace: Path
    """Holds `metrics/` and `checkpoints/`, and by default ledger and bucket."""
    model: Path
    """The base checkpoint: config.json, tokenizer.json, safetensors in bf16."""
    run_id: str
    """Names the run in every manifest."""
    ledger_url: str | None = None
    """SQLAlchemy URL or path; default the workspace's own."""
    bucket_url: str | None = None
    """Default: the folder `<workspace>/bucket`."""

    @property
    def checkpoints(self) -> Path:
        """The trainer's own."""
        return self.workspace / "checkpoints"

    def probe_text(self) -> list[int]:
        """Ids of `weights.probe.TEXT` by the model's tokenizer; none without one."""
        if not (self.model / FILE).exists():
            return []
        return list(open_tokenizer(self.model).encode(TEXT, add_special_tokens=False).ids)

    def open_bucket(self) -> Bucket:
        """Raises UserError if there is none."""
        return Bucket.open(self.bucket_url or (self.workspace / "bucket").resolve().as_uri())


@contextmanager
def open_run(run: Run, config: OptimiserConfig) -> Iterator[tuple[Ledger, Lineage, Pulse]]:
    """Ledger, lineage and the trainer's place, given back at the end, when shortcuts are published.

    Raises:
        UserError: model, ledger or bucket cannot be opened.
        Conflict: another trainer lives on this run.
    """
    with (
        Ledger.open(run.ledger_url or ledger_of(run.workspace)) as ledger,
        Pulse(ledger, config.lease_ttl_s) as pulse,
    ):
        pulse.doing("open the model")
        bucket = run.open_bucket()
        base = read_folder(run.model)
        span = config.shortcut_span
        lineage = Lineage(ledger, bucket, run.run_id, base, span, run.probe_text)
        try:
            yield ledger, lineage, pulse
            pulse.doing("publish shortcuts")
        finally:
            status = lineage.close(SHORTCUTS_S)
        if status.failed:
            said = f"{status.failed} versions have no shortcuts: {status.last_error}"
            pulse.event("shortcuts.failed", f"version {lineage.version.version}", said)
