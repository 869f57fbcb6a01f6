"""Where a run stands, in one record: what the live view draws and `tradewind status` prints.

Read from the ledger and the small files of the workspace only; no process is asked.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import takewhile

from pydantic import Field

from tradewind.ledger.evals import PassRate
from tradewind.ledger.ledger import Ledger
from tradewind.ledger.nulls import NullRate
from tradewind.run.readings import StepReading, quantile, read_steps, token_ages
from tradewind.run.stages import StagesFile, read_stages
from tradewind.run.workspace import Workspace
from tradewind.types import Beat, PoolReport, Record
from tradewind.types.returned import Return, ReturnOrder
from tradewind.types.trust import Pause, Standing

SILENT_S = 15.0
"""A process whose last beat is older is called silent."""
RECENT_S = 60.0
"""Span over which user latency is shown live, in seconds."""


class PoolLine(Record):
    """One pool, as the view shows it."""

    pool: str
    version: int
    lag: int
    """Committed versions that it does not serve yet."""
    state: str
    tokens_per_s: float
    running: int
    waiting: int
    max_batch: int
    dtype: str
    detail: str | None
    age_s: float
    """Since its last report."""
    pinned: int | None = None
    """Version at which it was told to stay."""


class Snapshot(Record):
    """Example: `tradewind status runs/quickstart --json`."""

    name: str
    arm: str
    at: float
    """Unix seconds."""
    stage: str
    """Name of the stage that runs; `waiting` before the first and `finished` after the last."""
    stages_done: tuple[str, ...]
    stages: tuple[str, ...]
    """All stages of this arm, in order."""
    stage_seconds: float
    elapsed_s: float
    """Active seconds of all stages of this arm."""
    left_s: float | None
    """Estimated seconds until this stage ends; None while unknown."""
    step: int
    """Steps done in this stage."""
    steps: int
    """Steps that this stage will take; 0 if it does not count steps."""
    version: int
    rewards: tuple[float, ...]
    """Mean reward per RL step."""
    flat_steps: int = 0
    """Newest RL steps in a row that no group had two different rewards for: they taught nothing."""
    staleness_last: int
    """Largest in the last step."""
    staleness_max: int
    staleness_tokens: dict[int, int]
    """Trained tokens by the number of versions that they were old, over all steps."""
    midtrain_loss: float | None
    heldout: dict[str, PassRate]
    """Per evaluation, so far."""
    rollouts: dict[str, int]
    """By state."""
    pools: tuple[PoolLine, ...]
    user_chats: int
    ttft_ms_p50: float | None
    """Over the last minute."""
    ttft_ms_p99: float | None
    beats: tuple[Beat, ...]
    nulls_by_task: tuple[NullRate, ...] = ()
    """The tasks with the most nulls; only `tradewind status` asks for them."""
    judges: tuple[Standing, ...] = ()
    """Where the judges of the reward stand; as above."""
    judges_away: dict[str, str] = Field(default_factory=dict)
    """Judges that do not answer and are left alone, in words; as above."""
    paused: Pause | None = None
    """Why no training group is leased, if so."""
    tasks_set_aside: dict[str, str] = Field(default_factory=dict)
    """Tasks that are not drawn any more, each with its cause; as above."""
    returns: tuple[Return, ...] = ()
    """Each time that the trainer went back to an earlier version."""
    return_order: ReturnOrder | None = None
    """Where it is to go back to, if it has not yet."""

    @property
    def place(self) -> str:
        """`stage 2 of 5`; empty before the first stage and after the last."""
        if self.stage not in self.stages:
            return ""
        return f"stage {self.stages.index(self.stage) + 1} of {len(self.stages)}"

    @property
    def went_back(self) -> str | None:
        """One sentence about the trainer's way back, the one to come or the last one."""
        if self.return_order is not None:
            return self.return_order.sentence
        return self.returns[-1].sentence if self.returns else None

    @property
    def waits(self) -> tuple[Beat, ...]:
        """Living processes that wait for somebody; while mid-training runs, only its own waits,
        because nobody needs the others then.
        """
        needed = [b for b in self.beats if self.stage != "midtrain" or b.process == "trainer"]
        return tuple(b for b in needed if b.waiting_for and self.at - b.at < SILENT_S)


def take_snapshot(workspace: Workspace, now: float | None = None) -> Snapshot:
    """Read where the arm in `workspace` stands; its ledger and stages file must exist."""
    at = time.time() if now is None else now
    stages = read_stages(workspace.stages)
    with Ledger.open(workspace.ledger) as ledger:
        return _compose(ledger, stages, at)


