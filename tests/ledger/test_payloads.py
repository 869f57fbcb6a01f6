"""Token payloads: outside the database, there before their row is, never silently lost."""

from __future__ import annotations

import json
from pathlib import Path

import blake3
import pytest
import zstandard
from common import postgres, s3

from tradewind.ledger.ledger import Ledger
from tradewind.ledger.payloads import SCHEMA, LostPayload, Payloads
from tradewind.types import GroupState, UserError


def stored(play) -> list[Path]:
    return sorted(path for path in (play.bucket / "payloads").rglob("*") if path.is_file())


def test_the_database_holds_hashes_and_the_bucket_holds_tokens(play):
    play.ledger.open_training_group(1)
    rollout = play.lease().rollout_id
    secret = play.turn(rollout).model_copy(
        update={"messages": ({"role": "user", "content": "a very secret question"},)}
    )
    play.ledger.write_intent(secret)
    play.ledger.finish_turn(play.answered(secret, 0))
    for path in stored(play):
        assert path.name == blake3.blake3(path.read_bytes()).hexdigest()
    texts = [zstandard.ZstdDecompressor().decompress(p.read_bytes()) for p in stored(play)]
    assert sum(b"very secret" in text for text in texts) == 1, "once, not again in the answer"
    if isinstance(play.path, Path):
        play.ledger.close()
        files = b"".join(p.read_bytes() for p in play.path.parent.glob("ledger.sqlite*"))
        assert b"very secret" not in files and b"output_ids" not in files
        play.reopen()


def test_equal_payloads_are_kept_once(play):
    payloads = Payloads.open(play.bucket.as_uri())
    assert payloads.put('{"a":[1,2]}') == payloads.put('{"a":[1,2]}')
    assert len(stored(play)) == 1


def remove(path: Path) -> None:
    path.unlink()


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


@pytest.mark.parametrize(
    ("harm", "cause"), [(remove, "is missing"), (flip_a_bit, "damaged"), (cut_short, "damaged")]
)
def test_a_group_whose_tokens_are_lost_is_rejected_by_name_and_its_prompt_comes_again(
    play, harm, cause
):
    before = set(stored(play))
    lost = play.closed_group()
    mine = sorted(set(stored(play)) - before)
    kept = play.closed_group()
    harm(mine[0])
    assert play.ledger.claimable(2, 0, 2) == [], "one of two is left"
    rejected = play.ledger.group(lost)
    assert rejected.state is GroupState.REJECTED
    assert cause in rejected.cause and f"turn {lost}" in rejected.cause
    assert [e.kind for e in play.ledger.events()] == ["group.rejected"]
    again = play.ledger.open_training_group(2)
    assert again.task_id == rejected.task_id and again.attempt == 1
    assert [g.group.group_id for g in play.ledger.claimable(1, 0, 2)] == [kept]


def test_tokens_of_a_trained_group_that_are_lost_later_are_named_by_replay_and_audit(play):
    group = play.closed_group()
    play.train(1)
    (harmed, *_) = stored(play)
    data = harmed.read_bytes()
    harmed.unlink()
    with pytest.raises(LostPayload, match=rf"turn {group}.* is missing"):
        play.ledger.groups_of_step(0)
    assert any("is missing" in sentence for sentence in play.ledger.audit())
    harmed.write_bytes(data)
    assert play.ledger.audit() == []


def test_a_payload_of_a_newer_schema_is_refused_with_a_sentence(tmp_path):
    payloads = Payloads.open(tmp_path.as_uri())
    data = zstandard.compress(json.dumps({"schema": SCHEMA + 1, "ids": "packed"}).encode())
    name = blake3.blake3(data).hexdigest()
    (tmp_path / "payloads" / name[:2]).mkdir(parents=True)
    (tmp_path / "payloads" / name[:2] / name).write_bytes(data)
    with pytest.raises(LostPayload, match=f"newer tradewind \\(schema {SCHEMA + 1}"):
        payloads.get(name)


