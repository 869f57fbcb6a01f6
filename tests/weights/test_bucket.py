"""The bucket on a folder and on a small S3; `test_s3_servers` has real ones."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tradewind.types import Conflict, UserError
from tradewind.weights.bucket import Bucket, NotInBucket, TooLarge
from tradewind.weights.digest import state_id
from tradewind.weights.follow import Follower
from tradewind.weights.publish import Publisher
from tradewind.weights.tensors import Array

sys.path.insert(0, str(Path(__file__).parent))

from small_s3 import SmallS3


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallS3]:
    server = SmallS3()
    _environment(monkeypatch, server.url)
    yield server
    server.close()


@pytest.fixture(params=["folder", "s3"])
def any_bucket(request: pytest.FixtureRequest, tmp_path: Path) -> Bucket:
    if request.param == "folder":
        return Bucket.open(f"file://{tmp_path}/a%20bucket")
    request.getfixturevalue("s3")
    return Bucket.open("s3://desk/some/prefix")


def _environment(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    for name, value in {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "NO_PROXY": "127.0.0.1",
    }.items():
        monkeypatch.setenv(name, value)


def test_an_object_is_created_once(any_bucket: Bucket) -> None:
    any_bucket.put_new("latest/1", b"first")
    with pytest.raises(Conflict):
        any_bucket.put_new("latest/1", b"second")
    assert any_bucket.get("latest/1", limit=100) == b"first"


def test_what_is_not_there_is_told_apart_from_a_broken_store(any_bucket: Bucket) -> None:
    with pytest.raises(NotInBucket):
        any_bucket.get("frames/none", limit=10)
    assert not any_bucket.exists("frames/none")
    any_bucket.put_new("frames/some", b"x")
    assert any_bucket.exists("frames/some")


def test_an_object_beyond_the_limit_is_not_read(any_bucket: Bucket) -> None:
    any_bucket.put_new("frames/big", bytes(11))
    with pytest.raises(TooLarge, match="11 bytes"):
        any_bucket.get("frames/big", limit=10)
    assert any_bucket.get("frames/big", limit=11) == bytes(11)


def test_names_are_listed_in_order_and_from_a_name_on(any_bucket: Bucket) -> None:
    for number in (3, 1, 2, 10):
        any_bucket.put_new(f"latest/{number:08d}", b"")
    any_bucket.put_new("manifests/x", b"")
    names = [f"latest/{number:08d}" for number in (1, 2, 3, 10)]
    assert any_bucket.list("latest/") == names
    assert any_bucket.list("latest/", after=names[1]) == names[2:]
    assert any_bucket.list("nothing/") == []


def test_a_listing_says_size_and_age(any_bucket: Bucket) -> None:
    for number in (2, 1):
        any_bucket.put_new(f"frames/{number}", bytes(number))
    found = any_bucket.objects("frames/")
    assert [(item.key, item.size) for item in found] == [("frames/1", 1), ("frames/2", 2)]
    assert all(item.modified > 1.6e9 for item in found), "seconds since 1970"


def test_what_is_deleted_is_gone_and_deleting_it_again_does_no_harm(any_bucket: Bucket) -> None:
    any_bucket.put_new("frames/x", b"x")
    any_bucket.put_new("frames/y", b"y")
    for _ in range(2):
        any_bucket.delete("frames/x")
        assert any_bucket.list("frames/") == ["frames/y"]
    any_bucket.put_new("frames/x", b"again")


def test_a_writable_bucket_passes_its_check_every_time(any_bucket: Bucket) -> None:
    any_bucket.check_writable()
    any_bucket.check_writable()
    assert any_bucket.exists("writable"), "it really wrote"


def test_versions_travel_over_the_wire(
    any_bucket: Bucket, model: dict[str, Array], step: Callable[..., Any]
) -> None:
    followed, trained = _publish_and_follow(any_bucket, model, step)
    assert state_id(followed) == state_id(trained) != state_id(model)


def _publish_and_follow(
    bucket: Bucket, model: dict[str, Array], step: Callable[..., Any]
) -> tuple[Mapping[str, Array], Mapping[str, Array]]:
    """Two versions through the bucket; what the follower holds, and what the trainer."""
    publisher = Publisher(bucket, "run")
    states, version = [model], publisher.publish(0, None, {}, model, "base")
    publisher.announce(version)
    for number in (1, 2):
        states.append(step(states[-1], number))
        version = publisher.publish(number, version, states[-2], states[-1], "rl")
        publisher.announce(version)
        publisher.announce(version)
    with pytest.raises(Conflict):
        bucket.put_new("latest/00000002", b"other")
    follower = Follower(bucket, model, run_id="run")
    assert follower.newest() == 2
    follower.commit(follower.stage(2))
    assert [v.version for v in publisher.history()] == [0, 1, 2]
    return follower.mirror, states[-1]


@pytest.mark.parametrize("url", ["ftp://x/y", "bucket", "", "file://host/x", "s3://", "/tmp/x"])
def test_what_is_no_bucket_is_a_sentence(url: str) -> None:
    with pytest.raises(UserError, match=r"Fix: write file:///"):
        Bucket.open(url)


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="folder cannot be made"):
        Bucket.open(f"file://{tmp_path}/file/bucket")


def test_a_bucket_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    bucket = Bucket.open(f"file://{tmp_path}/bucket")
    (tmp_path / "bucket").rmdir()
    (tmp_path / "bucket").write_text("a file where the folder was")
    with pytest.raises(UserError, match="the bucket cannot be written"):
        bucket.check_writable()
    with pytest.raises(UserError, match="the bucket cannot be written"):
        bucket.put_new("frames/x", b"x")
    with pytest.raises(UserError, match="the bucket cannot be listed"):
        bucket.list("latest/")


def test_a_store_that_does_not_answer_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    _environment(monkeypatch, url)
    bucket = Bucket.open("s3://desk", deadline_s=0.2)
    with pytest.raises(UserError, match="the bucket cannot be read"):
        bucket.get("latest/1", limit=1)


def test_a_store_that_never_answers_is_given_up_at_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        _environment(monkeypatch, f"http://127.0.0.1:{silent.getsockname()[1]}")
        bucket = Bucket.open("s3://desk", deadline_s=0.2)
        with pytest.raises(UserError, match="the bucket cannot be read"):
            bucket.get("latest/1", limit=1)
