"""The weight stream over the wire: through moto's S3, and through rclone's, which keeps fewer
promises (it ignores `If-None-Match` and ranges).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import obstore
import pytest

from tradewind.types import Conflict, RefusedWeights, UserError
from tradewind.weights.bucket import Bucket, NotInBucket
from tradewind.weights.collect import Collector
from tradewind.weights.digest import state_id
from tradewind.weights.follow import Follower
from tradewind.weights.ladder import Ladder
from tradewind.weights.manifest import Manifest, unpack
from tradewind.weights.publish import Publisher
from tradewind.weights.serving import promote, serving_version
from tradewind.weights.state import State
from tradewind.weights.tensors import Array

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from common import s3
from common.s3 import BUCKET, environment

LENGTH = 6


@pytest.fixture(scope="module")
def moto_url() -> Iterator[str]:
    with s3.moto() as url:
        yield url


@pytest.fixture(scope="module")
def rclone_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    root = tmp_path_factory.mktemp("rclone")
    with s3.rclone(root) as url:
        yield url, root / BUCKET


_prefixes = count()


@pytest.fixture
def moto(moto_url: str, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """A prefix of its own in moto's bucket."""
    for name, value in environment(moto_url).items():
        monkeypatch.setenv(name, value)
    return Bucket.open(f"s3://{BUCKET}/run-{next(_prefixes)}")


