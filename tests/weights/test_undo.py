"""The undo log: byte-exact walks back and forth, bounded memory, damage refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tradewind.types import RefusedWeights
from tradewind.weights.bucket import Bucket
from tradewind.weights.follow import Follower
from tradewind.weights.probe import Probe
from tradewind.weights.state import State
from tradewind.weights.tensors import Array, TensorSet, raw
from tradewind.weights.undo import Change, Leap, UndoLog


def same(ours: Any, theirs: Any) -> bool:
    return ours.keys() == theirs.keys() and all(
        np.array_equal(raw(ours[name]), raw(theirs[name])) for name in ours
    )


class NoNetwork(Bucket):
    """Fails whoever asks it for anything."""

    def get(self, key: str, **_: Any) -> bytes:
        raise AssertionError(f"asked the bucket for {key}")

    def list(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("listed the bucket")


def at_newest(chain: Any, keep: int) -> Follower:
    """A follower that has committed every version one by one, then loses its network."""
    follower = Follower(chain.bucket, chain.states[0], run_id="run")
    follower.log.keep = keep
    for version in range(1, len(chain.versions)):
        follower.commit(follower.stage(version))
    follower._bucket = NoNetwork(chain.bucket.url, chain.bucket._store)
    return follower


def recall(follower: Follower, version: int) -> None:
    staged = follower.recall(version)
    assert staged is not None and staged.bytes_fetched == 0
    follower.commit(staged)


@pytest.mark.parametrize("seed", range(4))
def test_a_walk_back_and_forth_ends_at_other_bytes(
    new_chain: Callable[..., Any], seed: int
) -> None:
    chain = new_chain(7, seed=seed)
    follower = at_newest(chain, 5)
    draw = random.Random(seed)
    for _ in range(25):
        version = draw.choice([v for v in range(2, 8) if v != follower.version])
        assert sorted([*follower.log.versions, follower.version]) == list(range(2, 8))
        recall(follower, version)
        assert follower.version == version
        assert follower.state_id == chain.versions[version].state_id
        assert same(follower.mirror, chain.states[version])
        assert State.of(version, follower.mirror).state_id == follower.state_id


def test_versions_beyond_the_kept_ones_are_reached_or_nearer_ones_are_not(
    new_chain: Callable[..., Any],
) -> None:
    chain = new_chain(4)
    for keep in (0, 1, 3, 9):
        follower = at_newest(chain, keep)
        assert follower.log.versions == list(range(max(0, 4 - keep), 4))
        assert follower.recall(4) is None and follower.recall(5) is None
        assert (follower.recall(0) is None) == (keep < 4)


def test_the_way_ahead_survives_another_way(new_chain: Callable[..., Any]) -> None:
    """Back to 1 and then to 4 over the network in one leap: 2 and 3 are no neighbours any more."""
    chain = new_chain(4)
    follower = Follower(chain.bucket, chain.states[0], run_id="run")
    for version in (1, 2, 3):
        follower.commit(follower.stage(version))
    recall(follower, 1)
    assert follower.log.versions == [0, 2, 3]
    follower.commit(follower.stage(4))
    assert follower.log.versions == [0, 1]
    recall(follower, 0)
    recall(follower, 4)
    assert same(follower.mirror, chain.states[4])


def test_a_recall_that_is_not_committed_changes_the_mirror_or_the_log(
    new_chain: Callable[..., Any],
) -> None:
    chain = new_chain(3)
    follower = at_newest(chain, 4)
    for version in (0, 2, 1):
        assert follower.recall(version) is not None
        assert same(follower.mirror, chain.states[3])
        assert follower.log.versions == [0, 1, 2]
    recall(follower, 0)
    assert same(follower.mirror, chain.states[0])


def test_a_damaged_log_is_applied(new_chain: Callable[..., Any]) -> None:
    chain = new_chain(3)
    follower = at_newest(chain, 4)
    change = follower.log._back[1].changes["model.up.weight"]
    change.bits[0] ^= 1
    with pytest.raises(RefusedWeights, match="undo log"):
        follower.recall(1)
    assert same(follower.mirror, chain.states[3])
    recall(follower, 2)
    assert same(follower.mirror, chain.states[2])


def test_a_recalled_version_has_the_probes_of_another(new_chain: Callable[..., Any]) -> None:
    chain = new_chain(0)
    states, parent = [chain.states[0]], chain.versions[0]
    for version in (1, 2, 3):
        states.append({**states[-1], "model.scale": np.full((), version, np.float16)})
        probes = (Probe(ids=(version, 2), logprobs=(-1.0,)),)
        parent = chain.publisher.publish(version, parent, *states[-2:], "rl", probes=probes)
        chain.publisher.announce(parent)
    follower = Follower(chain.bucket, states[0], run_id="run")
    for version in (1, 2, 3):
        follower.commit(follower.stage(version))
    for version in (1, 3, 2):
        recall(follower, version)
        assert [probe.ids[0] for probe in follower.state.probes] == [version]
    recall(follower, 0)
    assert follower.state.probes == ()


def arrays_of(share: float, dtype: str, seed: int = 0) -> tuple[Array, Array]:
    """Random bits, and the same with `share` of the values changed."""
    draw = np.random.default_rng(seed)
    kind = np.dtype(dtype)
    old = draw.integers(0, 256, 4000 * kind.itemsize, np.uint8).view(kind)
    new = old.copy()
    places = draw.permutation(4000)[: int(share * 4000)]
    raw(new).reshape(4000, -1)[places, 0] ^= 1
    return old, new


@pytest.mark.parametrize("dtype", ["u1", "u2", "f2", "f4", "f8"])
@pytest.mark.parametrize("share", [0.0, 0.001, 0.2, 0.24, 0.26, 1.0])
def test_a_change_costs_more_than_a_dense_copy_or_rounds_a_nan(share: float, dtype: str) -> None:
    old, new = arrays_of(share, dtype)
    change = Change.between(old, new)
    array = old.copy()
    undone = change.exchange(array)
    assert np.array_equal(raw(array), raw(new))
    undone.exchange(array)
    assert np.array_equal(raw(array), raw(old))
    assert undone.nbytes == change.nbytes <= new.nbytes
    if share <= 0.1:
        assert change.nbytes == int(share * 4000) * (4 + new.itemsize)
    assert (change.places is None) == (share > 0.25 or (int(share * 5 * 4000) >= 4000 * 1
                                       and dtype == "u1"))  # fmt: skip


def test_the_log_grows_beyond_its_bound() -> None:
    log, states = UndoLog(3), []
    for version in range(8):
        _, new = arrays_of(0.01, "u2", seed=1)
        new[version * 100 : version * 100 + 40] ^= 1
        states.append(State.of(version, TensorSet({"w": new})))
    for before, after in pairwise(states):
        log.record(before, after)
        assert log.nbytes <= 3 * 6 * 80
    assert log.versions == [4, 5, 6]
    walk = log.walk(states[7], 4)
    assert walk is not None
    log.commit(walk)
    assert log.versions == [5, 6, 7] and log.nbytes == 3 * 6 * 80


def test_a_leap_holds_tensors_that_did_not_change() -> None:
    draw = np.random.default_rng(0)
    tensors = {name: draw.integers(0, 2**16, 100, np.uint16) for name in "ab"}
    before = State.of(0, tensors)
    after = State.of(1, {**tensors, "b": tensors["b"] ^ 1})
    assert Leap.between(before, after).changes.keys() == {"b"}
