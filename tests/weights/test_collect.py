"""Garbage collection: what goes, and that everybody who is known still arrives."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tradewind.types import RefusedWeights, WeightVersion
from tradewind.weights.bucket import Bucket
from tradewind.weights.collect import Collector, find_garbage
from tradewind.weights.digest import state_id
from tradewind.weights.follow import Follower
from tradewind.weights.manifest import MAX_MANIFEST, Manifest, unpack
from tradewind.weights.serving import promote
from tradewind.weights.shortcut import ends_of

LONGEST, SPAN = 20, 4


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, make_chain: Callable[..., Any]) -> Any:
    """Versions 0 to 20, with all shortcuts of span 4."""
    made = make_chain(tmp_path_factory.mktemp("built") / "bucket", LONGEST)
    made.add_shortcuts(SPAN)
    return made


@pytest.fixture
def chain(built: Any, tmp_path: Path) -> Any:
    return built.copied(tmp_path / "bucket")


def collect(chain: Any, live: set[int], keep: int = 1) -> list[str]:
    before = {item.key for item in chain.bucket.objects("")}
    garbage = Collector(chain.bucket, "run", keep=keep, grace_s=0).collect(live)
    gone = before - {item.key for item in chain.bucket.objects("")}
    assert gone == {item.key for item in garbage.objects}
    assert {key.split("/")[0] for key in gone} <= {"frames", "shortcuts"}
    return sorted(gone)


def arrives(chain: Any, held: int, goal: int) -> bool:
    """Whether a pool that holds `held` and can read the base reaches `goal`, bit for bit."""
    follower = Follower(
        chain.bucket,
        chain.states[held],
        held,
        run_id="run",
        base_state_id=chain.versions[0].state_id,
    )
    follower.read_base = lambda: dict(chain.states[0])
    reached = state_id(follower.stage(goal).state.tensors)
    return reached == state_id(chain.states[goal]) == chain.versions[goal].state_id


def frames_of(chain: Any, version: WeightVersion) -> list[str]:
    data = chain.bucket.get(version.manifest, limit=MAX_MANIFEST)
    return [frame.key for frame in Manifest.parse(unpack(data)).frames]


def ends(chain: Any) -> list[tuple[int, int]]:
    return [found for key in chain.bucket.list("shortcuts/") if (found := ends_of(key))]


def test_old_singles_and_shortcuts_go_and_the_way_to_the_newest_stays(chain: Any) -> None:
    before = chain.bucket.objects("frames/")
    gone = collect(chain, {19, 20})
    after = chain.bucket.objects("frames/")
    assert len(after) < len(before) / 4
    assert len(gone) == len(set(gone)) > LONGEST
    for held in range(LONGEST):
        assert arrives(chain, held, LONGEST)
    assert chain.publisher.history() == chain.versions, "manifests and pointers stay"
    assert collect(chain, {19, 20}) == [], "what is left is needed"


def test_finding_garbage_deletes_nothing(chain: Any) -> None:
    before = chain.bucket.objects("")
    garbage = find_garbage(chain.bucket, "run", {20}, keep=1)
    assert garbage.objects and garbage.newest == LONGEST
    assert garbage.size == sum(item.size for item in garbage.objects)
    assert chain.bucket.objects("") == before


def test_what_users_are_served_from_stays_reachable(chain: Any) -> None:
    promote(chain.bucket, 6)
    assert find_garbage(chain.bucket, "run", {20}, keep=1).serving == 6
    collect(chain, {20})
    for held in (0, 3):
        assert arrives(chain, held, 6)
    assert arrives(chain, 0, LONGEST)


def test_the_newest_versions_stay_reachable(chain: Any) -> None:
    collect(chain, {20}, keep=7)
    for goal in range(LONGEST - 6, LONGEST + 1):
        assert arrives(chain, 0, goal)


def test_a_pool_that_is_late_keeps_every_way_from_where_it_is(chain: Any) -> None:
    collect(chain, {11, 20})
    kept = {(start, end) for start, end in ends(chain) if start >= 11}
    assert {(12, 14), (16, 18), (16, 20)} <= kept
    follower = Follower(
        chain.bucket, chain.states[11], 11, run_id="run", base_state_id=chain.versions[0].state_id
    )
    for version in range(12, LONGEST + 1):  # one by one, as if there were no shortcuts
        follower.commit(follower.stage(version))


class Clock:
    """A monotonic one, by hand."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def make_ancient(chain: Any) -> None:
    """As after a jump of the store's clock: whatever was written is a day old."""
    for item in chain.bucket.objects("frames/"):
        os.utime(chain.folder / item.key, (item.modified - 86400, item.modified - 86400))