@pytest.fixture
def rclone(
    rclone_server: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> tuple[Bucket, Bucket]:
    """One place seen twice: through rclone's S3, and as the folder that it serves."""
    url, folder = rclone_server
    for name, value in environment(url).items():
        monkeypatch.setenv(name, value)
    prefix = f"run-{next(_prefixes)}"
    there = Bucket.open(f"s3://{BUCKET}/{prefix}")
    return there, Bucket.open((folder / prefix).as_uri())


class Run:
    """Versions 0 to `LENGTH`, and shortcuts of span 2."""

    def __init__(self, bucket: Bucket, base: dict[str, Array], step: Callable[..., Any]) -> None:
        publisher = Publisher(bucket, "run")
        self.states = [base]
        self.versions = [publisher.publish(0, None, {}, base, "base")]
        publisher.announce(self.versions[0])
        ladder = Ladder(bucket, "run", State.of(0, base), span=2)
        for number in range(1, LENGTH + 1):
            old, new = self.states[-1], step(self.states[-1], number)
            version = publisher.publish(number, self.versions[-1], old, new, "rl")
            publisher.announce(version)
            self.states.append(new)
            self.versions.append(version)
            ladder.offer(version, new)
            assert ladder.settle(60).finished
        assert ladder.close(60).failed == 0
        self.publisher = publisher

    def follower(self, bucket: Bucket, held: int) -> Follower:
        base_id = self.versions[0].state_id
        return Follower(bucket, self.states[held], held, run_id="run", base_state_id=base_id)


@pytest.fixture
def moto_run(moto: Bucket, model: dict[str, Array], step: Callable[..., Any]) -> Run:
    return Run(moto, model, step)


def frame_of(bucket: Bucket, run: Run, version: int) -> str:
    packed = bucket.get(run.versions[version].manifest, limit=2**20)
    return Manifest.parse(unpack(packed)).frames[0].key


def overwrite(bucket: Bucket, key: str, data: bytes) -> None:
    obstore.put(bucket._store, key, data)


def test_versions_are_followed_one_by_one_through_motos_s3(moto: Bucket, moto_run: Run) -> None:
    follower = moto_run.follower(moto, 0)
    for version in moto_run.versions[1:]:
        follower.commit(follower.stage(version.version))
        assert state_id(follower.mirror) == version.state_id
    assert follower.newest() == LENGTH
    assert moto_run.publisher.history() == moto_run.versions


def test_a_late_pool_joins_through_motos_s3_by_two_shortcuts(moto: Bucket, moto_run: Run) -> None:
    staged = moto_run.follower(moto, 0).stage(LENGTH - 1)
    assert staged.state_id == moto_run.versions[LENGTH - 1].state_id
    assert (staged.objects, staged.detours) == (2, ())


def test_two_trainers_at_motos_s3_cannot_fork_a_history(
    moto: Bucket, moto_run: Run, step: Callable[..., Any]
) -> None:
    parent, old = moto_run.versions[-1], moto_run.states[-1]
    first, second = Publisher(moto, "run"), Publisher(Bucket.open(moto.url), "run")
    first.announce(first.publish(LENGTH + 1, parent, old, step(old, 98), "rl"))
    late = second.publish(LENGTH + 1, parent, old, step(old, 99), "rl")
    with pytest.raises(Conflict, match="another trainer"):
        second.announce(late)


def test_promotion_and_collection_work_at_motos_s3(moto: Bucket, moto_run: Run) -> None:
    assert promote(moto, 4) == 0
    assert serving_version(moto) == 4
    assert Collector(moto, "run", keep=1, grace_s=0).collect([LENGTH]).objects
    staged = moto_run.follower(moto, 0).stage(LENGTH)
    assert staged.state_id == moto_run.versions[LENGTH].state_id
    follower = moto_run.follower(moto, 0)
    assert follower.stage(4).state_id == moto_run.versions[4].state_id


DAMAGES: list[tuple[Callable[[bytes], bytes], str]] = [
    (lambda data: data[:-1], "cut off"),
    (lambda data: data + b"x", "larger than its version says"),
    (lambda data: data[:9] + bytes([data[9] ^ 1]) + data[10:], "digest"),
    (lambda data: b"<Error>try later</Error>", "cut off"),
]


def test_a_damaged_frame_at_motos_s3_is_refused_until_it_is_whole(
    moto: Bucket, moto_run: Run
) -> None:
    key = frame_of(moto, moto_run, 1)
    good = moto.get(key, limit=2**25)
    follower = moto_run.follower(moto, 0)
    for damage, sentence in DAMAGES:
        overwrite(moto, key, damage(good))
        with pytest.raises(RefusedWeights, match=sentence):
            follower.stage(1)
        assert state_id(follower.mirror) == moto_run.versions[0].state_id
    overwrite(moto, key, good)
    assert follower.stage(1).state_id == moto_run.versions[1].state_id


def test_a_store_that_overwrites_is_refused_before_anything_is_published(
    rclone: tuple[Bucket, Bucket], model: dict[str, Array]
) -> None:
    there, folder = rclone
    with pytest.raises(UserError, match="overwrites an object that it was asked to create only"):
        Publisher(there, "run").publish(0, None, {}, model, "base")
    with pytest.raises(UserError, match="overwrites"):
        there.check_writable()
    assert not any(folder.list(kind) for kind in ("frames/", "manifests/", "latest/"))


def test_versions_are_followed_through_an_s3_that_ignores_ranges(
    rclone: tuple[Bucket, Bucket], model: dict[str, Array], step: Callable[..., Any]
) -> None:
    there, folder = rclone
    run = Run(folder, model, step)
    key = frame_of(folder, run, 1)
    with pytest.raises(obstore.exceptions.GenericError):
        obstore.get_range(there._store, key, start=1, end=3)
    assert there.get(key, limit=2**25) == folder.get(key, limit=2**25), "whole objects only"
    follower = run.follower(there, 0)
    for version in run.versions[1:]:
        assert follower.newest() == LENGTH
        follower.commit(follower.stage(version.version))
        assert state_id(follower.mirror) == version.state_id
    late = run.follower(there, 0).stage(LENGTH)
    assert (late.state_id, late.detours) == (run.versions[LENGTH].state_id, ())


def test_what_is_not_at_rclones_s3_is_not_in_the_bucket(rclone: tuple[Bucket, Bucket]) -> None:
    there, folder = rclone
    with pytest.raises(NotInBucket):
        there.get("latest/00000000", limit=100)
    assert there.list("latest/") == []
    folder.put_new("latest/00000000", b"x")
    folder.put_new("latest/00000001", b"y")
    assert there.list("latest/", after="latest/00000000") == ["latest/00000001"]
    folder.delete("latest/00000001")
    with pytest.raises(NotInBucket):
        there.get("latest/00000001", limit=100)
