"""Tasks, episodes and verdicts, in few words."""

from __future__ import annotations

from typing import Any

from tradewind.rewards.config import SignalConfig
from tradewind.rewards.registry import open_signal
from tradewind.rewards.signal import Signal, Verdict
from tradewind.types import Outcome, Task
from tradewind.types.episode import Episode


def a_task(reference: dict[str, Any], **task_input: Any) -> Task:
    return Task(task_id="t-0001", kind="k", split="train", input=task_input, reference=reference)


def verdict(signal: Signal, task: Task | dict[str, Any], **artefacts: Any) -> Verdict:
    if isinstance(task, dict):
        task = a_task(task)
    outcome = Outcome(status="completed", artefacts=artefacts)
    return signal.score(Episode(rollout_id="g000001-r0", task=task, outcome=outcome))


def opened(use: str, **options: Any) -> Signal:
    return open_signal(SignalConfig(use=use, options=options))
