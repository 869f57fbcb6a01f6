"""A ledger with a few tasks, and the parts of every other process played in one line each."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from common import postgres

from tradewind.ledger.ledger import Ledger
from tradewind.ledger.rollouts import LeasedRollout, LeaseTerms
from tradewind.types import (
    Completion,
    Composed,
    Outcome,
    Score,
    Step,
    Task,
    Turn,
    TurnState,
    VersionSpan,
    WeightVersion,
    turn_id,
)


def group_mean(rewards, resolution):
    known = [r for r in rewards if r is not None]
    mean = sum(known) / len(known)
    return [None if r is None else r - mean for r in rewards]


def only_score(composition, graded, trust):
    return Composed(rewards=tuple(scores[0].value for scores in graded))


class Play:
    """Plays controller, worker, gateway, grader and trainer against one ledger file."""

    terms = LeaseTerms(ttl_s=10.0, deadline_s=100.0, max_running=1000)

    def __init__(
        self, path: Path | str, bucket: Path | str, *, tasks: int, heldout: int = 3
    ) -> None:
        self.path, self.bucket = path, bucket
        self.now = 1000.0
        self.ledger = Ledger.open(path, bucket if isinstance(bucket, str) else bucket.as_uri())
        self.ledger.create_run({"run_id": "test", "seed": 7})
        train = [self.task(i, "train", f"k{i % 2}") for i in range(tasks)]
        held = [self.task(100 + i, "heldout", f"k{i}") for i in range(heldout)]
        self.ledger.add_tasks(train + held)
        self.ledger.commit_version(self.version(0))

    @staticmethod
    def task(number: int, split: str, kind: str = "k") -> Task:
        return Task(
            task_id=f"t-{number:04d}",
            kind=kind,
            split=split,
            input={"question": f"q{number}"},
            reference={"sql": "SELECT 1"},
        )

    @staticmethod
    def version(number: int, state: str = "s") -> WeightVersion:
        return WeightVersion(
            version=number,
            state_id=f"{state}{number}",
            parent_state_id=None if number == 0 else f"s{number - 1}",
            manifest=f"manifests/{number}",
            stage="rl" if number else "base",
            bytes_shipped=10,
            bytes_full=1000,
        )

    def reopen(self) -> Ledger:
        """What a process sees that was killed here and started again."""
        self.ledger.close()
        self.ledger = Ledger.open(self.path)
        return self.ledger

    def lease(self, served=()) -> LeasedRollout | None:
        return self.ledger.lease_next("w1", self.now, self.terms, served)

    def turn(self, rollout: str, index: int = 0, *, parent: Turn | None = None) -> Turn:
        prompt = (1, 2, 3)
        if parent is not None:
            prompt = (*parent.prompt_ids, *parent.completion.output_ids, 9)
        return Turn(
            turn_id=turn_id(rollout, index),
            rollout_id=rollout,
            index=index,
            parent=None if parent is None else parent.turn_id,
            state="intent",
            prompt_ids=prompt,
            completion=None,
            temperature=1.0,
            messages=({"role": "user", "content": "q"},),
            started_at=self.now,
        )

    def answered(self, turn: Turn, *versions: int) -> Turn:
        done = Completion(
            output_ids=tuple(range(5, 5 + len(versions))),
            logprobs=tuple(-0.5 for _ in versions),
            spans=tuple(VersionSpan(version=v, count=1) for v in versions),
            finish_reason="stop",
            pool="paris",
        )
        return turn.model_copy(
            update={
                "state": TurnState.DONE,
                "completion": done,
                "text": "SELECT 1",
                "finished_at": self.now,
            }
        )

    def chat(self, rollout: str, *versions: int, index: int = 0, parent=None) -> Turn:
        turn = self.turn(rollout, index, parent=parent)
        self.ledger.write_intent(turn)
        done = Turn.model_validate(self.answered(turn, *(versions or (0,))).model_dump())
        self.ledger.finish_turn(done)
        return done

    def finish(self, rollout: str, status: str = "completed", **artefacts) -> None:
        outcome = Outcome(status=status, artefacts=artefacts, detail="x" if artefacts else None)
        self.ledger.finish(rollout, outcome, self.now)

    def score(self, rollout: str, value: float | None, cause: str | None = None) -> Score:
        if value is None and cause is None:
            cause = "env_error: the product is down"
        return Score(
            rollout_id=rollout, source="rows", source_version="1", value=value, cause=cause
        )

    def rollout(self, value: float | None = 1.0, *versions: int, served=(), cause=None) -> str:
        """Lease, call the model once, report, grade."""
        leased = self.lease(served)
        assert leased is not None, "nothing to lease"
        self.chat(leased.rollout_id, *versions)
        self.finish(leased.rollout_id)
        claimed = self.ledger.claim_finished("g1", 100, self.now, 10.0)
        assert leased.rollout_id in [c.rollout_id for c in claimed]
        score = self.score(leased.rollout_id, value, cause)
        self.ledger.write_scores(leased.rollout_id, [score])
        return leased.rollout_id

    def close(self) -> list[str]:
        return self.ledger.close_ready(only_score, group_mean)

    def closed_group(self, *versions: int, size: int = 2) -> str:
        group = self.ledger.open_training_group(size)
        for index in range(size):
            self.rollout(float(index % 2), *versions)
        assert self.close() == [group.group_id]
        return group.group_id

    def step(self, number: int, *group_ids: str, version: int | None = None) -> Step:
        return Step(
            step=number,
            version=number + 1 if version is None else version,
            group_ids=group_ids,
            metrics={"loss/policy/mean": 0.1},
            seconds=1.0,
            committed_at=self.now,
        )

    def train(self, n: int, max_staleness: int = 2) -> Step | None:
        """Claim, commit the next step; None if too few groups are closed."""
        last = self.ledger.last_step()
        number = 0 if last is None else last.step + 1
        claimed = self.ledger.claimable(n, number, max_staleness)
        if not claimed:
            return None
        step = self.step(number, *(c.group.group_id for c in claimed))
        self.ledger.commit_step(step, self.version(number + 1))
        return step


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a database with the ledger's tables, from which others are copied."""
    if postgres.programs() is None:
        pytest.skip(postgres.MISSING)
    with postgres.server(fsync="off", full_page_writes="off") as url:
        template = postgres.new_database(url)
        Ledger.open(template).close()
        yield template


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    """A place for a ledger, on both kinds of database in turn."""
    if request.param == "sqlite":
        return tmp_path / "ledger.sqlite"
    return postgres.new_copy(request.getfixturevalue("postgres_server"))


@pytest.fixture(scope="session")
def make_play() -> type[Play]:
    return Play


@pytest.fixture
def play(database: Path | str, tmp_path: Path) -> Iterator[Play]:
    played = Play(database, tmp_path / "bucket", tasks=6)
    with contextlib.ExitStack() as at_the_end:
        at_the_end.callback(lambda: played.ledger.close())
        yield played
        assert played.ledger.audit() == []