def with_details(workspace: Workspace, snapshot: Snapshot) -> Snapshot:
    """The same with judges and single tasks, which takes a look at every rollout."""
    with Ledger.open(workspace.ledger) as ledger:
        standings = [ledger.standing(j.signal, j.version) for j in ledger.judges()]
        found = {
            "nulls_by_task": tuple(ledger.null_rates()),
            "tasks_set_aside": ledger.set_aside(),
            "judges": tuple(standing for standing in standings if standing is not None),
            "judges_away": {name: told.detail for name, told in ledger.judges_away().items()},
            "paused": ledger.paused(),
        }
        return snapshot.model_copy(update=found)


def read_losses(ledger: Ledger) -> list[tuple[int, float]]:
    """Held-out loss of mid-training per step, in nats per token."""
    return [(int(step), float(loss)) for step, loss in ledger.meta("midtrain_heldout", [])]


def _compose(ledger: Ledger, stages: StagesFile, at: float) -> Snapshot:
    with ledger.read() as conn:
        steps = read_steps(conn)
    counts, reports = ledger.counts(), ledger.pools()
    stage, seconds = _stage(stages)
    progress, planned = _progress(ledger, stages, stage, steps)
    chats = [c for c in ledger.user_chats(since=at - RECENT_S) if c.ttft_s is not None]
    times = [c.ttft_s * 1e3 for c in chats if c.ttft_s is not None and not c.error]
    losses = read_losses(ledger)
    share = progress / planned if planned else 0.0
    return Snapshot(
        name=str(ledger.meta("name", "")),
        arm=stages.arm,
        at=at,
        stage=stage,
        stages_done=tuple(s.name for s in stages.stages if s.finished_at is not None),
        stages=tuple(s.name for s in stages.stages),
        stage_seconds=seconds,
        elapsed_s=sum(s.seconds for s in stages.stages),
        left_s=seconds * (1 - share) / share if share > 0 else None,
        step=progress,
        steps=planned,
        version=counts.version,
        rewards=tuple(s.reward for s in steps),
        flat_steps=len(list(takewhile(lambda s: s.mixed == 0.0, reversed(steps)))),
        staleness_last=max(steps[-1].staleness, default=0) if steps else 0,
        staleness_max=max((s for step in steps for s in step.staleness), default=0),
        staleness_tokens=token_ages(steps),
        midtrain_loss=losses[-1][1] if losses else None,
        heldout={e: ledger.eval_result(e).overall for e in ledger.evals()},
        rollouts=counts.rollouts,
        pools=tuple(_pool_line(report, counts.version, at) for report in reports),
        user_chats=counts.user_chats,
        ttft_ms_p50=quantile(times, 0.50),
        ttft_ms_p99=quantile(times, 0.99),
        beats=(*_refusals(reports), *ledger.beats()),
        returns=tuple(ledger.returns()),
        return_order=ledger.return_order(),
    )


def _refusals(reports: Iterable[PoolReport]) -> Iterator[Beat]:
    """Pools that stay behind because a version failed its proof: everybody else waits for them."""
    for report in reports:
        if report.quarantined:
            newest = report.quarantined[-1]
            yield Beat(
                process=f"pool {report.pool}",
                doing=f"version {report.version}",
                waiting_for=f"a version that it can prove, {newest.reason}",
                owner=f"pool {report.pool}",
                since=newest.at,
                at=report.at,
            )


def _stage(stages: StagesFile) -> tuple[str, float]:
    """Name and active seconds of the first stage that is not done."""
    if all(s.started_at is None for s in stages.stages):
        return "waiting", 0.0
    for stage in stages.stages:
        if stage.finished_at is None:
            return stage.name, stage.seconds
    return "finished", 0.0


def _progress(
    ledger: Ledger, stages: StagesFile, stage: str, steps: list[StepReading]
) -> tuple[int, int]:
    """Units done and to do in the stage: tasks of an evaluation, steps of training."""
    if stage.startswith("eval-"):
        name = stage.removeprefix("eval-")
        if name not in ledger.evals():
            return 0, 0
        result = ledger.eval_result(name)
        return result.done, result.total
    planned = stages.planned.get(stage, 0)
    if stage == "rl":
        return len(steps), planned
    if stage == "midtrain":
        return int(ledger.meta("midtrain_step", 0)), planned
    return 0, 0


def _pool_line(report: PoolReport, version: int, at: float) -> PoolLine:
    return PoolLine(
        pool=report.pool,
        version=report.version,
        lag=max(0, version - report.version),
        state=report.state.value,
        tokens_per_s=report.tokens_per_s,
        running=report.running,
        waiting=report.waiting,
        max_batch=report.max_batch,
        dtype=report.dtype,
        detail=report.detail,
        pinned=report.pinned,
        age_s=max(0.0, at - report.at),
    )
