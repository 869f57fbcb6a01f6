"""Stores that are full, busy, slow or cut off, and clocks that jump: nothing is half done."""

from __future__ import annotations

import errno
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import pytest

from tradewind.types import UserError
from tradewind.weights.bucket import Bucket
from tradewind.weights.digest import state_id
from tradewind.weights.follow import Follower
from tradewind.weights.ladder import Ladder
from tradewind.weights.manifest import Manifest, unpack
from tradewind.weights.publish import Publisher
from tradewind.weights.state import State
from tradewind.weights.tensors import Array

sys.path.insert(0, str(Path(__file__).parent))

from small_s3 import SmallS3

KIND = ("frames/", "manifests/", "latest/")


@contextmanager
def files_end_at(size: int) -> Iterator[None]:
    """The system writes no file beyond `size` bytes: what is written up to there stays behind, as
    on a disk that is full.
    """
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def whole(chain: Any) -> bool:
    """Whether the chain can be followed to its newest version, by a pool at the base."""
    follower = Follower(chain.bucket, chain.states[0], run_id="run")
    newest = follower.newest()
    assert newest is not None
    follower.commit(follower.stage(newest))
    return state_id(follower.mirror) == chain.versions[newest].state_id


def test_a_disk_that_is_full_half_way_through_a_frame_loses_nothing(
    new_chain: Callable[..., Any], step: Callable[..., dict[str, Array]]
) -> None:
    chain = new_chain(1)
    before = {kind: chain.bucket.list(kind) for kind in KIND}
    new = step(chain.states[1], 9)
    with files_end_at(2000), pytest.raises(UserError, match="cannot be written"):
        chain.publisher.publish(2, chain.versions[1], chain.states[1], new, "rl")
    assert {kind: chain.bucket.list(kind) for kind in KIND} == before, "no half frame has a name"
    assert whole(chain)
    version = chain.publisher.publish(2, chain.versions[1], chain.states[1], new, "rl")
    chain.publisher.announce(version)
    assert [v.version for v in chain.publisher.history()] == [0, 1, 2]


@pytest.mark.parametrize("at", [0, 1, 2], ids=["frame", "manifest", "pointer"])
def test_a_disk_that_is_full_at_any_write_is_a_sentence_and_done_again(
    new_chain: Callable[..., Any],
    step: Callable[..., dict[str, Array]],
    monkeypatch: pytest.MonkeyPatch,
    at: int,
) -> None:
    chain = new_chain(1)
    put, left = obstore.put, [at]

    def full(store: Any, key: str, data: bytes, **options: Any) -> Any:
        if left[0] == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        left[0] -= 1
        return put(store, key, data, **options)

    new = step(chain.states[1], 9)

    def publish() -> None:
        version = chain.publisher.publish(2, chain.versions[1], chain.states[1], new, "rl")
        chain.publisher.announce(version)

    with monkeypatch.context() as patch:
        patch.setattr(obstore, "put", full)
        with pytest.raises(UserError, match=r"No space left on device.*disk is not full"):
            publish()
    assert whole(chain), "up to version 1"
    publish()
    follower = Follower(chain.bucket, chain.states[0], run_id="run")
    follower.commit(follower.stage(2))
    assert state_id(follower.mirror) == state_id(new)


def test_a_full_disk_takes_a_shortcut_and_no_version(new_chain: Callable[..., Any]) -> None:
    chain = new_chain(3)
    ladder = Ladder(chain.bucket, "run", State.of(0, chain.states[0]), span=2)
    with files_end_at(2000):
        ladder.offer(chain.versions[3], chain.states[3])
        ladder.offer(chain.versions[2], chain.states[2])
        status = ladder.close(60)
    assert status.finished and status.failed
    assert "cannot be written" in str(status.last_error)
    assert chain.bucket.list("shortcuts/") == []
    assert whole(chain)


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallS3]:
    server = SmallS3()
    for name, value in {
        "AWS_ENDPOINT_URL": server.url,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "NO_PROXY": "127.0.0.1",
    }.items():
        monkeypatch.setenv(name, value)
    yield server
    server.close()


