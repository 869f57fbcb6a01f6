"""The launcher's loop: look at processes, show the run, notice that nothing moves."""

from __future__ import annotations

import time
from collections.abc import Callable

from tradewind.run.interruption import Interruption
from tradewind.run.live import View, wait_words
from tradewind.run.snapshot import Snapshot, take_snapshot
from tradewind.run.stages import Stages
from tradewind.run.supervisor import Supervisor
from tradewind.run.waits import Waits
from tradewind.run.workspace import Workspace
from tradewind.types import Stalled

POLL_S = 0.2
SHOW_S = 1.5


class Watch:
    """Waits with open eyes while the processes of one arm work."""

    def __init__(
        self,
        workspace: Workspace,
        stages: Stages,
        processes: Supervisor,
        view: View,
        interruption: Interruption,
    ) -> None:
        self._workspace, self._stages = workspace, stages
        self._processes, self._view, self._interruption = processes, view, interruption
        self._waits = Waits(workspace.folder / "waits.json")
        self._shown_at = 0.0

    def until(
        self,
        done: Callable[[], bool],
        stage: str,
        progress: Callable[[], object],
        stall_s: float,
    ) -> None:
        """Return when `done`. Raises `ProcessFailed` if a process cannot go on, and `Stalled` if
        `progress` has not changed for `stall_s` seconds.
        """
        seen, seen_at = progress(), time.monotonic()
        while not done():
            self._interruption.check()
            self._processes.poll()
            snapshot = self._show(stage)
            if snapshot is not None:
                if (now_seen := progress()) != seen:
                    seen, seen_at = now_seen, time.monotonic()
                elif time.monotonic() - seen_at > stall_s:
                    raise stalled(snapshot, stage, time.monotonic() - seen_at)
            time.sleep(POLL_S)
        self._show(stage, now=True)

    def _show(self, stage: str, *, now: bool = False) -> Snapshot | None:
        """Show the run every `SHOW_S`; the snapshot if it was taken."""
        passed = time.monotonic() - self._shown_at
        if passed < SHOW_S and not now:
            return None
        self._shown_at = time.monotonic()
        self._stages.tick(stage)
        snapshot = take_snapshot(self._workspace)
        self._waits.add(snapshot.beats, min(passed, 2 * SHOW_S))
        self._view.show(snapshot)
        return snapshot


def stalled(snapshot: Snapshot, stage: str, seconds: float) -> Stalled:
    """What the stage waits for, in the words of the processes that wait."""
    words = [
        wait_words(b.process, b.waiting_for, b.owner, snapshot.at - b.since) for b in snapshot.waits
    ]
    owner = next((beat.owner for beat in snapshot.waits if beat.owner), "launcher")
    reasons = "; ".join(words) or "no process says that it waits"
    return Stalled(f"progress in stage {stage} ({reasons})", owner=owner, seconds=seconds)
