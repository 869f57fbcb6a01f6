"""The order desk's reward: each piece of the language once, and what the formula makes of it."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tradewind.rewards.compose import compose_group
from tradewind.rewards.config import Composition, Role
from tradewind.rewards.registry import open_signal
from tradewind.rewards.signal import Kind
from tradewind.run.cli import app
from tradewind.run.recipe import read_recipe
from tradewind.run.reward_file import read_reward
from tradewind.types import Score

FILE = Path(__file__).parents[2] / "examples/orderdesk/rewards.toml"
JUDGE = "says-what-was-counted"


@pytest.fixture
def reward(tmp_path: Path) -> Composition:
    return read_reward(FILE, tmp_path).composition


def earned(reward: Composition, trust: float, **values: float) -> float | None:
    right = {"rows": 1.0, "right-rows": 1.0, "numbers-from-rows": 1.0, JUDGE: 1.0}
    said = {
        **right,
        "work": 0.0,
        "exploits": 0.0,
        **{k.replace("_", "-"): v for k, v in values.items()},
    }
    scores = [
        Score(rollout_id="g000000-r0", source=name, source_version="1", value=value)
        for name, value in said.items()
    ]
    (found,) = compose_group(reward, [scores], {JUDGE: trust}).rewards
    return found


def test_it_is_a_recipe_and_a_reward_file_that_shows_every_role_but_the_tripwire(tmp_path):
    shown = CliRunner().invoke(app, ["run", str(FILE), "--dry-run"], catch_exceptions=False)
    assert shown.exit_code == 0 and JUDGE in shown.output
    as_recipe, alone = read_recipe(FILE).grader, read_reward(FILE, tmp_path).composition
    assert [s.name for s in as_recipe.signals] == [s.name for s in alone.signals]
    assert {signal.role for signal in alone.signals} == set(Role) - {Role.TRIPWIRE}


def test_its_signals_open(reward, tmp_path, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", "a key")
    with contextlib.closing(sqlite3.connect(tmp_path / "orderdesk.sqlite")) as database:
        database.execute("create table orders (id)")
    monkeypatch.chdir(FILE.parent)
    kinds = {}
    for signal in reward.signals:
        with contextlib.closing(open_signal(signal)) as opened:
            kinds[signal.name] = opened.kind
    assert set(kinds) == {signal.name for signal in reward.signals}
    assert (kinds["rows"], kinds[JUDGE]) == (Kind.EXECUTABLE, Kind.JUDGED)
    assert (kinds["work"], kinds["exploits"]) == (Kind.BEHAVIOUR, Kind.MONITOR)


def test_what_its_comments_say_is_what_the_formula_does(reward):
    assert earned(reward, 1.0) == earned(reward, 0.0) == 1.0
    assert earned(reward, 1.0, rows=0.0) == 0.0, "a shut gate"
    assert earned(reward, 1.0, numbers_from_rows=0.0) == 0.5, "a cap"
    assert earned(reward, 1.0, says_what_was_counted=0.0) == 0.75, "3 of 4 are the verifier's"
    assert earned(reward, 0.0, says_what_was_counted=0.0) == 1.0, "its judge is not trusted"
    assert earned(reward, 1.0, work=5.0) == pytest.approx(0.9), "a penalty"
    assert earned(reward, 1.0, exploits=1.0) == 1.0, "only watched"
