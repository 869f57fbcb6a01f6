"""How a pool learns of the newest version: by the next pointer, and by the list when in doubt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tradewind.types import RefusedWeights
from tradewind.weights.announced import LIST_S, Announced
from tradewind.weights.bucket import Bucket
from tradewind.weights.follow import Follower


class Counting(Bucket):
    """Notes what is asked of it: every question is a round trip."""

    def __init__(self, bucket: Bucket) -> None:
        super().__init__(bucket.url, bucket._store)
        self.asked: list[str] = []

    def get(self, key: str, *, limit: int) -> bytes:
        self.asked.append(key.split("/")[0])
        return super().get(key, limit=limit)

    def list(self, prefix: str, *, after: str | None = None) -> list[str]:
        self.asked.append(f"list {prefix}")
        return super().list(prefix, after=after)


@pytest.fixture
def chain(new_chain: Callable[..., Any]) -> Any:
    return new_chain(2)


def follower_of(chain: Any, bucket: Bucket) -> Follower:
    """At version 2."""
    base = chain.versions[0].state_id
    return Follower(bucket, chain.states[2], 2, run_id="run", base_state_id=base)


def test_a_far_pool_makes_four_round_trips_from_announcement_to_frame(chain: Any) -> None:
    bucket = Counting(chain.bucket)
    follower = Follower(
        bucket, chain.states[2], 2, run_id="run", base_state_id=chain.versions[0].state_id
    )
    assert follower.newest() == 2
    for number in (3, 4):
        assert follower.newest() == number - 1
        chain.publish_next()
        bucket.asked.clear()
        assert follower.newest() == number
        staged = follower.stage(number)
        assert staged.state_id == chain.versions[number].state_id
        follower.commit(staged)
        assert bucket.asked[:2] == ["latest", "manifests"]
        assert set(bucket.asked[2:]) == {"frames"}
        bucket.asked.clear()
        assert follower.newest() == number
        assert bucket.asked == ["list latest/"], "after news the list is asked for more"


def test_a_pool_that_was_away_goes_through_every_version(chain: Any) -> None:
    now = [0.0]
    bucket = Counting(chain.bucket)
    announced = Announced(bucket, clock=lambda: now[0])
    assert [announced.newest() for _ in range(3)] == [2, 2, 2]
    for _ in range(3):
        chain.publish_next()
    assert announced.newest() == 3, "the next one"
    assert announced.pointer(3) is not None and announced.pointer(4) is None
    assert announced.newest() == 5, "all others at once"
    assert announced.pointer(5) is None


def test_a_hole_in_the_pointers_hides_what_comes_after_it(chain: Any) -> None:
    now = [0.0]
    announced = Announced(chain.bucket, clock=lambda: now[0])
    for _ in range(2):
        announced.newest()
    for _ in range(2):
        chain.publish_next()
    (chain.folder / "latest" / "00000003").unlink()
    assert announced.newest() == 2
    now[0] += LIST_S
    assert announced.newest() == 4


def test_a_damaged_pointer_stops_the_search_for_the_newest(chain: Any) -> None:
    announced = Announced(chain.bucket)
    for _ in range(2):
        announced.newest()
    (chain.folder / "latest" / "00000003").write_bytes(b"{}")
    assert announced.newest() == 3 and announced.pointer(3) is None
    follower = follower_of(chain, chain.bucket)
    with pytest.raises(RefusedWeights, match="pointer"):
        follower.stage(3)
