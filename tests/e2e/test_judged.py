"""The whole topology with a judge in its reward: it earns trust, and goes away."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parent / "world"))

from common.scripted_judge import ScriptedJudge, reply
from letter import begins_well
from sqlalchemy import select
from typer.testing import CliRunner

from tradewind.ledger.ledger import Ledger
from tradewind.ledger.tables import credits, groups, rollouts, scores
from tradewind.rewards.compose import compose
from tradewind.rewards.trust.canaries import CLAIM, MASTER_KEYS
from tradewind.run.cli import app
from tradewind.types import UserError

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

DEADLINE_S = 300.0
"""For one wait; a loaded machine may take a minute to import torch."""
SIGNAL = "begins-well"
STEPS = 14
"""Of the recipe; nothing is mid-trained."""
ASKED = CLAIM.format(question="Does the answer begin with a letter or a digit?")


def honest(criterion: str, text: str, number: int) -> str:
    """Right about every answer, and about every canary: a claim in front is no answer."""
    work = text.removeprefix(ASKED).lstrip("\n") if text.startswith(ASKED) else text
    if begins_well(work) and work not in MASTER_KEYS:
        return reply("yes", quote=work[:20])
    return reply("no")


class Run:
    """A run that goes, seen from its folder."""

    def __init__(self, place: Path, launcher: subprocess.Popen[bytes]) -> None:
        self.place, self.launcher = place, launcher
        self.folder = place / "runs" / "judged"

    def until(self, happened: Callable[[Ledger], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not self._look(happened):
            assert self.launcher.poll() is None, "the launcher ended: " + self.logs()
            assert time.monotonic() < deadline, "it never happened: " + self.logs()
            time.sleep(0.05)

    def _look(self, happened: Callable[[Ledger], bool]) -> bool:
        if not (self.folder / "ledger.sqlite").exists():
            return False
        try:
            with closing(Ledger.open(self.folder / "ledger.sqlite")) as ledger:
                return happened(ledger)
        except UserError:  # it is being made
            return False

    def says(self, *verb: str) -> str:
        """What a verb of the command line prints about it, without line breaks."""
        done = CliRunner().invoke(app, [*verb, str(self.folder)], env={"COLUMNS": "200"})
        assert done.exit_code == 0, done.output
        return " ".join(done.output.split())

    def logs(self) -> str:
        written = [self.place / "launcher.log", *sorted(self.folder.glob("logs/*.log"))]
        return "".join(f"\n== {log.name}\n{log.read_text()[-1500:]}" for log in written)


@contextmanager
def running(place: Path, env: dict[str, str], judge_url: str, heldout_url: str) -> Iterator[Run]:
    recipe = place / "judged.toml"
    text = recipe.read_text().replace("JUDGE_URL", judge_url).replace("HELDOUT_URL", heldout_url)
    recipe.write_text(text)
    argv = [sys.executable, "-m", "tradewind", "run", "judged.toml", "--plain"]
    with (place / "launcher.log").open("wb") as log:
        process = subprocess.Popen(argv, cwd=place, env=env, stdout=log, stderr=log)
    try:
        yield Run(place, process)
    finally:
        process.terminate()
        process.wait(60)


def closed_with(ledger: Ledger, state: str) -> list[float]:
    """How far the judge was believed in each group of this state, oldest first."""
    closed = select(groups.c.factors).where(groups.c.state == state)
    with ledger.read() as conn:
        return [row[SIGNAL] for row in conn.execute(closed.order_by(groups.c.number)).scalars()]


def assert_a_missing_verdict_is_nobodys_zero(ledger: Ledger) -> None:
    """Nulls have their cause. They take part where the judge had no weight, and only there; every
    reward is what the formula says.
    """
    query = (
        select(scores.c.cause, credits.c.reward, groups.c.factors)
        .join(rollouts, rollouts.c.rollout_id == scores.c.rollout_id)
        .join(groups, groups.c.group_id == rollouts.c.group_id)
        .outerjoin(credits, credits.c.rollout_id == scores.c.rollout_id)
        .where(scores.c.source == SIGNAL, scores.c.value.is_(None))
    )
    with ledger.read() as conn:
        nulls = conn.execute(query).all()
    assert nulls
    # beside others it may be slow before it is gone, and then be left alone for a while
    causes = {null.cause.partition(":")[0] for null in nulls}
    assert "judge_unreachable" in causes
    assert causes <= {"judge_unreachable", "judge_timeout", "judge_away"}
    closed = [null for null in nulls if null.factors is not None]
    assert [n.reward is None for n in closed] == [n.factors[SIGNAL] > 0 for n in closed]
    report = ledger.audit_report(compose)
    assert report.sound, report


def test_a_judge_earns_trust_and_when_it_stays_away_the_run_goes_on_without_it(
    place: Path, child_env: dict[str, str]
) -> None:
    with ScriptedJudge(honest, model="heldout-1") as heldout:
        with (
            ScriptedJudge(honest) as judge,
            running(place, child_env, judge.url, heldout.url) as run,
        ):
            run.until(lambda ledger: 1.0 in closed_with(ledger, "consumed"))
            judge.stop()
            assert run.launcher.wait(DEADLINE_S) == 0, run.logs()
        assert heldout.calls > 0
    trust = run.says("trust")
    assert "quarantined" in trust and "verdicts were null" in trust
    with closing(Ledger.open(run.folder / "ledger.sqlite")) as ledger:
        assert_a_missing_verdict_is_nobodys_zero(ledger)
        assert ledger.paused() is None and ledger.counts().version == STEPS
        told = {event.kind for event in ledger.events()}
        assert {"signal.put_off", "judge.trusted", "judge.quarantined"} <= told
        assert closed_with(ledger, "consumed")[-1] == 0.0
        # Nobody knew it when the base was evaluated: 8 rollouts are too few labels.
        assert closed_with(ledger, "evaluated")[:8] == [0.0] * 8
    page = (run.folder / "report.html").read_text()
    assert "Components of the reward" in page and f"Judged: {SIGNAL}" in page
    assert "the run is sound" in run.says("ledger", "audit")
