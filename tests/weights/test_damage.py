"""Whatever is wrong in the bucket: a refusal with a reason, and the mirror as it was (W2)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tradewind.types import RefusedWeights
from tradewind.weights.digest import digest_bytes, state_id
from tradewind.weights.follow import Follower
from tradewind.weights.manifest import Manifest, manifest_key, pointer_key, unpack

LENGTH = 3


@pytest.fixture
def chain(new_chain: Callable[..., Any]) -> Any:
    return new_chain(LENGTH)


def refusal(chain: Any, version: int = LENGTH) -> str:
    """The sentence with which a pool at version 1 refuses `version`; its mirror is unchanged."""
    base_id = chain.versions[0].state_id
    follower = Follower(
        chain.bucket, chain.states[1], 1, run_id="run", base_state_id=base_id, threads=2
    )
    with pytest.raises(RefusedWeights) as caught:
        follower.stage(version)
    assert follower.version == 1
    assert state_id(follower.mirror) == follower.state_id == chain.versions[1].state_id
    return str(caught.value)


def manifest_path(chain: Any, version: int) -> Path:
    return Path(chain.folder) / chain.versions[version].manifest


def edited(manifest: bytes) -> bytes:
    return zstandard.compress(unpack(manifest).replace(b'"rl"', b'"RL"'))


def frame_paths(chain: Any, version: int) -> list[Path]:
    manifest = Manifest.parse(unpack(manifest_path(chain, version).read_bytes()))
    return [chain.folder / frame.key for frame in manifest.frames]


def forge(chain: Any, version: int, change: Callable[[dict[str, Any]], None]) -> None:
    """Rewrites a manifest and everything that names it, as somebody with bucket keys could."""
    previous: dict[str, str] | None = None
    parent = ""
    for number in range(version, len(chain.versions)):
        path = manifest_path(chain, number)
        plain = json.loads(unpack(path.read_bytes()))
        if number == version:
            change(plain)
        if previous is not None:
            plain["previous"] = previous
            plain["parent_state_id"] = parent
        data = json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()
        key = manifest_key(plain["version"], plain["state_id"])
        (chain.folder / key).write_bytes(zstandard.compress(data))
        previous, parent = {"key": key, "digest": digest_bytes(data)}, plain["state_id"]
        pointer = json.dumps(previous, sort_keys=True, separators=(",", ":")).encode()
        (chain.folder / pointer_key(number)).write_bytes(pointer)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "cut off"),
        (lambda path: path.write_bytes(b""), "cut off"),
        (lambda path: path.write_bytes(path.read_bytes() + b"x"), "larger than its version says"),
        (lambda path: path.write_bytes(bytes(path.stat().st_size)), "digest"),
        (lambda path: path.unlink(), "missing"),
    ],
    ids=["cut", "emptied", "longer", "zeroed", "missing"],
)
def test_a_damaged_frame_is_refused(
    chain: Any, version: int, damage: Callable[[Path], None], sentence: str
) -> None:
    damage(frame_paths(chain, version)[0])
    assert sentence in refusal(chain)


def test_a_flipped_bit_anywhere_in_a_frame_is_refused(chain: Any) -> None:
    (path,) = frame_paths(chain, 3)
    good = path.read_bytes()
    for at in range(0, len(good), max(1, len(good) // 40)):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        assert "digest" in refusal(chain)


def test_the_frame_of_another_version_is_refused(chain: Any) -> None:
    theirs, ours = frame_paths(chain, 2)[0], frame_paths(chain, 3)[0]
    size = ours.stat().st_size
    shutil.copy(theirs, ours)
    sentence = refusal(chain)
    assert "cut off" in sentence or "larger than its version says" in sentence
    ours.write_bytes(theirs.read_bytes().ljust(size, b"\0")[:size])
    assert "digest" in refusal(chain), "of the same size"


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "a manifest is damaged"),
        (lambda path: path.write_bytes(edited(path.read_bytes())), "digest"),
        (lambda path: path.write_bytes(zstandard.compress(bytes(2**27))), "cannot have"),
        (lambda path: path.unlink(), "missing"),
    ],
    ids=["cut", "edited", "a bomb", "missing"],
)
@pytest.mark.parametrize("version", [2, 3])
def test_a_damaged_manifest_is_refused(
    chain: Any, version: int, damage: Callable[[Path], None], sentence: str
) -> None:
    damage(manifest_path(chain, version))
    assert sentence in refusal(chain)


def test_swapped_manifests_are_refused(chain: Any) -> None:
    second, third = manifest_path(chain, 2), manifest_path(chain, 3)
    data = second.read_bytes(), third.read_bytes()
    second.write_bytes(data[1])
    third.write_bytes(data[0])
    assert "digest" in refusal(chain)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "pointer"),
        (b"\x00\xff", "pointer"),
        (b"{}", "pointer"),
        (b'{"key": "../../etc/passwd", "digest": "' + b"0" * 64 + b'"}', "another version"),
        (b" " * 10_000, "larger"),
    ],
)
def test_a_damaged_pointer_is_refused(chain: Any, content: bytes, sentence: str) -> None:
    (chain.folder / pointer_key(3)).write_bytes(content)
    assert sentence in refusal(chain)


def test_a_pointer_to_an_older_version_is_refused(chain: Any) -> None:
    shutil.copy(chain.folder / pointer_key(2), chain.folder / pointer_key(3))
    assert "another version" in refusal(chain)


def test_a_version_of_another_run_is_refused(chain: Any) -> None:
    forge(chain, 3, lambda m: m.update(run_id="other"))
    assert "another run" in refusal(chain)


def test_a_version_of_another_base_is_refused(chain: Any) -> None:
    forge(chain, 3, lambda m: m.update(base_state_id="b3:" + "0" * 64))
    assert "another base model" in refusal(chain)


def test_a_version_with_another_parent_is_refused(new_chain: Callable[..., Any]) -> None:
    ours, theirs = new_chain(2), new_chain(2, name="theirs", seed=1)
    shutil.copytree(theirs.folder, ours.folder, dirs_exist_ok=True)
    assert "applies to another state" in refusal(ours, 2)


def test_a_parent_that_the_previous_manifest_is_not_is_refused(chain: Any) -> None:
    forge(chain, 3, lambda m: m.update(parent_state_id="b3:" + "0" * 64))
    assert "does not follow its parent" in refusal(chain)


def test_a_parent_whose_id_only_begins_like_the_previous_one_is_refused(chain: Any) -> None:
    alike = chain.versions[2].state_id[: len("b3:") + 16] + "0" * 48
    forge(chain, 3, lambda m: m.update(parent_state_id=alike))
    assert "does not follow version 2" in refusal(chain)


def test_a_manifest_under_another_name_is_refused(chain: Any) -> None:
    data = manifest_path(chain, 3).read_bytes()
    key = manifest_key(3, "b3:" + "0" * 64)
    (chain.folder / key).write_bytes(data)
    ref = {"key": key, "digest": digest_bytes(unpack(data))}
    (chain.folder / pointer_key(3)).write_bytes(json.dumps(ref).encode())
    assert "under another name" in refusal(chain)


def test_a_version_whose_tensors_give_another_state_is_refused(chain: Any) -> None:
    forge(chain, 2, lambda m: m.update(state_id="b3:" + "1" * 64))
    assert "decodes to another state" in refusal(chain)


def test_a_tensor_that_decodes_to_another_digest_is_refused(chain: Any) -> None:
    forge(chain, 2, lambda m: m["tensors"][0].update(digest="0" * 64))
    assert "decodes wrongly" in refusal(chain)


def test_a_version_that_leaves_out_a_changed_tensor_is_refused(chain: Any) -> None:
    def leave_out(manifest: dict[str, Any]) -> None:
        gone = manifest["tensors"].pop()
        frame = manifest["frames"][-1]
        frame["size"] -= sum(piece["size"] for piece in gone["pieces"])
        kept = (chain.folder / frame_paths(chain, 3)[-1]).read_bytes()[: frame["size"]]
        frame["digest"] = digest_bytes(kept)
        (chain.folder / "frames" / frame["digest"]).write_bytes(kept)

    forge(chain, 3, leave_out)
    assert "decodes to another state" in refusal(chain)


def first_pieces(manifest: dict[str, Any]) -> list[dict[str, int]]:
    pieces: list[dict[str, int]] = manifest["tensors"][0]["pieces"]
    assert len(pieces) == 2, "the first tensor of the small model has two pieces"
    return pieces


@pytest.mark.parametrize(
    "change",
    [
        lambda m: first_pieces(m).reverse(),
        lambda m: first_pieces(m).__setitem__(1, first_pieces(m)[0]),
        lambda m: first_pieces(m)[1].update(offset=first_pieces(m)[1]["offset"] + 1),
        lambda m: first_pieces(m)[1].update(frame=1),
        lambda m: m["tensors"][-1]["pieces"][-1].update(size=1),
        lambda m: m["frames"].append(m["frames"][0]),
    ],
    ids=["reordered", "repeated", "gap", "no such frame", "unused bytes", "unused frame"],
)
def test_pieces_that_do_not_use_up_the_frames_in_order_are_refused(
    chain: Any, change: Callable[[dict[str, Any]], None]
) -> None:
    forge(chain, 3, change)
    sentence = refusal(chain)
    assert "out of order" in sentence or "unused" in sentence or "or twice" in sentence


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda m: first_pieces(m).pop(), "missing, repeated"),
        (lambda m: first_pieces(m).clear(), "has no pieces"),
        (lambda m: first_pieces(m).append(first_pieces(m)[0]), "or twice"),
        (lambda m: first_pieces(m)[1].update(begin=2), "or twice"),
        (lambda m: first_pieces(m)[0].update(raw=2**20 - 1), "bytes that model.embed"),
        (lambda m: first_pieces(m)[1].update(raw=2**20), "bytes that model.embed"),
        (lambda m: first_pieces(m)[1].update(begin=2**52), "bytes that model.embed"),
        (lambda m: first_pieces(m)[1].update(raw=2**18), "is damaged"),
        (lambda m: m["tensors"].reverse(), "out of order"),
        (lambda m: m["tensors"].append(m["tensors"][-1]), "twice"),
        (lambda m: m["tensors"][-1].update(name="z"), "a tensor that we do not"),
        (lambda m: m["tensors"][0].update(dtype="F16"), "we hold BF16"),
        (lambda m: m["tensors"][0].update(shape=[1024, 700]), "we hold BF16"),
        (lambda m: m["tensors"][0].update(shape=[2**52, 2**52]), "we hold BF16"),
        (lambda m: m["tensors"][0].update(dtype="Q4"), "unknown dtype"),
        (lambda m: m.update(format="tradewind-weights/9"), "unknown format"),
        (lambda m: first_pieces(m)[0].update(raw=2**40), "raw"),
        (lambda m: m["frames"][0].update(size=2**40), "size"),
        (lambda m: m.update(extra=1), "extra"),
        (lambda m: m.update(version="3"), "canonical"),
        (lambda m: m.update(previous=None), "no parent"),
    ],
)  # fmt: skip
def test_a_manifest_that_lies_is_refused(
    chain: Any, change: Callable[[dict[str, Any]], None], sentence: str
) -> None:
    forge_top(chain, change)
    assert sentence in refusal(chain)


def forge_top(chain: Any, change: Callable[[dict[str, Any]], None]) -> None:
    """Rewrites the newest manifest under its own name."""
    path = manifest_path(chain, 3)
    plain = json.loads(unpack(path.read_bytes()))
    change(plain)
    data = json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()
    path.write_bytes(zstandard.compress(data))
    ref = {"key": chain.versions[3].manifest, "digest": digest_bytes(data)}
    pointer = json.dumps(ref, sort_keys=True, separators=(",", ":")).encode()
    (chain.folder / pointer_key(3)).write_bytes(pointer)


def test_a_piece_larger_than_its_tensor_is_refused_before_it_is_fetched(chain: Any) -> None:
    def grow(manifest: dict[str, Any]) -> None:
        manifest["tensors"][-1]["pieces"][-1]["size"] += 2**20
        manifest["frames"][-1]["size"] += 2**20

    forge_top(chain, grow)
    assert "larger than its raw bytes" in refusal(chain)


def test_a_pool_that_refused_takes_the_version_once_it_is_whole(chain: Any) -> None:
    (path,) = frame_paths(chain, 2)
    good = path.read_bytes()
    path.write_bytes(good[:-1])
    follower = Follower(chain.bucket, chain.states[0], run_id="run")
    with pytest.raises(RefusedWeights):
        follower.stage(3)
    path.write_bytes(good)
    follower.commit(follower.stage(3))
    assert state_id(follower.mirror) == chain.versions[3].state_id
