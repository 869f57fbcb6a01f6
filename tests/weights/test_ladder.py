"""The ladder: which shortcuts it publishes, what it skips, and that nothing in it stops anybody."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tradewind.types import UserError
from tradewind.weights.bucket import Bucket
from tradewind.weights.ladder import Ladder
from tradewind.weights.shortcut import ends_of, read_shortcut
from tradewind.weights.state import State

SPAN = 4
WAIT_S = 60.0


def ladder_of(chain: Any, bucket: Bucket | None = None, **options: Any) -> Ladder:
    base = State.of(0, chain.states[0])
    return Ladder(bucket or chain.bucket, "run", base, **{"span": SPAN, **options})


def climb(chain: Any, ladder: Ladder, *versions: int) -> None:
    """Offers versions, each after the one before it is done."""
    for version in versions:
        ladder.offer(chain.versions[version], chain.states[version])
        assert ladder.settle(WAIT_S).finished


def ends(chain: Any) -> list[tuple[int, int]]:
    return [found for key in chain.bucket.list("shortcuts/") if (found := ends_of(key))]


EXPECTED = [(0, 2), (0, 3), (0, 4), (4, 6), (4, 7), (0, 8), (4, 8), (8, 10)]


def test_an_anchor_at_every_rung_and_a_shortcut_from_there_to_every_version(
    new_chain: Callable[..., Any],
) -> None:
    chain = new_chain(10)
    ladder = ladder_of(chain)
    climb(chain, ladder, *range(11))
    assert ends(chain) == EXPECTED
    status = ladder.close(WAIT_S)
    assert (status.published, status.skipped, status.failed) == (len(EXPECTED), 0, 0)
    assert status.finished and status.last_error is None
    for key in chain.bucket.list("shortcuts/"):
        shortcut = read_shortcut(chain.bucket, key, run_id="run")
        assert shortcut.from_state_id == chain.versions[shortcut.from_version].state_id
        assert shortcut.state_id == chain.versions[shortcut.version].state_id


def test_a_ladder_that_starts_again_finds_its_rung_in_the_bucket(
    new_chain: Callable[..., Any],
) -> None:
    chain = new_chain(10)
    for version in range(11):
        ladder = ladder_of(chain)
        ladder.offer(chain.versions[version], chain.states[version])
        assert ladder.close(WAIT_S).failed == 0
    assert ends(chain) == EXPECTED
    again = ladder_of(chain)
    climb(chain, again, 10, 8)
    assert again.close(WAIT_S).published == 0, "they are there"


def test_a_trainer_without_whole_tensors_publishes_no_shortcuts(
    new_chain: Callable[..., Any],
) -> None:
    chain = new_chain(10)
    for version in range(11):
        chain.states[version] = chain.states[0] if version == 0 else None
    ladder = ladder_of(chain)
    climb(chain, ladder, *range(11))
    assert ends(chain) == EXPECTED
    status = ladder.close(WAIT_S)
    assert (status.published, status.skipped, status.failed) == (len(EXPECTED), 0, 0)
    for key in chain.bucket.list("shortcuts/"):
        shortcut = read_shortcut(chain.bucket, key, run_id="run")
        assert shortcut.from_state_id == chain.versions[shortcut.from_version].state_id
    again = ladder_of(chain)
    climb(chain, again, 10, 8)
    assert again.close(WAIT_S).published == 0, "it starts again, and goes back to a rung"


def test_a_version_that_was_trained_otherwise_is_a_rung(new_chain: Callable[..., Any]) -> None:
    chain = new_chain(6)
    chain.versions[1] = chain.versions[1].model_copy(update={"stage": "midtrain"})
    ladder = ladder_of(chain)
    climb(chain, ladder, 1, 2, 3, 4, 5, 6)
    assert ends(chain) == [(1, 3), (0, 4), (1, 4), (4, 6)]
    again = ladder_of(chain, rungs=[1])
    climb(chain, again, 3)
    assert again.close(WAIT_S).published == 0, "a new one is told about it"


class SlowBucket(Bucket):
    """Writes nothing before `open`; says when it has been asked to."""

    def __init__(self, bucket: Bucket) -> None:
        super().__init__(bucket.url, bucket._store)
        self.asked, self.open = threading.Event(), threading.Event()

    def put_new(self, key: str, data: bytes) -> None:
        self.asked.set()
        assert self.open.wait(WAIT_S)
        super().put_new(key, data)


def test_a_ladder_that_falls_behind_does_the_newest_version_and_the_newest_rung(
    new_chain: Callable[..., Any],
) -> None:
    chain = new_chain(11)
    bucket = SlowBucket(chain.bucket)
    ladder = ladder_of(chain, bucket)
    ladder.offer(chain.versions[3], chain.states[3])
    assert bucket.asked.wait(WAIT_S)
    for version in range(4, 12):
        ladder.offer(chain.versions[version], chain.states[version])
        assert len(ladder._waiting) <= 2
    bucket.open.set()
    status = ladder.close(WAIT_S)
    assert ends(chain) == [(0, 3), (0, 8), (4, 8), (8, 11)]
    assert (status.skipped, status.failed) == (6, 0)


def test_closing_has_a_deadline(new_chain: Callable[..., Any]) -> None:
    chain = new_chain(2)
    bucket = SlowBucket(chain.bucket)
    ladder = ladder_of(chain, bucket)
    ladder.offer(chain.versions[2], chain.states[2])
    assert bucket.asked.wait(WAIT_S)
    assert not ladder.settle(0.01).finished
    assert not ladder.close(0.01).finished
    bucket.open.set()
    assert ladder.close(WAIT_S).finished
    assert ends(chain) == [(0, 2)]


class BrokenBucket(Bucket):
    """Refuses every write while `broken`."""

    def __init__(self, bucket: Bucket) -> None:
        super().__init__(bucket.url, bucket._store)
        self.broken: Exception | None = UserError("the disk is full", fix="make room")

    def put_new(self, key: str, data: bytes) -> None:
        if self.broken is not None:
            raise self.broken
        super().put_new(key, data)


@pytest.mark.parametrize("unexpected", [False, True])
def test_what_fails_is_counted_and_the_next_version_has_its_shortcuts(
    new_chain: Callable[..., Any], caplog: pytest.LogCaptureFixture, unexpected: bool
) -> None:
    chain = new_chain(3)
    bucket = BrokenBucket(chain.bucket)
    if unexpected:
        bucket.broken = ZeroDivisionError("a defect")
    ladder = ladder_of(chain, bucket)
    climb(chain, ladder, 2)
    bucket.broken = None
    climb(chain, ladder, 3)
    status = ladder.close(WAIT_S)
    assert (status.failed, status.published) == (1, 1)
    assert status.last_error is not None
    assert ("a defect" if unexpected else "the disk is full") in status.last_error
    assert status.last_error in caplog.text
    assert ends(chain) == [(0, 3)]


def test_tensors_of_another_version_are_not_led_to(new_chain: Callable[..., Any]) -> None:
    chain = new_chain(3)
    ladder = ladder_of(chain)
    ladder.offer(chain.versions[3], chain.states[2])
    assert ladder.close(WAIT_S).failed == 1
    assert ends(chain) == []
