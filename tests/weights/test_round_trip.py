"""Publish on one side, follow on the other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tradewind.types.errors import UserError
from tradewind.weights.bucket import Bucket
from tradewind.weights.digest import state_id
from tradewind.weights.follow import Follower
from tradewind.weights.publish import Publisher
from tradewind.weights.tensors import Array, TensorSet


def small_model(seed: int = 0) -> dict[str, Array]:
    draw = np.random.default_rng(seed)
    return {
        "model.embed.weight": draw.integers(0, 2**16, (700, 1024), np.uint16),
        "model.norm.weight": draw.standard_normal(32).astype(np.float32),
        "model.scale": draw.standard_normal(()).astype(np.float16),
        "model.up.weight": draw.integers(0, 2**16, (48, 32), np.uint16),
    }


def stepped(tensors: dict[str, Array], seed: int) -> dict[str, Array]:
    """About one bit in a hundred items differs, in every tensor."""
    draw = np.random.default_rng(seed)
    after = {}
    for name, array in tensors.items():
        bits = array.copy().reshape(-1).view(np.uint8)
        bits[draw.integers(0, bits.size, 1 + bits.size // 100)] ^= 1
        after[name] = bits.view(array.dtype).reshape(array.shape)
    return after


def same(left: TensorSet, right: dict[str, Array]) -> bool:
    return left.keys() == right.keys() and all(
        left[name].tobytes() == right[name].tobytes() and left[name].shape == right[name].shape
        for name in right
    )


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    return Bucket.open(f"file://{tmp_path}/bucket")


def test_a_pool_holds_the_trainers_bytes_after_each_version(bucket: Bucket) -> None:
    publisher = Publisher(bucket, "run")
    states = [small_model()]
    published = publisher.publish(0, None, {}, states[0], "base")
    publisher.announce(published)
    follower = Follower(bucket, states[0], run_id="run")
    for version in range(1, 4):
        states.append(stepped(states[-1], version))
        published = publisher.publish(version, published, states[-2], states[-1], "rl")
        publisher.announce(published)
        assert follower.newest() == version
        staged = follower.stage(version)
        assert follower.version == version - 1
        follower.commit(staged)
        assert same(follower.mirror, states[-1])
        assert follower.state_id == published.state_id == state_id(states[-1])
    late = Follower(bucket, states[0], run_id="run", threads=2)
    late.commit(late.stage(3))
    assert same(late.mirror, states[3])
    assert late.version == 3


def test_roll_back_returns_the_tensors_that_undo_the_last_commit(bucket: Bucket) -> None:
    publisher = Publisher(bucket, "run")
    base = small_model()
    after = {**base, "model.scale": np.float16(3.0) * np.ones((), np.float16)}
    first = publisher.publish(0, None, {}, base, "base")
    publisher.announce(first)
    publisher.announce(publisher.publish(1, first, base, after, "rl"))
    follower = Follower(bucket, base, run_id="run")
    follower.commit(follower.stage(1))
    undone = follower.roll_back()
    assert undone.keys() == {"model.scale"}
    assert same(follower.mirror, base)
    assert (follower.version, follower.state_id) == (0, first.state_id)
    follower.commit(follower.stage(1))
    assert same(follower.mirror, after)


def test_a_step_that_changes_nothing_ships_no_frame_and_passes(bucket: Bucket) -> None:
    publisher = Publisher(bucket, "run")
    base = small_model()
    first = publisher.publish(0, None, {}, base, "base")
    publisher.announce(first)
    second = publisher.publish(1, first, base, base, "rl")
    publisher.announce(second)
    assert bucket.list("frames/") == []
    assert second.state_id == first.state_id
    follower = Follower(bucket, base, run_id="run")
    staged = follower.stage(1)
    assert staged.changed == {}
    follower.commit(staged)
    assert (follower.version, follower.state_id) == (1, first.state_id)


def test_weights_that_are_not_the_parents_are_not_published(bucket: Bucket) -> None:
    publisher = Publisher(bucket, "run")
    base = small_model()
    first = publisher.publish(0, None, {}, base, "base")
    with pytest.raises(UserError, match="not those of version 0"):
        publisher.publish(1, first, stepped(base, 1), stepped(base, 2), "rl")


def test_weights_of_another_shape_are_not_published(bucket: Bucket) -> None:
    publisher = Publisher(bucket, "run")
    base = small_model()
    first = publisher.publish(0, None, {}, base, "base")
    other = {**base, "model.up.weight": base["model.up.weight"].T.copy()}
    with pytest.raises(UserError, match=r"model\.up\.weight"):
        publisher.publish(1, first, base, other, "rl")
