"""The audit: silent on a sound ledger, and it names each way in which one can be wrong."""

from __future__ import annotations

import copy
import json
import re
import shutil
import sqlite3
from pathlib import Path

import pytest
from common import postgres
from typer.testing import CliRunner

from tradewind.ledger.groups import reject
from tradewind.ledger.ledger import Ledger
from tradewind.run.cli import app


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, make_play):
    """Three steps, a group in work, a rejected one that came again, an evaluation with a null."""
    folder = tmp_path_factory.mktemp("finished")
    play = make_play(folder / "ledger.sqlite", folder / "bucket", tasks=6)
    for _ in range(3):
        play.closed_group()
        play.train(1, max_staleness=9)
    first = play.ledger.open_training_group(2)
    with play.ledger.write() as conn:
        reject(conn, first.group_id, "for the test", wait=True)
    play.ledger.open_training_group(2)
    play.ledger.request_eval("base", 0)
    play.ledger.open_eval_groups()
    play.rollout(1.0, served=(0,))
    play.rollout(None, served=(0,))
    play.close()
    assert play.ledger.audit() == []
    play.ledger.close()
    return play


@pytest.fixture
def worked(finished, tmp_path: Path):
    """The same, to be harmed."""
    play = copy.copy(finished)
    play.path = Path(shutil.copy(finished.path, tmp_path))
    return play


def harm(play, *statements: str) -> None:
    """As a bug or a hand in the database could: no key and no constraint stops it."""
    with sqlite3.connect(play.path) as conn:
        for statement in statements:
            done = conn.execute(statement)
            assert done.rowcount != 0, f"changed nothing: {statement}"
    conn.close()


