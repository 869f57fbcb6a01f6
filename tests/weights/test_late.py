"""Pools that are late: along shortcuts where there are some, and along something else if not."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tradewind.types import RefusedWeights, UserError
from tradewind.weights import staging, upload
from tradewind.weights.chain import read_manifest, read_pointer
from tradewind.weights.digest import state_id
from tradewind.weights.follow import Follower, Staged
from tradewind.weights.ladder import Ladder
from tradewind.weights.shortcut import Shortcut, read_shortcut, shortcut_key
from tradewind.weights.state import State
from tradewind.weights.tensors import Array

SPAN, LENGTH = 4, 11


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, make_chain: Callable[..., Any]) -> Any:
    """Versions 0 to 11; shortcuts of span 4 up to version 11."""
    made = make_chain(tmp_path_factory.mktemp("built") / "bucket", LENGTH)
    made.add_shortcuts(SPAN)
    return made


@pytest.fixture
def chain(built: Any, tmp_path: Path) -> Any:
    """A copy of its own, to be damaged."""
    return built.copied(tmp_path / "bucket")


def follower_at(chain: Any, version: int, *, base: bool) -> Follower:
    base_id = chain.versions[0].state_id
    follower = Follower(
        chain.bucket, chain.states[version], version, run_id="run", base_state_id=base_id
    )
    if base:
        follower.read_base = lambda: dict(chain.states[0])
    return follower


def key(chain: Any, start: int, end: int) -> str:
    return shortcut_key(start, end, chain.versions[end].state_id)


def shortcut(chain: Any, start: int, end: int) -> Shortcut:
    return read_shortcut(chain.bucket, key(chain, start, end), run_id="run")


def arrives(chain: Any, follower: Follower, version: int) -> Staged:
    """Stages and commits; the mirror is what the trainer had, and going back works."""
    before = follower.state
    staged = follower.stage(version)
    assert follower.state is before
    assert staged.changed.keys() == {
        name for name in before.leaves if before.leaves[name] != staged.state.leaves[name]
    }
    follower.commit(staged)
    assert state_id(follower.mirror) == follower.state_id == chain.versions[version].state_id
    for number, there in ((before.version, before.state_id), (version, staged.state.state_id)):
        walk = follower.recall(number)
        assert walk is not None, "the undo log holds the last version"
        follower.commit(walk)
        assert state_id(follower.mirror) == there
    return staged


def size_of(chain: Any, path: str) -> int:
    return (chain.folder / path).stat().st_size


@pytest.mark.parametrize("base", [False, True])
@pytest.mark.parametrize("goal", range(1, LENGTH + 1))
def test_a_fresh_pool_needs_two_objects_at_most(chain: Any, goal: int, base: bool) -> None:
    staged = arrives(chain, follower_at(chain, 0, base=base), goal)
    assert staged.objects <= 2
    assert staged.detours == ()


@pytest.mark.parametrize("held", range(LENGTH))
def test_a_late_pool_that_can_read_the_base_needs_two_objects_at_most(
    chain: Any, held: int
) -> None:
    staged = arrives(chain, follower_at(chain, held, base=True), LENGTH)
    assert staged.objects <= 2
    assert staged.detours == ()


@pytest.mark.parametrize("held", range(LENGTH))
def test_a_late_pool_without_the_base_arrives_all_the_same(chain: Any, held: int) -> None:
    staged = arrives(chain, follower_at(chain, held, base=False), LENGTH)
    assert staged.objects <= min(LENGTH - held, SPAN + 1)
    assert staged.detours == ()


def test_a_pool_on_a_rung_fetches_one_object_and_its_bytes_are_counted(chain: Any) -> None:
    staged = arrives(chain, follower_at(chain, 8, base=False), 11)
    read = [key(chain, 8, 11), key(chain, 8, 10), chain.versions[11].manifest]
    assert staged.objects == 1
    assert staged.bytes_fetched == (
        sum(size_of(chain, name) for name in read) + shortcut(chain, 8, 11).size
    )


def test_from_one_version_to_the_next_nothing_but_the_single_is_looked_at(
    chain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    get = type(chain.bucket).get
    monkeypatch.setattr(
        type(chain.bucket),
        "get",
        lambda bucket, name, limit: (asked.append(name), get(bucket, name, limit=limit))[1],
    )
    monkeypatch.setattr(type(chain.bucket), "list", None)
    staged = follower_at(chain, 7, base=True).stage(8)
    assert (staged.objects, staged.bytes_fetched) == (1, chain.versions[8].bytes_shipped)
    assert [name.split("/")[0] for name in asked] == ["latest", "manifests", "frames"]


DAMAGES = [
    pytest.param(lambda path: path.unlink(), id="missing"),
    pytest.param(lambda path: path.write_bytes(b""), id="emptied"),
    pytest.param(lambda path: path.write_bytes(path.read_bytes()[:-1]), id="cut"),
    pytest.param(lambda path: path.write_bytes(bytes(path.stat().st_size)), id="zeroed"),
]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("what", ["record", "frame"])
def test_a_damaged_shortcut_is_only_a_detour(
    chain: Any, damage: Callable[[Path], None], what: str, caplog: pytest.LogCaptureFixture
) -> None:
    led = shortcut(chain, 8, 11)
    damage(chain.folder / (led.key if what == "record" else led.frames[0].key))
    staged = arrives(chain, follower_at(chain, 8, base=False), 11)
    assert staged.objects >= 2, "by version 10"
    if what == "frame" or (chain.folder / led.key).exists():
        assert len(staged.detours) == 1
        assert staged.detours[0] in caplog.text
    # from the base there is still an anchor
    assert arrives(chain, follower_at(chain, 2, base=True), 11).detours == staged.detours


def test_a_shortcut_of_another_state_is_only_a_detour(
    chain: Any, new_chain: Callable[..., Any]
) -> None:
    other = new_chain(LENGTH, name="other", seed=5)
    ladder = Ladder(other.bucket, "run", State.of(0, other.states[0]), span=3)
    ladder.offer(other.versions[11], other.states[11])
    assert ladder.close(60).published == 1
    shutil.copytree(other.folder / "shortcuts", chain.folder / "shortcuts", dirs_exist_ok=True)
    shutil.copytree(other.folder / "frames", chain.folder / "frames", dirs_exist_ok=True)
    staged = arrives(chain, follower_at(chain, 9, base=False), 11)
    assert any("applies to another state" in sentence for sentence in staged.detours)


def test_shortcuts_that_nobody_can_use_leave_the_chain(chain: Any) -> None:
    for path in (chain.folder / "shortcuts").iterdir():
        path.write_bytes(b"x")
    staged = arrives(chain, follower_at(chain, 0, base=True), 11)
    assert staged.objects == 11
    assert staged.detours


def test_a_chain_without_the_frames_of_old_singles_is_gone_around(chain: Any) -> None:
    """As a collection leaves it."""
    led = {f.key for s in ((0, 8), (8, 11)) for f in shortcut(chain, *s).frames}
    for frame in (chain.folder / "frames").iterdir():
        if f"frames/{frame.name}" not in led:
            frame.unlink()
    for held in (0, 2, 5, 8):
        arrives(chain, follower_at(chain, held, base=True), 11)
    with pytest.raises(RefusedWeights, match="missing"):
        follower_at(chain, 9, base=False).stage(11)


def unreadable() -> Mapping[str, Array]:
    raise UserError("the model folder does not exist", fix="restore it")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda chain: lambda: dict(chain.states[1]), "base checkpoint has changed"),
        (lambda chain: unreadable, "model folder does not exist"),
    ],
)
def test_a_base_that_has_changed_is_only_a_detour(
    chain: Any, change: Callable[[Any], Any], sentence: str
) -> None:
    follower = follower_at(chain, 1, base=False)
    follower.read_base = change(chain)
    staged = arrives(chain, follower, 11)
    assert [sentence in said for said in staged.detours] == [True]


def test_frames_of_a_delta_are_fetched_side_by_side(
    new_chain: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload, "FRAME_BYTES", 100)
    chain = new_chain(1)
    manifest = read_manifest(chain.bucket, read_pointer(chain.bucket, 1), run_id="run")
    assert len(manifest.frames) > 2
    meet, first_two, get = threading.Barrier(2), manifest.frames[:2], type(chain.bucket).get

    def together(bucket: Any, name: str, *, limit: int) -> bytes:
        if name in [frame.key for frame in first_two]:
            meet.wait(60)  # breaks if one is fetched after the other
        return get(bucket, name, limit=limit)

    monkeypatch.setattr(type(chain.bucket), "get", together)
    staged = arrives(chain, follower_at(chain, 0, base=False), 1)
    assert staged.bytes_fetched == chain.versions[1].bytes_shipped


def test_the_first_frame_that_is_refused_calls_off_the_rest(
    new_chain: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload, "FRAME_BYTES", 100)
    monkeypatch.setattr(staging, "FETCHES", 1)
    chain = new_chain(1)
    manifest = read_manifest(chain.bucket, read_pointer(chain.bucket, 1), run_id="run")
    (chain.folder / manifest.frames[0].key).write_bytes(b"x")
    asked: list[str] = []
    called_off, get = threading.Event(), type(chain.bucket).get

    class Pool(ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            super().shutdown(wait, cancel_futures=cancel_futures)
            called_off.set()

    def counted(bucket: Any, name: str, *, limit: int) -> bytes:
        if name.startswith("frames/"):
            asked.append(name)
            assert len(asked) == 1 or called_off.wait(60)
        return get(bucket, name, limit=limit)

    monkeypatch.setattr(staging, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(type(chain.bucket), "get", counted)
    with pytest.raises(RefusedWeights, match="cut off"):
        follower_at(chain, 0, base=False).stage(1)
    assert len(asked) <= 2 < len(manifest.frames)
