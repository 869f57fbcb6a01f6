"""The trainer's stall: what a step pays for being published, proven and saved.

    closed groups in a ledger ──► the trainer, a process of its own ──► metrics/rl.jsonl

The groups are made up (random ids, mixed rewards), in the shape of the quickstart's: prompts that a
group shares, short answers. So no pool runs beside it and no step waits for groups; the trainer
does all that it does in a run: forward, backward, AdamW, probes, encoding, upload, checkpoints,
ledger.

`trainer_stall_share` is the time in which the trainer's main thread neither computed a step nor
waited for groups, over the time of the steps, without the first one: smaller is better.
`publish_seconds_over_step` says how much of a step the publication behind it takes.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tradewind.algo.advantages import group_mean
from tradewind.ledger.ledger import Ledger
from tradewind.ledger.rollouts import LeaseTerms
from tradewind.rewards.compose import compose
from tradewind.types import (
    Completion,
    Outcome,
    Score,
    Task,
    Turn,
    TurnState,
    VersionSpan,
    turn_id,
)

ROOT = Path(__file__).resolve().parents[2]
TERMS = LeaseTerms(ttl_s=1e6, deadline_s=1e6, max_running=10**6)
TRAINER_S = 3600.0
"""Longest that the trainer may take, in seconds."""


@dataclass(frozen=True)
class Size:
    """How much is trained."""

    steps: int
    groups: int
    """In a step."""
    rollouts: int
    """In a group."""
    prompt: int
    """Ids."""
    answer: int


FULL = Size(steps=5, groups=4, rollouts=8, prompt=160, answer=56)
QUICK = Size(steps=3, groups=2, rollouts=4, prompt=24, answer=12)


def fill(ledger: Ledger, size: Size, vocabulary: int) -> None:
    """Closed groups for all steps, as controller, gateway, worker and grader would leave them."""
    draw = random.Random(0)
    ledger.create_run({"run_id": "stall", "seed": 0})
    ledger.add_tasks(
        Task(task_id=f"t{i}", kind="k", split="train", input={}, reference={}) for i in range(9)
    )
    for _ in range(size.steps * size.groups):
        ledger.open_training_group(size.rollouts)
        prompt = tuple(draw.randrange(vocabulary) for _ in range(size.prompt))
        for index in range(size.rollouts):
            lease = ledger.lease_next("w", 1.0, TERMS, ())
            assert lease is not None, "a group that was opened has rollouts"
            answer(ledger, lease.rollout_id, prompt, size, draw)
            ledger.finish(lease.rollout_id, Outcome(status="completed"), 1.0)
            ledger.claim_finished("g", 100, 1.0, 10.0)
            value = float(index % 2)
            score = Score(rollout_id=lease.rollout_id, source="s", source_version="1", value=value)
            ledger.write_scores(lease.rollout_id, [score])
        ledger.close_ready(compose, group_mean)


def answer(
    ledger: Ledger, rollout: str, prompt: tuple[int, ...], size: Size, draw: random.Random
) -> None:
    """One turn of one rollout."""
    output = tuple(draw.randrange(97) for _ in range(size.answer))
    intent = Turn(
        turn_id=turn_id(rollout, 0),
        rollout_id=rollout,
        index=0,
        parent=None,
        state=TurnState.INTENT,
        prompt_ids=prompt,
        completion=None,
        temperature=1.0,
        messages=({"role": "user", "content": "q"},),
        started_at=1.0,
    )
    completion = Completion(
        output_ids=output,
        logprobs=tuple(-8.0 - draw.random() for _ in output),
        spans=(VersionSpan(version=0, count=len(output)),),
        finish_reason="stop",
        pool="none",
    )
    ledger.write_intent(intent)
    done = {"state": TurnState.DONE, "completion": completion, "text": "a", "finished_at": 1.0}
    ledger.finish_turn(intent.model_copy(update=done))


def measure(model: Path, size: Size, scratch: Path) -> list[dict[str, Any]]:
    """Train; the lines of metrics/rl.jsonl."""
    scratch.mkdir(parents=True, exist_ok=True)
    vocabulary = json.loads((model / "config.json").read_text())["vocab_size"]
    ledger = Ledger.open(scratch / "ledger.sqlite")
    fill(ledger, size, vocabulary)
    ledger.close()
    config = {
        "steps": size.steps,
        "groups_per_step": size.groups,
        "max_staleness": size.steps,
        "lr": 3e-5,
        "checkpoint_every": 2,
    }
    (scratch / "trainer.json").write_text(json.dumps(config))
    argv = [sys.executable, "-m", "tradewind.trainer", "--stage", "rl"]
    argv += ["--workspace", str(scratch), "--model", str(model)]
    argv += ["--config", str(scratch / "trainer.json")]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    subprocess.run(argv, env=env, check=True, timeout=TRAINER_S)
    lines = (scratch / "metrics" / "rl.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def figures_of(lines: list[dict[str, Any]]) -> dict[str, float]:
    """Shares of the time of all steps but the first."""
    counted = lines[1:]
    total = sum(line["seconds"] for line in counted)

    def share(name: str) -> float:
        return sum(line[f"trainer/{name}/seconds"] for line in counted) / float(total)

    return {
        "trainer_stall_share": share("stall"),
        "trainer_settle_share": share("settle"),
        "trainer_read_share": share("read"),
        "publish_seconds_over_step": share("publish") + share("probe") + share("checkpoint"),
        "step_seconds": total / len(counted),
    }
