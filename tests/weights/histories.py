"""Small histories in memory, and ways to damage them: for `test_fuzz`.

    pristine objects ──► one damage, drawn ──► damaged objects ──► a pool stages from them

Damage is of two kinds. A broken or hostile store damages objects under their names. Somebody with
the keys of the bucket goes farther and signs what they damaged: digests, the manifests that follow
and the pointers are made to fit, so that only what the tensors decode to can tell.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import zstandard

from tradewind.types.errors import Conflict
from tradewind.weights.bucket import Bucket, NotInBucket, TooLarge
from tradewind.weights.digest import digest_bytes
from tradewind.weights.manifest import manifest_key, pointer_key, unpack
from tradewind.weights.publish import Publisher
from tradewind.weights.tensors import TensorSet

RUN = "run"
LENGTH = 3
PIECE_BYTES = 1024
Objects = dict[str, bytes]


class MemoryBucket(Bucket):
    """A bucket over a dict; keeps the promises of `Bucket` and copies nothing."""

    def __init__(self, objects: Objects | None = None) -> None:
        self.url, self.trouble = "memory:", None
        self.objects: Objects = {} if objects is None else objects

    def put_new(self, key: str, data: bytes) -> None:
        if key in self.objects:
            raise Conflict(f"{key} exists in {self.url}")
        self.objects[key] = data

    def get(self, key: str, *, limit: int) -> bytes:
        if key not in self.objects:
            raise NotInBucket(f"{key} is not in {self.url}")
        if len(self.objects[key]) > limit:
            raise TooLarge("an object is too large", value=key, fix="none, this is a test")
        return self.objects[key]

    def exists(self, key: str) -> bool:
        return key in self.objects

    def list(self, prefix: str, *, after: str | None = None) -> list[str]:
        return sorted(k for k in self.objects if k.startswith(prefix) and k > (after or ""))


class History:
    """Versions 0 to `LENGTH` of one run. `frame_bytes` is patched by the caller."""

    def __init__(self, seed: int) -> None:
        bucket = MemoryBucket()
        publisher = Publisher(bucket, RUN, threads=1, piece_bytes=PIECE_BYTES)
        self.states = [_base()]
        self.versions = [publisher.publish(0, None, {}, self.states[0], "base")]
        publisher.announce(self.versions[0])
        for number in range(1, LENGTH + 1):
            old = self.states[-1]
            # all histories agree up to version 1, the one that the pool holds
            new = _step(old, number, 1 if number == 1 else 1000 * seed + number)
            self.versions.append(publisher.publish(number, self.versions[-1], old, new, "rl"))
            publisher.announce(self.versions[-1])
            self.states.append(new)
        self.objects = bucket.objects

    def manifest(self, version: int) -> dict[str, Any]:
        """The plain manifest of a version, one's own copy."""
        plain: dict[str, Any] = json.loads(unpack(self.objects[self.versions[version].manifest]))
        return plain

    def keys(self, kind: str, version: int) -> list[str]:
        """Names of the version's objects: `pointer`, `manifest` or `frame`."""
        if kind == "frame":
            return [f"frames/{frame['digest']}" for frame in self.manifest(version)["frames"]]
        return [pointer_key(version) if kind == "pointer" else self.versions[version].manifest]


def _base() -> TensorSet:
    draw = np.random.default_rng(0)
    masters = draw.normal(0, 0.02, (40, 50)).astype(np.float32)
    return TensorSet(
        {
            "down": draw.integers(0, 2**16, (8, 60), np.uint16),
            "scale": draw.standard_normal(()).astype(np.float16),
            "steps": draw.integers(0, 2**40, 5),
            "up": (masters.view(np.uint32) >> 16).astype(np.uint16),
            "v_even": draw.integers(0, 2**16, (4, 60), np.uint16),
            "v_odd": draw.integers(0, 2**16, (4, 60), np.uint16),
        }
    )


def _step(old: TensorSet, number: int, seed: int) -> TensorSet:
    """Changes that need every method of the codec."""
    draw = np.random.default_rng(seed)
    flat, noisy = ("v_even", "v_odd") if number % 2 == 0 else ("v_odd", "v_even")
    up = old["up"].copy()
    hit = draw.random(up.shape) < 0.05
    up[hit] += draw.choice(np.array([1, 2**16 - 1], np.uint16), int(hit.sum()))
    return old.with_changed(
        {
            "down": old["down"] ^ np.uint16(draw.integers(1, 2**16)),
            "scale": np.asarray(draw.standard_normal()).astype(np.float16),
            "steps": old["steps"] + draw.integers(1, 9),
            "up": up,
            flat: np.full_like(old[flat], draw.integers(2**16)),
            noisy: draw.integers(0, 2**16, old[noisy].shape, np.uint16),
        }
    )