def test_a_jump_of_the_stores_clock_takes_an_upload_whose_manifest_is_still_to_come(
    chain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    collector = Collector(chain.bucket, "run", keep=1, grace_s=3600, clock=clock)
    frames = {item.key for item in chain.bucket.objects("frames/")}
    put = chain.bucket.put_new

    def collect_first(key: str, data: bytes) -> None:
        if key.startswith("manifests/"):  # all frames are there, and nothing names them
            make_ancient(chain)
            monkeypatch.setattr("time.time", lambda: 4e9)
            for seconds in (0, 1800, 1799):
                clock.now += seconds
                assert collector.collect({20}).objects == ()
        put(key, data)

    monkeypatch.setattr(chain.bucket, "put_new", collect_first)
    chain.publisher.announce(chain.upload_next())
    assert arrives(chain, 20, 21)
    clock.now += 1
    deleted = {item.key for item in collector.collect({20}).objects}
    assert deleted & frames, "what was garbage all the time goes"
    assert arrives(chain, 20, 21)


def test_what_was_needed_between_two_collections_goes_with_the_second(chain: Any) -> None:
    clock = Clock()
    collector = Collector(chain.bucket, "run", keep=1, grace_s=100, clock=clock)
    collector.collect({20})
    clock.now += 60
    collector.collect({5, 20})  # a pool is back, and needs what comes after version 5
    clock.now += 60
    collector.collect({20})
    assert arrives(chain, 5, 6), "it was needed 60 s ago"
    clock.now += 100
    collector.collect({20})
    with pytest.raises(RefusedWeights):
        arrives(chain, 5, 6)


def test_a_collector_that_starts_again_believes_the_one_before(chain: Any) -> None:
    clock = Clock()
    for _ in range(3):
        fresh = Collector(chain.bucket, "run", keep=1, grace_s=100, clock=clock)
        assert fresh.collect({20}).objects == ()
        clock.now += 1000


def test_frames_that_no_version_names_go(chain: Any) -> None:
    chain.bucket.put_new("frames/" + "0" * 64, b"left over by a crash")
    assert "frames/" + "0" * 64 in collect(chain, set())


def test_a_version_that_is_uploaded_but_not_announced_stays(chain: Any) -> None:
    pending = chain.upload_next()
    collect(chain, {20})
    new, old = chain.states[-1], chain.states[-2]
    again = chain.publisher.publish(21, chain.versions[20], old, new, "rl", step=21)
    assert again == pending
    chain.publisher.announce(again)
    assert arrives(chain, 20, 21)


def test_without_shortcuts_nothing_of_the_chain_goes(chain: Any) -> None:
    shutil.rmtree(chain.folder / "shortcuts")
    singles = {key for version in chain.versions for key in frames_of(chain, version)}
    assert singles.isdisjoint(collect(chain, {20}))
    assert arrives(chain, 0, LONGEST)


def test_a_damaged_shortcut_is_garbage_and_not_relied_on(chain: Any) -> None:
    for key in chain.bucket.list("shortcuts/"):
        if ends_of(key) == (16, 20):
            (chain.folder / key).write_bytes(b"x")
            assert key in collect(chain, {20})
    assert arrives(chain, 0, LONGEST)


def test_with_a_damaged_manifest_nothing_is_collected(chain: Any) -> None:
    (chain.folder / chain.versions[5].manifest).write_bytes(b"x")
    with pytest.raises(RefusedWeights, match="a manifest is damaged"):
        find_garbage(chain.bucket, "run", {20}, keep=1)


def test_an_empty_bucket_has_no_garbage(bucket: Bucket) -> None:
    assert find_garbage(bucket, "run", set()).objects == ()


@settings(deadline=None, max_examples=int(os.environ.get("TRADEWIND_FULL", "0")) * 180 + 20)
@given(st.data())
def test_after_any_collections_everybody_arrives(built: Any, data: st.DataObject) -> None:
    """Histories with holes in their shortcuts, pools anywhere, several collections in a row."""
    with tempfile.TemporaryDirectory() as scratch:
        chain = built.copied(Path(scratch) / "bucket")
        for key in chain.bucket.list("shortcuts/"):
            if data.draw(st.integers(0, 3)) == 0:
                chain.bucket.delete(key)
        if (chosen := data.draw(st.none() | st.integers(1, LONGEST))) is not None:
            promote(chain.bucket, chosen)
        live = data.draw(st.sets(st.integers(0, LONGEST), max_size=3))
        keep = 6
        for _ in range(data.draw(st.integers(1, 3))):
            keep = data.draw(st.integers(1, keep))  # what is gone does not come back
            collect(chain, live, keep)
            for goal in {LONGEST, chosen or LONGEST, LONGEST - keep + 1}:
                for held in {0, *live}:
                    if held < goal:
                        assert arrives(chain, held, goal)
            # a pool may move on, or go and leave its place to nobody
            live = {data.draw(st.integers(v, LONGEST)) for v in live if data.draw(st.booleans())}
