"""Whole histories, damaged at random: every one is refused with a reason, or harmless (W2).

`TRADEWIND_FULL=1` tries more than 100,000. A case is its number: `case(number)` draws it again.

Harmless means: staged and committed, the pool holds the very tensors that were published under that
version (by the second trainer, where its whole pointer stands in the place of ours: unsigned
histories cannot tell which of two trainers is the right one, create-only pointers keep them apart).

Memory is bounded in two ways while all cases run: no allocation may take the process `ROOM` beyond
its address space (it would raise MemoryError, which is no refusal), and its peak resident size may
grow by `GROWTH` at most.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from histories import DAMAGES, LENGTH, RUN, History, MemoryBucket, Objects

from tradewind.types import RefusedWeights
from tradewind.types.errors import UserError
from tradewind.weights import upload
from tradewind.weights.bucket import NotInBucket
from tradewind.weights.codec import Method
from tradewind.weights.follow import Follower
from tradewind.weights.manifest import pointer_key

CASES = 102_000 if os.environ.get("TRADEWIND_FULL") else 3_000
ROOM, GROWTH = 512 * 2**20, 256 * 2**20
STATUS = Path("/proc/self/status")


@pytest.fixture(scope="module")
def histories() -> tuple[History, History]:
    """Two of one run, that part after version 1; several frames a version, all methods in each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upload, "FRAME_BYTES", 100)
        ours, theirs = History(1), History(2)
    for version in range(1, LENGTH + 1):
        plain = ours.manifest(version)
        assert len(plain["frames"]) >= 2
        pieces = [piece for tensor in plain["tensors"] for piece in tensor["pieces"]]
        frames = [ours.objects[f"frames/{frame['digest']}"] for frame in plain["frames"]]
        methods = {frames[piece["frame"]][piece["offset"] + 1] for piece in pieces}
        assert methods == set(Method), "the fuzz must reach every method"
    return ours, theirs


def case(number: int, ours: History, theirs: History) -> tuple[str, Objects]:
    """(what was done, objects), of which at least one is not as published."""
    draw = Random(number)
    damage = DAMAGES[number % len(DAMAGES)]
    while True:
        objects = damage(draw, ours, theirs)
        if any(objects.get(key) != data for key, data in ours.objects.items()):
            return damage.__name__, objects


def announced(objects: Objects, ours: History, theirs: History) -> History:
    """Whose version the pointer names: that of the second trainer, if it is theirs and whole."""
    key = pointer_key(LENGTH)
    return theirs if objects.get(key) == theirs.objects[key] else ours


class Pool:
    """A pool at version 1 that is shown one damaged bucket after another."""

    def __init__(self, ours: History) -> None:
        self._ours, self._bucket = ours, MemoryBucket()
        base = ours.versions[0].state_id
        self._follower = Follower(
            self._bucket, ours.states[1], 1, run_id=RUN, base_state_id=base, threads=1
        )

    def takes(self, version: int, objects: Objects, published: History) -> str:
        """`refused`, `harmless` or `wrong`; afterwards the pool is as before."""
        self._bucket.objects = objects
        try:
            staged = self._follower.stage(version)
        except (RefusedWeights, UserError, NotInBucket) as error:
            assert len(str(error)) > 20, "a reason"
            return "refused"
        self._follower.commit(staged)
        right = self._holds(version, published)
        back = self._follower.recall(1)
        assert back is not None, "the undo log holds the last version"
        self._follower.commit(back)
        return "harmless" if right else "wrong"

    def stands(self) -> bool:
        """Whether the pool holds version 1, bit for bit."""
        return self._holds(1, self._ours)

    def _holds(self, version: int, history: History) -> bool:
        state, published = self._follower.state, history.versions[version]
        return (state.version, state.state_id) == (version, published.state_id) and all(
            state.tensors[name].tobytes() == array.tobytes()
            for name, array in history.states[version].items()
        )


def test_the_undamaged_history_is_taken(histories: tuple[History, History]) -> None:
    ours, theirs = histories
    pool = Pool(ours)
    assert pool.takes(LENGTH, ours.objects, ours) == "harmless"
    assert pool.takes(2, ours.objects, ours) == "harmless"
    assert pool.stands()
    assert pool.takes(LENGTH, theirs.objects, ours) == "wrong", "the judge can tell"


@pytest.mark.timeout(3600)
def test_every_damaged_history_is_refused_or_harmless(
    histories: tuple[History, History], capsys: pytest.CaptureFixture[str]
) -> None:
    pool = Pool(histories[0])
    found: Counter[tuple[str, str]] = Counter()
    wrong = []
    with bounded_memory():
        for number in range(CASES):
            name, objects = case(number, *histories)
            verdict = pool.takes(LENGTH, objects, announced(objects, *histories))
            found[name, verdict] += 1
            if verdict == "wrong":
                wrong.append(f"case {number} ({name}) was accepted")
            assert pool.stands(), f"case {number} ({name}) moved the pool"
    harmless = sum(n for (_, verdict), n in found.items() if verdict == "harmless")
    with capsys.disabled():
        print(
            f"\ndamaged inputs tried / accepted: {CASES} / {len(wrong)} "
            f"({CASES - harmless - len(wrong)} refused with a reason, {harmless} harmless: the "
            f"published state was reached)"
        )
    assert not wrong
    for damage in DAMAGES:
        assert found[damage.__name__, "refused"] > CASES / len(DAMAGES) / 3


@contextmanager
def bounded_memory() -> Iterator[None]:
    """Where the system can say (Linux): see the head of this file."""
    if not STATUS.exists():
        yield
        return
    import resource

    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_status("VmSize") + ROOM, limits[1]))
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = _status("VmRSS")
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    grown = _status("VmHWM") - before
    assert grown < GROWTH, f"{grown / 2**20:.0f} MiB"


def _status(field: str) -> int:
    """Bytes."""
    line = next(x for x in STATUS.read_text().splitlines() if x.startswith(field + ":"))
    return int(line.split()[1]) * 1024