# --- bytes -------------------------------------------------------------------------------------


def damaged_bytes(draw: Random, data: bytes) -> bytes:
    """`data` cut, flipped, grown, or with a stretch lost, repeated, moved or overwritten."""
    a, b = sorted(draw.randrange(len(data) + 1) for _ in range(2))
    kind = draw.randrange(8)
    if kind == 0:
        return data[:a]
    if kind == 1:
        return _flipped(draw, data)
    if kind == 2:
        return data + draw.randbytes(draw.randint(1, 40))
    if kind == 3:
        return data[:a] + data[b:]
    if kind == 4:
        return data[:b] + data[a:]
    if kind == 5:
        return data[b:] + data[a:b] + data[:a]
    if kind == 6:
        return data[:a] + bytes(b - a) + data[b:]
    return data[:a] + draw.randbytes(b - a) + data[b:]


def _flipped(draw: Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(min(draw.choice((1, 1, 1, 2, 8)), len(out))):
        out[draw.randrange(len(out))] ^= 1 << draw.randrange(8)
    return bytes(out)


# --- objects under their names -----------------------------------------------------------------


def damage_object(draw: Random, ours: History, theirs: History) -> Objects:
    """One object damaged, or gone, or something else in its place."""
    objects = dict(ours.objects)
    kind = draw.choice(("pointer", "manifest", "frame"))
    # the pool reads one pointer, and the manifests and frames of all versions that it missed
    version = LENGTH if kind == "pointer" else draw.randint(2, LENGTH)
    key = draw.choice(ours.keys(kind, version))
    way = draw.randrange(10)
    if way == 0:
        del objects[key]
    elif way == 1:
        objects[key] = draw.choice(list(objects.values()))
    elif way == 2:
        objects[key] = _bomb(draw)
    else:
        objects[key] = damaged_bytes(draw, objects[key])
    return objects


def damage_order(draw: Random, ours: History, theirs: History) -> Objects:
    """Objects of one kind under each other's names."""
    objects = dict(ours.objects)
    kind = draw.choice(("pointer", "manifest", "frame"))
    keys = [key for version in range(1, LENGTH + 1) for key in ours.keys(kind, version)]
    moved = draw.sample(keys, draw.randint(2, len(keys)))
    for key, other in zip(moved, [*moved[1:], moved[0]], strict=True):
        objects[key] = ours.objects[other]
    return objects


def damage_history(draw: Random, ours: History, theirs: History) -> Objects:
    """Some objects of another history of the same run and base: a second trainer's."""
    objects = theirs.objects | ours.objects
    versions = draw.sample(range(2, LENGTH + 1), draw.randint(1, LENGTH - 1))
    for version in versions:
        for kind in draw.sample(("pointer", "manifest", "frame"), draw.randint(1, 3)):
            keys = ours.keys(kind, version), theirs.keys(kind, version)
            for mine, other in zip(*keys, strict=False):
                objects[mine] = theirs.objects[other]
    return objects


BOMBS = tuple(
    zstandard.ZstdCompressor(write_content_size=says).compress(bytes(size))
    for size in (2**20, 2**26, 2**27)
    for says in (True, False)
)
"""Small bytes that unpack to many, or say so; made once, as that takes what they unpack to."""


def _bomb(draw: Random) -> bytes:
    bomb = draw.choice(BOMBS)
    return bomb if draw.random() < 0.5 else damaged_bytes(draw, bomb)


# --- signed damage -----------------------------------------------------------------------------


def forge_manifest(draw: Random, ours: History, theirs: History) -> Objects:
    """A manifest that says something else, and everything made to fit it."""
    version = draw.randint(2, LENGTH)
    plain = ours.manifest(version)
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        _mutate(draw, plain)
    return _signed(draw, ours, version, plain, {})


def forge_frame(draw: Random, ours: History, theirs: History) -> Objects:
    """A frame of other bytes, often of the same size, and everything made to fit it."""
    version = draw.randint(2, LENGTH)
    plain = ours.manifest(version)
    frame = draw.choice(plain["frames"])
    good = ours.objects[f"frames/{frame['digest']}"]
    bad = _flipped(draw, good) if draw.random() < 0.7 else damaged_bytes(draw, good)
    if draw.random() < 0.5:  # of the old size, so that the layout still holds
        bad = bad[: len(good)].ljust(len(good), b"\0")
    frame["digest"], frame["size"] = digest_bytes(bad), len(bad)
    return _signed(draw, ours, version, plain, {f"frames/{frame['digest']}": bad})


def forge_text(draw: Random, ours: History, theirs: History) -> Objects:
    """The text of the newest manifest damaged, and named by its new digest."""
    version = LENGTH
    objects, key = dict(ours.objects), ours.versions[version].manifest
    text = damaged_bytes(draw, unpack(objects[key]))
    objects[key] = zstandard.compress(text)
    objects[pointer_key(version)] = _text({"key": key, "digest": digest_bytes(text)})
    return objects


DAMAGES: tuple[Callable[[Random, History, History], Objects], ...] = (
    damage_object,
    damage_order,
    damage_history,
    forge_manifest,
    forge_frame,
    forge_text,
)


def _signed(
    draw: Random, ours: History, version: int, plain: dict[str, Any], extra: Objects
) -> Objects:
    """`plain` in place of the version's manifest; successors and pointers name it."""
    objects = ours.objects | extra
    previous: dict[str, str] | None = None
    parent: Any = None
    for number in range(version, LENGTH + 1):
        if number > version:
            plain = ours.manifest(number)
            plain["previous"], plain["parent_state_id"] = previous, parent
        text = _text(plain)
        try:
            key = manifest_key(plain["version"], plain["state_id"])
        except (KeyError, TypeError, ValueError, AttributeError):
            key = ours.versions[number].manifest  # it does not say which version it is
        if draw.random() < 0.1:
            key = ours.versions[number].manifest
        previous, parent = {"key": key, "digest": digest_bytes(text)}, plain.get("state_id")
        objects[key] = zstandard.compress(text)
        objects[pointer_key(number)] = _text(previous)
    return objects


def _text(plain: Any) -> bytes:
    return json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()


def _mutate(draw: Random, plain: dict[str, Any]) -> None:
    """One value somewhere in the tree is dropped, repeated, moved or becomes another one."""
    holders = list(_holders(plain))
    holder = draw.choice(holders if draw.random() < 0.7 else holders[:1])
    if isinstance(holder, dict):
        _mutate_dict(draw, holder)
    elif not holder or draw.random() < 0.1:
        holder.append(_other(draw, None))
    else:
        _mutate_list(draw, holder)


def _mutate_dict(draw: Random, holder: dict[str, Any]) -> None:
    if not holder or draw.random() < 0.05:
        holder["extra"] = 1
        return
    key, other = draw.choice(list(holder)), draw.choice(list(holder))
    way = draw.randrange(10)
    if way == 0:
        del holder[key]
    elif way == 1:
        holder[key], holder[other] = holder[other], holder[key]
    else:
        holder[key] = _other(draw, holder[key])


def _mutate_list(draw: Random, holder: list[Any]) -> None:
    at, other = draw.randrange(len(holder)), draw.randrange(len(holder))
    way = draw.randrange(6)
    if way == 0:
        del holder[at]
    elif way == 1:
        holder.insert(other, copy.deepcopy(holder[at]))
    elif way == 2:
        holder[at], holder[other] = holder[other], holder[at]
    elif way == 3:
        holder[at] = copy.deepcopy(holder[other])
    elif way == 4:
        draw.shuffle(holder)
    else:
        holder[at] = _other(draw, holder[at])


def _holders(plain: Any) -> Any:
    if isinstance(plain, dict | list):
        yield plain
        for value in plain.values() if isinstance(plain, dict) else plain:
            yield from _holders(value)


def _other(draw: Random, value: Any) -> Any:
    """Another value, often a likely one."""
    if isinstance(value, bool | float | int) and draw.random() < 0.8:
        near = (value + 1, value - 1, 2 * value, -value, 0)
        return draw.choice((*near, 2**26, 2**31, 2**53 - 1, 2**53, 2**64, 1e300, 0.5))
    if isinstance(value, str) and value and draw.random() < 0.8:
        at = draw.randrange(len(value))
        near = (value[:at] + draw.choice("0f") + value[at + 1 :], value[:at], value + "0")
        return draw.choice((*near, value.upper(), "../" + value, "b3:" + "0" * 64, "0" * 64))
    return draw.choice((None, "", "x", -1, 0, 1, 2**40, [], {}, [0], ["BF16"], True, 1.5))
