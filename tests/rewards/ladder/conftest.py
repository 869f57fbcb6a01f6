"""A run's record: real order desk tasks, real queries as answers, graded by a real grader."""

from __future__ import annotations

import functools
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

from common.turns import answered

from orderdesk import product
from orderdesk.questions import make_tasks
from tradewind.algo.advantages import group_mean
from tradewind.grader.config import GraderConfig
from tradewind.grader.main import Grader
from tradewind.ledger.ledger import Ledger
from tradewind.ledger.rollouts import LeaseTerms
from tradewind.rewards.admission.mutants import mutants
from tradewind.rewards.compose import compose
from tradewind.rewards.config import SignalConfig
from tradewind.types import Outcome, Task

GROUPS, SIZE = 10, 4
SIGNALS = '''
import random

DRAW = random.Random(3)

def form(task, outcome):
    """It looks like a query: necessary, not enough."""
    sql = str(outcome["artefacts"].get("sql"))
    return float(sql.lower().startswith("select") and " from " in sql)

def nearly(task, outcome):
    """Right, but for one task in twenty, where it is fooled."""
    right = outcome["artefacts"].get("sql") == task["reference"]["sql"]
    return float(right or len(task["reference"]["sql"]) % 20 == 0)

def coin(task, outcome):
    return float(DRAW.random() < 0.5)

def always(task, outcome):
    return 1.0

def broken(task, outcome):
    raise RuntimeError("no luck")

def strict(task, outcome):
    """Only the reference, letter by letter."""
    return float(outcome["artefacts"].get("sql") == task["reference"]["sql"])
'''


@dataclass
class Desk:
    """The order desk's files and its tasks."""

    folder: Path
    tasks: list[Task]

    @property
    def database(self) -> Path:
        return self.folder / "orderdesk.sqlite"

    @property
    def rows(self) -> SignalConfig:
        return SignalConfig(use="resultset", options={"database": str(self.database)})

    def signal(self, name: str, **changes: object) -> SignalConfig:
        return SignalConfig(name=name, use=f"{self.folder}/signals.py:{name}", **changes)


@pytest.fixture(scope="session")
def desk(tmp_path_factory) -> Desk:
    folder = tmp_path_factory.mktemp("desk")
    (folder / "signals.py").write_text(SIGNALS)
    product.create(folder / "orderdesk.sqlite", 7)
    rows = make_tasks(folder / "orderdesk.sqlite", 7)
    train = [Task.model_validate(row) for row in rows if row["split"] == "train"]
    return Desk(folder, train[:: len(train) // 30])


def answer(task: Task, draw: random.Random) -> str:
    """The right query or one with a small error, half and half; a tenth in words of its own."""
    sql, chance = task.reference["sql"], draw.random()
    if chance < 0.1:
        return f"select * from ({sql})"
    if chance < 0.5:
        return str(sql)
    return str(draw.choice(mutants({"sql": sql}, 8)).artefacts["sql"])


@pytest.fixture(scope="session")
def once(desk: Desk, tmp_path_factory) -> Callable[[int], Path]:
    """The folder of a run of so many groups, played and graded when first asked for."""

    @functools.cache
    def folder(groups: int) -> Path:
        found: Path = tmp_path_factory.mktemp("played")
        _play(desk, found / "ledger.sqlite", groups).close()
        return found

    return folder


@pytest.fixture
def played(once: Callable[[int], Path], tmp_path: Path) -> Iterator[Callable[..., Ledger]]:
    """A run's ledger of one's own, closed groups and all."""
    opened: list[Ledger] = []

    def copied(groups: int = GROUPS) -> Ledger:
        shutil.copytree(once(groups), tmp_path, dirs_exist_ok=True)
        opened.append(Ledger.open(tmp_path / "ledger.sqlite"))
        return opened[-1]

    yield copied
    for ledger in opened:
        ledger.close()


def _play(desk: Desk, path: Path, groups: int) -> Ledger:
    ledger = Ledger.open(path)
    ledger.create_run({"run_id": "desk", "seed": 7})
    ledger.add_tasks(desk.tasks)
    grader = Grader(GraderConfig(signals=(desk.rows,)), ledger)
    draw = random.Random(1)
    for _ in range(groups):
        ledger.open_training_group(SIZE)
        for _ in range(SIZE):
            _rollout(ledger, {task.task_id: task for task in desk.tasks}, draw)
        with ThreadPoolExecutor(2) as threads:
            while grader.grade_some(threads):
                pass
        ledger.close_ready(compose, group_mean)
    grader.close()
    return ledger


def _rollout(ledger: Ledger, tasks: dict[str, Task], draw: random.Random) -> None:
    terms = LeaseTerms(ttl_s=1e6, deadline_s=1e6, max_running=100)
    leased = ledger.lease_next("w", 100.0, terms, ())
    rollout, sql = leased.rollout_id, answer(tasks[leased.task_id], draw)
    answered(ledger, rollout, text=sql, at=100.0)
    ledger.finish(rollout, Outcome(status="completed", artefacts={"sql": sql}), 102.0)