WRONG = {
    "a prompt that was skipped": ("DELETE FROM draws WHERE draw = 1", "draw 1 was skipped"),
    "a prompt out of the seed's order": (
        "UPDATE draws SET task_id = (SELECT task_id FROM draws WHERE draw = 2) WHERE draw = 1",
        "draw 1 took task t-.*, not the one the seed puts there",
    ),
    "a held-out prompt": (
        "UPDATE draws SET task_id = 't-0100' WHERE draw = 0",
        "draw 0 took t-0100, a held-out task",
    ),
    "a prompt that nobody works on": (
        "UPDATE groups SET state = 'rejected', cause = 'x' WHERE state = 'open' AND draw = 3",
        "draw 3 is open with 0 live groups",
    ),
    "a prompt that counts as trained and was not": (
        "UPDATE draws SET state = 'consumed' WHERE draw = 3",
        "draw 3 is consumed and was trained 0 times",
    ),
    "an attempt that is not on record": (
        "UPDATE draws SET attempt = 0 WHERE draw = 3",
        "draw 3 was tried again 0 times, 1 were rejected",
    ),
    "a group that vanished": ("DELETE FROM groups WHERE number = 1", "group 1 is missing"),
    "a rejection without a cause": (
        "UPDATE groups SET cause = NULL WHERE state = 'rejected'",
        "g000003 was rejected without a cause",
    ),
    "a rollout that vanished": (
        "DELETE FROM rollouts WHERE rollout_id = 'g000000-r0'",
        "g000000 has 1 rollouts of 2, or a gap",
    ),
    "an evaluation among the draws": (
        "UPDATE groups SET draw = 2 WHERE purpose = 'eval' AND number = 5",
        "g000005 is for eval with draw 2",
    ),
    "a draw that was trained twice": (
        "UPDATE groups SET draw = 0 WHERE number = 1",
        "draw 0 was trained 2 times",
    ),
    "a held-out group that was trained": (
        "INSERT INTO consumption VALUES ('g000005', 2, 1)",
        "g000005 is held out and was trained",
    ),
    "a group that does not exist and was trained": (
        "INSERT INTO consumption VALUES ('g999999', 2, 1)",
        "g999999 does not exist and was trained",
    ),
    "a consumption that the group does not know of": (
        "UPDATE groups SET state = 'closed' WHERE number = 0",
        "g000000 is closed, consumed by step 0",
    ),
    "a group that says that it was consumed": (
        "DELETE FROM consumption WHERE step = 1",
        "g000001 is consumed, consumed by step None",
    ),
    "a step that trained nothing": (
        "DELETE FROM consumption WHERE step = 1",
        r"step 1 consumed groups at the places \[\]",
    ),
    "a step that is not there": (
        "DELETE FROM steps WHERE step = 2",
        "1 groups were trained in step 2, which does not exist",
    ),
    "a step in between that is not there": ("DELETE FROM steps WHERE step = 1", "step 1 is miss"),
    "a version that is not there": (
        "DELETE FROM versions WHERE version = 2",
        "version 2 is missing",
    ),
    "a version on another parent": (
        "UPDATE versions SET parent_state_id = 'x' WHERE version = 2",
        "version 2 does not follow 1",
    ),
    "a version that no step made": (
        "UPDATE versions SET stage = 'rl' WHERE version = 0",
        "version 0 is of stage rl, and no step made it",
    ),
    "a pool that proved other weights": (
        "INSERT INTO attestations (pool, version, activated_at, state_id, bytes_fetched, stage_s,"
        " pause_ms) VALUES ('paris', 1, 1.0, 'other', 1, 1.0, 1.0)",
        "pool paris proved other as version 1",
    ),
    "a verdict that is not there": (
        "DELETE FROM scores WHERE rollout_id = 'g000000-r1'",
        "g000000-r1 is graded without a score",
    ),
    "an outcome that is not there": (
        "DELETE FROM outcomes WHERE rollout_id = 'g000000-r1'",
        "g000000-r1 ended without an outcome",
    ),
    "a null without a cause": (
        "UPDATE scores SET cause = NULL WHERE value IS NULL",
        "has a null score without a cause",
    ),
    "a null that counts": (
        'UPDATE rollouts SET "null" = 0 WHERE "null" = 1',
        "counts as graded, scores differ",
    ),
    "a failure of the platform that was graded": (
        "UPDATE outcomes SET status = 'infra_error' WHERE rollout_id = 'g000000-r1'",
        "g000000-r1 ended with infra_error and was graded",
    ),
    "credit that is not there": (
        "DELETE FROM credits WHERE rollout_id = 'g000000-r1'",
        "g000000 is closed with 1 rewards of 2",
    ),
    "a reward that no score gave": (
        "UPDATE credits SET reward = 0.25 WHERE rollout_id = 'g000000-r1'",
        "g000000-r1 was credited 0.25, its score says 1.0",
    ),
    "an advantage without a reward": (
        "UPDATE credits SET reward = NULL WHERE rollout_id = 'g000000-r1'",
        "g000000-r1 has reward None and advantage",
    ),
    "a rollout of no worker": (
        "UPDATE rollouts SET worker = NULL WHERE rollout_id = 'g000000-r1'",
        "g000000-r1 was trained, and no worker is named",
    ),
    "a verdict of an unknown grader": (
        "UPDATE scores SET source_version = '' WHERE rollout_id = 'g000000-r1'",
        "g000000-r1 has a score without a source and its version",
    ),
    "a rollout without turns": (
        "DELETE FROM turns WHERE rollout_id = 'g000000-r1'",
        "g000000-r1 was trained without a token",
    ),
    "tokens that are another turn's": (
        "UPDATE turns SET request = (SELECT request FROM turns WHERE rollout_id = 'g000001-r0'),"
        " answer = (SELECT answer FROM turns WHERE rollout_id = 'g000001-r0')"
        " WHERE rollout_id = 'g000000-r1'",
        "names the payload of g000001-r0",
    ),
    "tokens that are miscounted": (
        "UPDATE turns SET tokens = 7 WHERE rollout_id = 'g000000-r1'",
        "is counted as .* its tokens say otherwise",
    ),
    "tokens of a version that is not their own": (
        "UPDATE turns SET oldest_version = 1 WHERE rollout_id = 'g000000-r1'",
        "is counted as .* its tokens say otherwise",
    ),
    "tokens that were too old": (
        "UPDATE steps SET metrics = '{\"trainer/staleness/bound\": 1.0}'",
        "g000002-r0 was trained in step 2 with tokens 2 versions old, the bound is 1",
    ),
    "a payload that is gone": (
        "UPDATE turns SET answer = 'ffffffff' WHERE rollout_id = 'g000000-r1'",
        "turn g000000-r1.*: payload ffffffff in file://.* is missing",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_each_way_to_be_wrong_is_named(worked, wrong):
    statement, sentence = WRONG[wrong]
    harm(worked, statement)
    found = worked.reopen().audit()
    worked.ledger.close()
    assert any(re.search(sentence, line) for line in found), found


def test_a_sound_run_is_a_table_and_exit_code_0(worked):
    told = CliRunner().invoke(app, ["ledger", "audit", str(worked.path)])
    assert told.exit_code == 0, told.output
    assert "every prompt is accounted for" in told.output
    assert "4 draws: 3 trained, 1 in work" in " ".join(told.output.split())
    assert "sound" in told.output


def test_each_violation_is_a_sentence_and_the_exit_code_is_1(worked):
    harm(worked, "DELETE FROM draws WHERE draw = 1", "DELETE FROM scores WHERE value = 1.0")
    told = CliRunner().invoke(app, ["ledger", "audit", str(worked.path)])
    assert told.exit_code == 1
    assert "draw 1 was skipped" in told.output
    assert "g000000-r1 is graded without a score" in told.output


def test_the_same_as_json(worked):
    told = CliRunner().invoke(app, ["ledger", "audit", str(worked.path), "--json"])
    assert told.exit_code == 0
    (audited,) = json.loads(told.output)
    assert audited["sound"] is True and audited["run"] == "test"
    assert audited["trained_by"]["graders"] == {"rows 1": 6}
    assert audited["trained_by"]["pools"] == {"paris": 6}
    harm(worked, "DELETE FROM draws WHERE draw = 1")
    told = CliRunner().invoke(app, ["ledger", "audit", str(worked.path), "--json"])
    assert told.exit_code == 1
    assert "draw 1 was skipped" in json.loads(told.output)[0]["violations"]


def test_no_password_is_printed(postgres_server, monkeypatch):
    """The trust of our own server takes any password."""
    monkeypatch.setenv("PGPASSWORD", "open-sesame")
    shown = postgres.new_copy(postgres_server)
    Ledger.open(shown, "file:///nowhere").close()
    for options in ([], ["--json"]):
        told = CliRunner().invoke(app, ["ledger", "audit", shown, *options])
        assert told.exit_code == 0, told.output
        assert "open-sesame" not in told.output and "tradewind@" in told.output


def test_what_is_no_ledger_is_a_sentence(tmp_path):
    told = CliRunner().invoke(app, ["ledger", "audit", str(tmp_path)])
    assert "there is no ledger here" in str(told.exception)
    assert list(tmp_path.iterdir()) == [], "and none was made"


def test_the_audit_reads_both_databases(play):
    play.closed_group()
    play.train(1)
    report = play.ledger.audit_report()
    assert report.sound and report.trained_by["versions"] == {"0": 2}
