"""A ledger as a short run would leave it, written row by row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import Table, insert

from tradewind.ledger import tables as t
from tradewind.ledger.ledger import Ledger
from tradewind.ledger.user_chats import UserChat
from tradewind.types import Attestation, Beat, PoolReport, PoolState, Split, Task, WeightVersion

T0 = 1_700_000_000.0
MB = 1_000_000


def make_ledger(path: Path) -> Ledger:
    """Two RL steps of two groups of two; `rl` passes 3 of 4 (of the unseen kind 1 of 2)."""
    ledger = Ledger.open(path)
    ledger.create_run({"seed": 1})
    ledger.set_meta("midtrain_heldout", [[0, 3.0], [10, 1.5]])
    kinds = ["seen", "seen", "unseen", "unseen"]
    ledger.add_tasks(
        [task(f"train-{i}", "seen", Split.TRAIN) for i in range(4)]
        + [task(f"held-{i}", kind, Split.HELDOUT) for i, kind in enumerate(kinds)]
    )
    for number in range(3):
        ledger.commit_version(version(number))
    _write_evals(ledger)
    for step in range(2):
        _write_step(ledger, step)
    for number in range(5):
        ledger.record_user_chat(
            UserChat(
                request_id=f"u{number}",
                started_at=T0 + number,
                ttft_s=0.1 * (number + 1) if number < 4 else None,
                seconds=1.0,
                tokens=7,
                version=1,
                pool="paris",
                error=None if number < 4 else "gone",
            )
        )
    ledger.record_pool(report(), now=T0)
    ledger.beat(
        Beat(
            process="trainer",
            doing="step 2",
            waiting_for="2 more closed groups",
            owner="grader",
            since=T0,
            at=T0 + 20,
        )
    )
    return ledger


def task(task_id: str, kind: str, split: Split) -> Task:
    return Task(task_id=task_id, kind=kind, split=split, input={"q": task_id}, reference={})


def version(number: int) -> WeightVersion:
    return WeightVersion(
        version=number,
        state_id=f"b3:{number}",
        parent_state_id=f"b3:{number - 1}" if number else None,
        manifest=f"manifests/{number}.json",
        stage="base" if number == 0 else "midtrain" if number == 1 else "rl",
        bytes_shipped=number * MB,
        bytes_full=100 * MB if number else 0,
    )


def report() -> PoolReport:
    proofs = tuple(
        Attestation(
            pool="paris",
            version=number,
            state_id=f"b3:{number}",
            bytes_fetched=MB,
            stage_s=0.2,
            pause_ms=4.0 * number,
            activated_at=T0 + 10 * number,
        )
        for number in range(2)
    )
    return PoolReport(
        pool="paris",
        url="http://127.0.0.1:1",
        base_state_id="b3:0",
        version=1,
        state=PoolState.SERVING,
        max_batch=8,
        running=3,
        waiting=0,
        tokens_per_s=321.0,
        dtype="float32",
        attestations=proofs,
        at=T0,
    )


def _write_evals(ledger: Ledger) -> None:
    for name, verdicts in (("base", (0.0, 0.0, 0.0, 0.0)), ("rl", (1.0, 1.0, 0.0, 1.0))):
        ledger.request_eval(name, 0)
        with ledger.write() as conn:
            conn.execute(t.evals.update().where(t.evals.c.name == name).values(opened=True))
        for index, reward in enumerate(verdicts):
            number = 100 + index + (10 if name == "rl" else 0)
            write_group(ledger, number, f"held-{index}", [reward], eval_name=name)


def _write_step(ledger: Ledger, step: int) -> None:
    """The first group is mixed, the second is not; the oldest token is `step` versions old."""
    for offset, rewards in enumerate(([1.0, 0.0], [1.0, 1.0])):
        number = 2 * step + offset
        write_group(ledger, number, f"train-{number}", rewards, oldest=1)
    if step:
        ledger.commit_version(version(3))
    _insert(
        ledger,
        t.steps,
        step=step,
        version=2 + step,
        metrics={"trainer/loss/mean": 0.5, f"trainer/staleness/tokens/{step}": 40.0},
        seconds=3.0,
        committed_at=T0 + 30 + step,
    )
    for offset in range(2):
        name = f"g{2 * step + offset:06d}"
        _insert(ledger, t.consumption, group_id=name, step=step, position=offset)


def write_group(
    ledger: Ledger,
    number: int,
    task_id: str,
    rewards: list[float],
    *,
    oldest: int = 0,
    eval_name: str | None = None,
) -> None:
    name = f"g{number:06d}"
    with ledger.together():  # as a real one closes: with its credit
        _insert(
            ledger,
            t.groups,
            group_id=name,
            number=number,
            task_id=task_id,
            purpose="eval" if eval_name else "train",
            size=len(rewards),
            attempt=0,
            eval_name=eval_name,
            opened_version=0,
            min_version=0,
            state="evaluated" if eval_name else "consumed",
            opened_at=T0,
        )
        for index, reward in enumerate(rewards):
            rollout = f"{name}-r{index}"
            _insert(
                ledger,
                t.rollouts,
                rollout_id=rollout,
                group_id=name,
                number=number,
                idx=index,
                priority=1,
                state="graded",
                grader_claims=1,
            )
            mean = sum(rewards) / len(rewards)
            _insert(
                ledger,
                t.credits,
                rollout_id=rollout,
                reward=reward,
                advantage=None if eval_name else reward - mean,
            )
            _insert(
                ledger,
                t.turns,
                turn_id=f"{rollout}-t0",
                rollout_id=rollout,
                idx=0,
                state="done",
                delivered=index == 0,
                oldest_version=oldest,
                newest_version=oldest,
                tokens=10,
                pool="paris",
                started_at=T0,
                finished_at=T0 + 1,
                request="0" * 64,
            )


def _insert(ledger: Ledger, table: Table, **values: Any) -> None:
    known = {key: value for key, value in values.items() if key in table.c}
    with ledger.write() as conn:
        conn.execute(insert(table).values(**known))
