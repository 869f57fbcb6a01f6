"""Our codec on one delta: bytes as a publisher ships them, and speed of one core.

Sizes are real: a base and a version in a bucket folder, whose objects are counted there. Speeds
are those of the codec on one thread, by its own CPU time and by the wall: pieces into bytes, and
bytes into changes that are scattered into the mirror. Digests are counted apart (`digest_mb_s`):
every format needs them or goes without proof.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from deltas.delta import Delta
from tradewind.weights.bucket import Bucket
from tradewind.weights.codec import PIECE_BYTES, decode_piece, encode_piece
from tradewind.weights.digest import leaves_of
from tradewind.weights.follow import Follower
from tradewind.weights.publish import Publisher
from tradewind.weights.tensors import Array

RUN_ID = "codec"


@dataclass(frozen=True)
class Shipped:
    """Bytes in the bucket of one version."""

    frames: int
    manifest: int

    @property
    def total(self) -> int:
        return self.frames + self.manifest


@dataclass(frozen=True)
class Speed:
    """MB (10^6 bytes) of dense bf16 a second on one thread."""

    cpu: float
    """By the thread's CPU time: what the core does when it is ours."""
    wall: float


def shipped(delta: Delta) -> Shipped:
    """Publishes the delta and follows it: what is counted is what a pool could apply."""
    with tempfile.TemporaryDirectory() as folder:
        bucket = Bucket.open(Path(folder).as_uri())
        publisher = Publisher(bucket, RUN_ID, threads=1)
        base = publisher.publish(0, None, {}, delta.old, "base")
        publisher.announce(base)
        version = publisher.publish(1, base, delta.old, delta.new, "rl")
        publisher.announce(version)
        follower = Follower(bucket, delta.old, run_id=RUN_ID)
        follower.commit(follower.stage(1))
        assert all(np.array_equal(follower.mirror[n], delta.new[n]) for n in delta.new), delta.name
        frames = sum(path.stat().st_size for path in Path(folder, "frames").iterdir())
        manifest = Path(folder, version.manifest).stat().st_size
        assert frames + manifest == version.bytes_shipped
        return Shipped(frames, manifest)


def speeds(delta: Delta, rounds: int) -> dict[str, Speed]:
    """`encode`, `apply` (decode and scatter) and `digest`, each the median of so many rounds.

    A first round that does not count compiles and touches all memory.
    """
    jobs = list(_jobs(delta))
    coded: list[bytes] = []

    def encode() -> None:
        coded[:] = [encode_piece(old, new, tag) for old, new, tag in jobs]

    mirror = [old.copy() for old, _, _ in jobs]

    def restore() -> None:
        for target, (old, _, _) in zip(mirror, jobs, strict=True):
            np.copyto(target, old)

    def apply() -> None:
        for target, piece, (_, _, tag) in zip(mirror, coded, jobs, strict=True):
            decode_piece(memoryview(piece), target, target, tag)

    found = {
        "encode": _speed(encode, lambda: None, delta.nbytes, rounds),
        "apply": _speed(apply, restore, delta.nbytes, rounds),
        "digest": _speed(lambda: leaves_of(delta.new), lambda: None, delta.nbytes, rounds),
    }
    for target, (_, new, _) in zip(mirror, jobs, strict=True):
        assert np.array_equal(target, new), f"{delta.name} was not decoded to what was encoded"
    return found


def _speed(work: Callable[[], object], before: Callable[[], None], size: int, rounds: int) -> Speed:
    cpu, wall = [], []
    for _ in range(rounds + 1):
        before()
        began, own = time.perf_counter(), time.thread_time()
        work()
        cpu.append(time.thread_time() - own)
        wall.append(time.perf_counter() - began)
    return Speed(size / median(cpu[1:]) / 1e6, size / median(wall[1:]) / 1e6)


def _jobs(delta: Delta) -> Iterator[tuple[Array, Array, str]]:
    """Pieces of the tensors that changed, as `publish` cuts them."""
    for name in delta.new:
        old, new = delta.old[name].reshape(-1), delta.new[name].reshape(-1)
        if np.array_equal(old, new):
            continue
        items = PIECE_BYTES // new.itemsize
        for begin in range(0, new.size, items):
            cut = slice(begin, begin + items)
            yield old[cut], new[cut], delta.new.tag(name)
