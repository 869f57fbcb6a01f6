"""Publish on one side, follow on the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from tradewind.types.errors import UserError
from tradewind.weights.digest import state_id
from tradewind.weights.follow import Follower
from tradewind.weights.tensors import Array


def same(left: Mapping[str, Array], right: Mapping[str, Array]) -> bool:
    return left.keys() == right.keys() and all(
        left[name].tobytes() == right[name].tobytes() and left[name].shape == right[name].shape
        for name in right
    )


def test_a_pool_holds_the_trainers_bytes_after_each_version(
    new_chain: Callable[..., Any],
) -> None:
    chain = new_chain(0)
    follower = Follower(chain.bucket, chain.states[0], run_id="run")
    for version in range(1, 4):
        published = chain.publish_next()
        assert follower.newest() == version
        staged = follower.stage(version)
        assert follower.version == version - 1
        assert same(follower.mirror, chain.states[-2])
        follower.commit(staged)
        assert same(follower.mirror, chain.states[-1])
        assert follower.state_id == published.state_id == state_id(chain.states[-1])
        assert staged.bytes_fetched == published.bytes_shipped


@pytest.mark.parametrize("threads", [1, 2])
def test_a_late_pool_takes_all_missed_versions_in_one_staging(
    new_chain: Callable[..., Any], threads: int
) -> None:
    chain = new_chain(4)
    follower = Follower(chain.bucket, chain.states[1], 1, run_id="run", threads=threads,
                        base_state_id=chain.versions[0].state_id)  # fmt: skip
    staged = follower.stage(4)
    assert same(follower.mirror, chain.states[1])
    follower.commit(staged)
    assert same(follower.mirror, chain.states[4])
    assert follower.version == 4
    back = follower.recall(1)
    assert back is not None and same(back.changed, chain.states[1])


def test_the_base_checkpoint_is_not_written_to(new_chain: Callable[..., Any]) -> None:
    chain = new_chain(2)
    base = {name: array.copy() for name, array in chain.states[0].items()}
    for array in base.values():
        array.flags.writeable = False
    follower = Follower(chain.bucket, base, run_id="run")
    follower.commit(follower.stage(2))
    assert same(base, chain.states[0])


def test_a_recall_stages_the_tensors_that_undo_the_last_commit(
    new_chain: Callable[..., Any],
) -> None:
    chain = new_chain(0)
    base = chain.states[0]
    after = {**base, "model.scale": np.full((), 3.0, np.float16)}
    chain.publisher.announce(chain.publisher.publish(1, chain.versions[0], base, after, "rl"))
    follower = Follower(chain.bucket, base, run_id="run")
    follower.commit(follower.stage(1))
    back = follower.recall(0)
    assert back is not None and back.changed.keys() == {"model.scale"}
    follower.commit(back)
    assert same(follower.mirror, base)
    assert (follower.version, follower.state_id) == (0, chain.versions[0].state_id)
    follower.commit(follower.stage(1))
    assert same(follower.mirror, after)


def test_a_step_that_changes_nothing_ships_no_frame_and_passes(
    new_chain: Callable[..., Any],
) -> None:
    chain = new_chain(0)
    base, first = chain.states[0], chain.versions[0]
    second = chain.publisher.publish(1, first, base, base, "rl")
    chain.publisher.announce(second)
    assert chain.bucket.list("frames/") == []
    assert second.state_id == first.state_id
    follower = Follower(chain.bucket, base, run_id="run")
    staged = follower.stage(1)
    assert staged.changed == {}
    follower.commit(staged)
    assert (follower.version, follower.state_id) == (1, first.state_id)


def test_a_tensor_that_does_not_change_is_not_shipped(new_chain: Callable[..., Any]) -> None:
    chain = new_chain(0)
    base = chain.states[0]
    after = {**base, "model.scale": np.full((), np.nan, np.float16)}
    version = chain.publisher.publish(1, chain.versions[0], base, after, "rl")
    chain.publisher.announce(version)
    assert version.bytes_shipped < 2000
    staged = Follower(chain.bucket, base, run_id="run").stage(1)
    assert staged.changed.keys() == {"model.scale"}


def test_a_small_update_ships_a_small_share(new_chain: Callable[..., Any]) -> None:
    chain = new_chain(1)
    assert chain.versions[1].bytes_full == sum(a.nbytes for a in chain.states[0].values())
    assert chain.versions[1].bytes_shipped < chain.versions[1].bytes_full / 10


def test_weights_that_are_not_the_parents_are_not_published(
    new_chain: Callable[..., Any], step: Callable[..., dict[str, Array]]
) -> None:
    chain = new_chain(0)
    old, new = step(chain.states[0], 1), step(chain.states[0], 2)
    with pytest.raises(UserError, match="not those of version 0"):
        chain.publisher.publish(1, chain.versions[0], old, new, "rl")


@pytest.mark.parametrize("change", ["shape", "dtype", "name"])
def test_a_model_of_another_form_is_not_published(
    new_chain: Callable[..., Any], change: str
) -> None:
    chain = new_chain(0)
    new = dict(chain.states[0])
    weight = new.pop("model.up.weight")
    new |= {
        "shape": {"model.up.weight": weight.T.copy()},
        "dtype": {"model.up.weight": weight.view(np.float16)},
        "name": {"model.upper.weight": weight},
    }[change]
    with pytest.raises(UserError, match=r"model\.up"):
        chain.publisher.publish(1, chain.versions[0], chain.states[0], new, "rl")
