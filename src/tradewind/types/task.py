"""A task: what the agent is asked, and, kept apart, what a correct result is."""

from __future__ import annotations

from enum import StrEnum

from tradewind.types.record import Json, Record


class Split(StrEnum):
    """Which side of the wall a task stands on."""

    TRAIN = "train"
    """May be rolled out and trained on."""
    HELDOUT = "heldout"
    """Only ever evaluated."""


class Task(Record):
    """One row of a taskset file (JSON lines).

    Example::

        Task(task_id="t-0007", kind="orders_by_city", split="train",
             input={"question": "How many orders came from Porto?"},
             reference={"sql": "SELECT count(*) ...", "ordered": False})
    """

    task_id: str
    """Unique in its taskset."""
    kind: str = "task"
    """Family of the question; held-out results are told apart by kinds seen in training or not."""
    split: Split = Split.TRAIN
    input: Json
    """What the worker receives. Opaque to the platform."""
    reference: Json
    """What the grader needs. Never leaves the grader's side: no lease contains it."""
