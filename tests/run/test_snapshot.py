from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from synthetic import T0, make_ledger, report, version

from tradewind.ledger.ledger import Ledger
from tradewind.ledger.nulls import NullRate
from tradewind.run.live import JsonView, Pace, PlainView, line, panel, sparkline
from tradewind.run.show import nulls_table, status_table
from tradewind.run.snapshot import Snapshot, take_snapshot, with_details
from tradewind.run.stages import Stages
from tradewind.run.watch import stalled
from tradewind.run.workspace import Workspace
from tradewind.types.returned import ReturnOrder
from tradewind.types.weights import Quarantine


@pytest.fixture
def snapshot(tmp_path: Path) -> Snapshot:
    workspace = Workspace(tmp_path)
    make_ledger(workspace.ledger).close()
    now = [T0]
    stages = Stages(workspace.stages, "main", ("base", "rl"), {"rl": 8}, clock=lambda: now[0])
    with stages.run("base"):
        now[0] += 30
    stage = stages.run("rl")
    stage.__enter__()
    now[0] += 60
    stages.tick("rl")
    return take_snapshot(workspace, now=T0 + 34)


def test_the_snapshot_names_stage_step_and_time(snapshot: Snapshot) -> None:
    assert (snapshot.stage, snapshot.step, snapshot.steps) == ("rl", 2, 8)
    assert (snapshot.stage_seconds, snapshot.elapsed_s) == (60, 90)
    assert snapshot.left_s == pytest.approx(180)
    assert snapshot.stages_done == ("base",)
    assert snapshot.place == "stage 2 of 2"


def test_the_snapshot_names_lag_staleness_and_waits(snapshot: Snapshot) -> None:
    (pool,) = snapshot.pools
    assert (pool.pool, pool.version, pool.lag) == ("paris", 1, 2)
    assert (snapshot.staleness_last, snapshot.staleness_max) == (1, 1)
    assert snapshot.staleness_tokens == {0: 40, 1: 40}
    assert [w.process for w in snapshot.waits] == ["trainer"]
    assert snapshot.midtrain_loss == 1.5


def test_a_pool_that_refuses_a_version_is_the_first_reason_for_a_stall(
    snapshot: Snapshot, tmp_path: Path
) -> None:
    """Everybody waited, and nobody said that no pool could prove the version."""
    workspace = Workspace(tmp_path)
    why = "this pool computes other logprobs than the trainer"
    refused = Quarantine(version=2, reason=why, tries=3, at=T0 - 60)
    ledger = Ledger.open(workspace.ledger)
    ledger.record_pool(report().model_copy(update={"quarantined": (refused,)}), now=T0)
    ledger.close()
    error = str(stalled(take_snapshot(workspace, now=T0 + 1), "eval-midtrained", 300.0))
    assert f"pool paris waits 61 s for a version that it can prove, {why}" in error
    assert "(owner: pool paris)" in error
    assert "paris" not in str(stalled(snapshot, "eval-midtrained", 300.0))


def test_every_kind_of_view_says_who_waits_for_whom(snapshot: Snapshot) -> None:
    assert "trainer waits 34 s for 2 more closed groups (grader)" in line(snapshot)
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(panel(snapshot))
    text = console.export_text()
    assert "trainer waits 34 s for 2 more closed groups (grader)" in text
    for word in ("rl", "2/8", "paris", "321", "silent for 34 s", "75.0 % of 4"):
        assert word in text, word


def test_every_view_says_in_one_sentence_that_the_trainer_went_back(
    snapshot: Snapshot, tmp_path: Path
) -> None:
    order = ReturnOrder(back_to=1, who="ana", why="it cheats", at=T0)
    ledger = Ledger.open(Workspace(tmp_path).ledger)
    ledger.ask_return(order)
    to_come = take_snapshot(Workspace(tmp_path), now=T0)
    made = {"stage": "return", "state_id": "b3:1", "parent_state_id": "b3:3"}
    ledger.commit_return(order, version(4).model_copy(update=made))
    ledger.close()
    done = take_snapshot(Workspace(tmp_path), now=T0)
    for shown, said in (
        (to_come, "the trainer is to go back to version 1, ana says: it cheats"),
        (done, "the trainer went back to version 1 as version 4, versions 2 to 3 are withdrawn"),
    ):
        assert said in line(shown)
        console = Console(width=160, record=True, file=io.StringIO())
        console.print(status_table(shown))
        assert said in console.export_text()


def test_plain_lines_come_at_stage_changes_and_every_ten_seconds(snapshot: Snapshot) -> None:
    now, written = [0.0], list[str]()
    view = PlainView(written.append, Pace(10.0, lambda: now[0]))
    for second in range(12):
        now[0] = second
        view.show(snapshot)
    assert len(written) == 2
    view.show(snapshot.model_copy(update={"stage": "eval-rl"}))
    assert len(written) == 3


def test_json_lines_hold_the_whole_snapshot(snapshot: Snapshot) -> None:
    written = list[str]()
    view = JsonView(written.append, Pace(10.0, lambda: 0.0))
    view.show(snapshot)
    view.say("hello", pool="paris")
    first, second = map(json.loads, written)
    assert first.pop("event") == "status"
    assert Snapshot.model_validate(first) == snapshot
    assert (second["event"], second["text"], second["pool"]) == ("say", "hello", "paris")


def test_a_sparkline_rises_with_its_values() -> None:
    assert sparkline([0.0, 0.5, 1.0], 10) == "▁▅█"
    assert sparkline([0.0, 0.5, 1.0], 2) == "▅█"
    assert sparkline([-2.0, 2.0], 5) == "▁█"


def test_idle_processes_are_no_stall_while_mid_training_runs(snapshot: Snapshot) -> None:
    idle = snapshot.waits[0].model_copy(update={"process": "grader"})
    midtraining = snapshot.model_copy(
        update={"stage": "midtrain", "beats": (*snapshot.beats, idle)}
    )
    assert {w.process for w in midtraining.waits} == {"trainer"}
    in_rl = midtraining.model_copy(update={"stage": "rl"})
    assert {w.process for w in in_rl.waits} == {"trainer", "grader"}


def test_status_shows_nulls_by_task(tmp_path: Path) -> None:
    rate = NullRate(
        task_id="t7",
        rollouts=16,
        nulls=4,
        rate=0.25,
        causes={"env_error": 3, "infra_error": 1},
        after_answer=2,
        last="env_error: KeyError: 'sku'",
    )
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(nulls_table([rate]))
    text = console.export_text()
    for words in ("t7", "4 (25%)", "3 env_error, 1 infra_error", "KeyError: 'sku'"):
        assert words in text, words


def test_nulls_are_read_only_when_asked_for(snapshot: Snapshot, tmp_path: Path) -> None:
    assert snapshot.nulls_by_task == ()
    counted = with_details(Workspace(tmp_path), snapshot).nulls_by_task
    ledger = Ledger.open(Workspace(tmp_path).ledger)
    assert sum(rate.nulls for rate in counted) == ledger.counts().nulls
    ledger.close()


def test_every_kind_of_view_says_that_there_is_nothing_to_learn_from(snapshot: Snapshot) -> None:
    """A run whose rewards were all 0 ended like any other."""
    flat = snapshot.model_copy(update={"stage": "rl", "flat_steps": 3})
    console = Console(width=200, file=io.StringIO())
    console.print(panel(flat))
    assert isinstance(console.file, io.StringIO)
    for said in (line(flat), console.file.getvalue()):
        assert "the same in the last 3 steps" in said and "tradewind rollouts" in said
    assert "the same in the last" not in line(flat.model_copy(update={"flat_steps": 1}))