@pytest.mark.parametrize("ails", ["busy", "cut", "slow"])
def test_a_store_that_ails_is_a_sentence_until_it_is_well(
    s3: SmallS3,
    model: dict[str, Array],
    step: Callable[..., dict[str, Array]],
    ails: str,
) -> None:
    bucket = Bucket.open("s3://desk/run")
    publisher = Publisher(bucket, "run")
    versions = [publisher.publish(0, None, {}, model, "base")]
    publisher.announce(versions[0])
    new = step(model, 1)
    versions.append(publisher.publish(1, versions[0], model, new, "rl"))
    publisher.announce(versions[1])
    patience = Bucket.open("s3://desk/run", deadline_s=0.3)
    follower = Follower(patience, model, run_id="run")
    s3.ails = ails
    with pytest.raises(UserError, match="the bucket cannot be"):
        follower.stage(1)
    assert s3.refused
    assert state_id(follower.mirror) == versions[0].state_id
    if ails == "busy":
        with pytest.raises(UserError, match="the bucket cannot be"):
            Publisher(patience, "run").publish(2, versions[1], new, step(new, 2), "rl")
    s3.ails = None
    follower.commit(follower.stage(1))
    assert state_id(follower.mirror) == state_id(new)
    newer = step(new, 2)
    publisher.announce(publisher.publish(2, versions[1], new, newer, "rl"))
    follower.commit(follower.stage(2))
    assert state_id(follower.mirror) == state_id(newer)


def test_a_store_that_is_busy_for_a_moment_is_not_noticed(
    s3: SmallS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = Bucket.open("s3://desk/run", deadline_s=30)
    bucket.put_new("frames/x", b"data")
    answer, left = s3.objects, [2]

    class Busy(dict[str, bytes]):
        def get(self, key: str, default: Any = None) -> Any:
            s3.ails = "busy" if left[0] else None
            left[0] -= 1
            return super().get(key, default)

    s3.objects = Busy(answer)
    assert bucket.get("frames/x", limit=10) == b"data"
    assert s3.refused == 2


YEARS = 10 * 365 * 86400


@pytest.mark.parametrize("jump", [-YEARS, YEARS], ids=["back", "ahead"])
def test_a_clock_that_jumps_between_versions_changes_nothing(
    new_chain: Callable[..., Any],
    step: Callable[..., dict[str, Array]],
    monkeypatch: pytest.MonkeyPatch,
    jump: int,
) -> None:
    chain = new_chain(1)
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + jump)
    chain.publish_next()
    uploaded = chain.upload_next()
    monkeypatch.setattr(time, "time", now)
    # as after a crash: the same version, made again by another clock
    again = chain.publisher.publish(
        3, chain.versions[2], chain.states[2], chain.states[3], "rl", step=3
    )
    assert again == uploaded
    chain.publisher.announce(again)
    packed = chain.bucket.get(again.manifest, limit=2**26)
    assert abs(Manifest.parse(unpack(packed)).created_at - now() - jump) < YEARS / 2
    assert chain.publisher.history() == chain.versions
    assert whole(chain)


def test_a_run_that_learns_nothing_publishes_empty_versions_that_are_followed(
    new_chain: Callable[..., Any],
) -> None:
    chain = new_chain(0)
    base = chain.states[0]
    for number in range(1, 5):
        version = chain.publisher.publish(
            number, chain.versions[-1], base, {n: a.copy() for n, a in base.items()}, "rl"
        )
        chain.publisher.announce(version)
        chain.versions.append(version)
        chain.states.append(base)
    assert {version.state_id for version in chain.versions} == {state_id(base)}
    assert chain.bucket.list("frames/") == []
    assert all(v.bytes_shipped < 2000 for v in chain.versions[1:]), "a manifest, no frames"
    follower = Follower(chain.bucket, base, run_id="run")
    for number in range(1, 5):
        staged = follower.stage(number)
        assert staged.changed == {}
        follower.commit(staged)
        assert (follower.version, follower.state_id) == (number, state_id(base))
    back = follower.recall(2)
    assert back is not None and back.changed == {}
    chain.add_shortcuts(span=2)
    late = Follower(chain.bucket, base, run_id="run").stage(4)
    assert (late.objects, late.detours, late.changed) == (1, (), {})
    assert np.array_equal(late.state.tensors["model.norm.weight"], base["model.norm.weight"])