def test_what_is_under_the_right_name_and_is_no_payload_is_refused(tmp_path):
    name = blake3.blake3(b"hello").hexdigest()
    (tmp_path / "payloads" / name[:2]).mkdir(parents=True)
    (tmp_path / "payloads" / name[:2] / name).write_bytes(b"hello")
    with pytest.raises(LostPayload, match="none of ours"):
        Payloads.open(tmp_path.as_uri()).get(name)


def test_no_row_names_a_payload_that_was_not_written(play, monkeypatch):
    """The process dies, or the disk is full, before the payload is there."""
    play.ledger.open_training_group(1)
    rollout = play.lease().rollout_id
    intent = play.turn(rollout)

    def full(*_args):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("tradewind.ledger.payloads._Folder.write", full)
        with pytest.raises(UserError, match="No space left"):
            play.ledger.write_intent(intent)
        assert play.ledger.turns(rollout) == []
    play.ledger.write_intent(intent)
    done = play.answered(intent, 0)
    with monkeypatch.context() as patched:
        patched.setattr("tradewind.ledger.payloads._Folder.write", full)
        with pytest.raises(UserError, match="No space left"):
            play.ledger.finish_turn(done)
    assert play.ledger.turns(rollout) == [intent]


def test_without_a_bucket_they_lie_beside_the_file_and_move_with_it(tmp_path):
    for folder, bucket in (("one", None), ("two", "bucket")):
        (tmp_path / folder).mkdir()
        ledger = Ledger.open(tmp_path / folder / "ledger.sqlite", bucket)
        name = ledger.payloads.put('{"a":1}')
        ledger.close()
        moved = (tmp_path / folder).rename(tmp_path / f"{folder}-moved")
        ledger = Ledger.open(moved / "ledger.sqlite")
        assert ledger.payloads.get(name) == {"a": 1}
        ledger.close()
    assert (tmp_path / "one-moved" / "ledger.payloads").is_dir()
    assert (tmp_path / "two-moved" / "bucket" / "payloads").is_dir()


def test_the_first_bucket_counts_and_another_one_is_refused(play, tmp_path):
    with pytest.raises(UserError, match="keeps its token payloads in"):
        Ledger.open(play.path, "file:///elsewhere")
    again = Ledger.open(play.path)
    assert again.payloads.url == play.bucket.as_uri()
    again.close()


def test_a_server_without_a_bucket_is_a_sentence(postgres_server):
    """A database on another machine has no folder beside it."""
    bare = Ledger.open(postgres.new_copy(postgres_server))
    with pytest.raises(UserError, match="nobody said where"):
        bare.payloads.put('{"a":1}')
    bare.close()


@pytest.mark.parametrize(("schema", "whose"), [(99, "a newer"), (1, "an older")])
def test_a_ledger_of_another_schema_is_refused_with_a_sentence(tmp_path, schema, whose):
    ledger = Ledger.open(tmp_path / "l.sqlite")
    ledger.set_meta("schema", schema)
    ledger.close()
    with pytest.raises(UserError, match=rf"{whose} tradewind \(schema {schema}"):
        Ledger.open(tmp_path / "l.sqlite")


def test_an_object_store_keeps_them_too(tmp_path, monkeypatch, make_play):
    with s3.moto() as url:
        for name, value in s3.environment(url).items():
            monkeypatch.setenv(name, value)
        play = make_play(tmp_path / "ledger.sqlite", f"s3://{s3.BUCKET}/run", tasks=2)
        group = play.closed_group()
        assert [g.group.group_id for g in play.ledger.claimable(1, 0, 0)] == [group]
        play.train(1)
        assert play.reopen().audit() == [], "the ledger knows where they are"
        with pytest.raises(LostPayload, match=r"in s3://desk/run is missing"):
            play.ledger.payloads.get("0" * 64)
        play.ledger.close()
    assert [p.name for p in tmp_path.iterdir()] == ["ledger.sqlite"], "and none lies here"


def test_a_store_that_is_away_is_a_sentence(monkeypatch):
    for name, value in s3.environment("http://127.0.0.1:9").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("tradewind.ledger.payloads.DEADLINE_S", 0.2)
    with pytest.raises(UserError, match="token payloads cannot be written"):
        Payloads.open("s3://desk/run").put('{"a":1}')
