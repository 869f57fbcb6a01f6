"""Crashes between any two writes, and two trainers on one run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tradewind.types import Conflict, UserError
from tradewind.weights.bucket import Bucket
from tradewind.weights.digest import state_id
from tradewind.weights.follow import Follower
from tradewind.weights.manifest import pointer_key
from tradewind.weights.publish import Publisher
from tradewind.weights.signing import pointer_to
from tradewind.weights.tensors import Array


class Killed(BaseException):
    """The process died."""


class DyingBucket(Bucket):
    """Dies at write number `at`: before it, or right after it is durable."""

    def __init__(self, bucket: Bucket, at: int, after: bool) -> None:
        super().__init__(bucket.url, bucket._store)
        self._left, self._after = at, after

    def put_new(self, key: str, data: bytes) -> None:
        if self._left == 0 and not self._after:
            raise Killed
        super().put_new(key, data)
        if self._left == 0:
            raise Killed
        self._left -= 1


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_publish_killed_at_any_write_is_finished_by_doing_it_again(
    new_chain: Callable[..., Any], step: Callable[..., dict[str, Array]], at: int, after: bool
) -> None:
    chain = new_chain(1)
    old, new, parent = chain.states[1], step(chain.states[1], 9), chain.versions[1]
    follower = Follower(chain.bucket, chain.states[0], run_id="run")

    dying = Publisher(DyingBucket(chain.bucket, at, after), "run")
    with pytest.raises(Killed):  # one frame, one manifest, one pointer
        dying.announce(dying.publish(2, parent, old, new, "rl"))
    announced = follower.newest() == 2
    assert announced == (at == 2 and after)

    again = Publisher(chain.bucket, "run")
    version = again.publish(2, parent, old, new, "rl")
    again.announce(version)
    again.announce(version)
    assert [v.version for v in again.history()] == [0, 1, 2]
    assert again.history()[2] == version
    follower.commit(follower.stage(2))
    assert state_id(follower.mirror) == state_id(new)


@pytest.mark.parametrize("with_manifest", [False, True])
def test_a_frame_cut_by_a_crash_of_the_store_is_noticed_at_the_retry(
    new_chain: Callable[..., Any], with_manifest: bool
) -> None:
    chain = new_chain(0)
    uploaded = chain.upload_next()
    if not with_manifest:
        (chain.folder / uploaded.manifest).unlink()
    (key,) = chain.bucket.list("frames/")
    (chain.folder / key).write_bytes(b"cut")
    with pytest.raises(UserError, match="cut off"):
        chain.publisher.publish(1, chain.versions[0], *chain.states, "rl", step=1)


def test_two_trainers_cannot_both_announce_a_version(
    new_chain: Callable[..., Any], step: Callable[..., dict[str, Array]]
) -> None:
    chain = new_chain(0)
    base, parent = chain.states[0], chain.versions[0]
    states = [step(base, seed) for seed in (1, 2)]
    publishers = [Publisher(chain.bucket, "run") for _ in states]
    versions = [
        publisher.publish(1, parent, base, state, "rl")
        for publisher, state in zip(publishers, states, strict=True)
    ]
    publishers[0].announce(versions[0])
    with pytest.raises(Conflict, match="another trainer"):
        publishers[1].announce(versions[1])
    # nor can the loser go on from its own state
    lost = publishers[1].publish(2, versions[1], states[1], step(states[1], 3), "rl")
    with pytest.raises(Conflict, match="does not follow an announced parent"):
        publishers[1].announce(lost)
    follower = Follower(chain.bucket, base, run_id="run")
    follower.commit(follower.stage(1))
    assert state_id(follower.mirror) == state_id(states[0])


def test_a_bucket_of_another_run_is_not_written_to(new_chain: Callable[..., Any]) -> None:
    chain = new_chain(0)
    other = Publisher(chain.bucket, "other")
    with pytest.raises(Conflict, match="run 'run'"):
        other.publish(0, None, {}, chain.states[0], "base")


def test_versions_are_published_in_turn(new_chain: Callable[..., Any]) -> None:
    chain = new_chain(1)
    old, new = chain.states
    with pytest.raises(Conflict, match="cannot follow"):
        chain.publisher.publish(3, chain.versions[0], old, new, "rl")
    with pytest.raises(Conflict, match="only version 0"):
        chain.publisher.publish(1, None, old, new, "rl")


def test_a_version_is_not_announced_before_its_parent(new_chain: Callable[..., Any]) -> None:
    chain = new_chain(0)
    chain.upload_next()
    late = chain.upload_next()
    with pytest.raises(Conflict, match="does not follow an announced parent"):
        chain.publisher.announce(late)
    for version in chain.versions:
        chain.publisher.announce(version)
    assert chain.publisher.history() == chain.versions


def test_a_history_with_a_hole_or_a_fork_is_told(new_chain: Callable[..., Any]) -> None:
    chain = new_chain(3)
    pointer = chain.folder / pointer_key(2)
    content = pointer.read_bytes()
    pointer.unlink()
    with pytest.raises(Conflict, match="has 3 but not 2"):
        chain.publisher.history()
    pointer.write_bytes(content)
    assert chain.publisher.history() == chain.versions
    fork = chain.publisher.publish(
        2, chain.versions[1], chain.states[1], chain.states[3], "rl", step=2
    )
    ref = chain.publisher._ref_of(fork)
    pointer.write_bytes(pointer_to(pointer.name, ref, None).to_bytes())
    with pytest.raises(Conflict, match="does not follow"):
        chain.publisher.history()


def test_a_history_that_has_not_begun_is_empty(bucket: Bucket) -> None:
    assert Publisher(bucket, "run").history() == []


def test_a_parent_that_is_not_in_the_bucket_is_told(
    new_chain: Callable[..., Any], bucket: Bucket, step: Callable[..., dict[str, Array]]
) -> None:
    chain = new_chain(0, name="elsewhere")
    new = step(chain.states[0], 1)
    with pytest.raises(UserError, match="manifest of version 0 is not in the bucket"):
        Publisher(bucket, "run").publish(1, chain.versions[0], chain.states[0], new, "rl")
