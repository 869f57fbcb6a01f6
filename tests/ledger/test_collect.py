"""Payloads that no row names go, after a while; what a row names never does."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from common import s3
from typer.testing import CliRunner

from tradewind.ledger.ledger import Ledger
from tradewind.run.cli import app
from tradewind.types import Conflict, UserError

HOUR = 3600.0


def orphan(play) -> str:
    """The payload of a turn that came after its rollout's end."""
    play.ledger.open_training_group(1)
    rollout = play.lease().rollout_id
    play.finish(rollout)
    before = names(play)
    with pytest.raises(Conflict):
        play.ledger.write_intent(play.turn(rollout))
    (left,) = names(play) - before
    return left


def names(play) -> set[str]:
    return {found.key.rpartition("/")[2] for found in play.ledger.payloads.kept()}


def age(bucket: Path, seconds: float) -> None:
    for path in bucket.rglob("*"):
        if path.is_file():
            os.utime(path, (time.time() - seconds,) * 2)


def test_what_no_row_names_is_deleted_once_it_is_old_and_all_else_is_kept(play):
    play.closed_group()
    play.train(1)
    needed, left = names(play), orphan(play)
    assert left not in needed
    young = play.ledger.collect_payloads(HOUR)
    assert (young.unused, young.young, young.kept) == (0, 1, len(needed))
    age(play.bucket, 2 * HOUR)
    dry = play.ledger.collect_payloads(HOUR, dry_run=True)
    assert (dry.unused, dry.deleted, left in names(play)) == (1, False, True)
    done = play.ledger.collect_payloads(HOUR)
    assert done.unused_bytes == dry.unused_bytes > 0
    assert names(play) == needed
    assert play.ledger.audit() == []


def test_an_old_payload_that_is_written_again_is_young(play):
    payloads = play.ledger.payloads
    name = payloads.put('{"a":1}')
    age(play.bucket, 2 * HOUR)
    assert payloads.put('{"a":1}') == name
    assert play.ledger.collect_payloads(HOUR).unused == 0


def test_place_that_another_ledger_shares_is_left_alone(play, tmp_path):
    play.closed_group()
    other = Ledger.open(tmp_path / "other.sqlite", play.bucket.as_uri())
    theirs = other.payloads.put('{"theirs":1}')
    age(play.bucket, 2 * HOUR)
    for ledger in (play.ledger, other):
        with pytest.raises(UserError, match="other ledgers keep their payloads here"):
            ledger.collect_payloads(HOUR)
    assert theirs in names(play)
    other.close()


def test_an_object_store_is_collected_too(tmp_path, monkeypatch, make_play):
    with s3.moto() as url:
        for name, value in s3.environment(url).items():
            monkeypatch.setenv(name, value)
        play = make_play(tmp_path / "ledger.sqlite", f"s3://{s3.BUCKET}/run", tasks=2)
        play.closed_group()
        needed, left = names(play), orphan(play)
        assert play.ledger.collect_payloads(HOUR).young == 1
        assert play.ledger.collect_payloads(-HOUR).unused == 1  # an hour from now
        assert names(play) == needed and left not in needed
        play.ledger.close()


def test_verb_says_what_it_did(tmp_path, make_play):
    play = make_play(tmp_path / "ledger.sqlite", tmp_path / "bucket", tasks=2)
    orphan(play)
    age(play.bucket, 2 * HOUR)
    play.ledger.close()
    run = ["ledger", "collect", str(tmp_path), "--grace-hours", "1"]
    told = CliRunner().invoke(app, [*run, "--dry-run"])
    assert "1 payloads" in told.output and "would be deleted" in told.output
    (found,) = json.loads(CliRunner().invoke(app, [*run, "--json"]).output)
    assert (found["unused"], found["deleted"]) == (1, True)
