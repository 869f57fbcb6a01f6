"""The pointer `serving`: promotions, two promoters at once, and what cannot be served."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tradewind.types import Conflict, RefusedWeights, UserError
from tradewind.weights.bucket import Bucket
from tradewind.weights.manifest import pointer_key
from tradewind.weights.serving import promote, promotion_key, serving_version


def test_nothing_is_served_before_the_first_promotion(new_chain: Callable[..., Any]) -> None:
    assert serving_version(new_chain(1).bucket) is None


def test_the_newest_promotion_counts_and_may_go_back(new_chain: Callable[..., Any]) -> None:
    bucket = new_chain(3).bucket
    for number, version in enumerate((1, 3, 0, 2)):
        assert promote(bucket, version) == number
        assert serving_version(bucket) == version


def test_promoting_again_writes_nothing(new_chain: Callable[..., Any]) -> None:
    bucket = new_chain(2).bucket
    assert [promote(bucket, version) for version in (2, 2, 2)] == [0, 0, 0]
    assert bucket.list("serving/") == ["serving/00000000"]


@pytest.mark.parametrize("uploaded", [False, True])
def test_a_version_that_is_not_announced_is_not_promoted(
    new_chain: Callable[..., Any], uploaded: bool
) -> None:
    chain = new_chain(1)
    if uploaded:
        chain.upload_next()
    with pytest.raises(UserError, match=r"not announced cannot be promoted: 2.* newest is 1"):
        promote(chain.bucket, 2)
    assert chain.bucket.list("serving/") == []


class Overtaken(Bucket):
    """Before its first write, another promoter is faster."""

    def __init__(self, bucket: Bucket, version: int) -> None:
        super().__init__(bucket.url, bucket._store)
        self._other, self._version = bucket, version

    def put_new(self, key: str, data: bytes) -> None:
        promote(self._other, self._version)
        super().put_new(key, data)


def test_a_promoter_that_was_overtaken_is_told(new_chain: Callable[..., Any]) -> None:
    bucket = new_chain(3).bucket
    promote(bucket, 1)
    with pytest.raises(Conflict, match="version 3 was not promoted: another promoter chose"):
        promote(Overtaken(bucket, 2), 3)
    assert serving_version(bucket) == 2
    assert promote(bucket, 3) == 2, "it may look again and decide again"


def test_two_promoters_of_one_version_agree(new_chain: Callable[..., Any]) -> None:
    bucket = new_chain(2).bucket
    assert promote(Overtaken(bucket, 2), 2) == 0
    assert bucket.list("serving/") == ["serving/00000000"]


def test_of_many_promoters_exactly_one_wins_each_number(new_chain: Callable[..., Any]) -> None:
    chain = new_chain(4)
    start = threading.Barrier(4)
    won: dict[int, int] = {}

    def race(version: int) -> None:
        start.wait(30)
        with contextlib.suppress(Conflict):
            won[version] = promote(chain.bucket, version)

    threads = [threading.Thread(target=race, args=(version,)) for version in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    numbers = sorted(won.values())
    assert numbers == list(range(len(won))), "no number is won twice, none is left out"
    assert len(chain.bucket.list("serving/")) == len(won) >= 1
    last = next(version for version, number in won.items() if number == numbers[-1])
    assert serving_version(chain.bucket) == last


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"{}", "damaged"),
        (b" " * 10_000, "larger than it can be"),
        (b'{"digest":"' + b"0" * 64 + b'","key":"frames/x"}', "names no manifest"),
        (b'{"digest":"' + b"0" * 64 + b'","key":"manifests/00000001-0.json.zst"}', "another"),
        (b'{"digest":"' + b"0" * 64 + b'","key":"manifests/00000009-0.json.zst"}', "not announced"),
    ],
)
def test_a_damaged_promotion_is_refused(
    new_chain: Callable[..., Any], content: bytes, sentence: str
) -> None:
    chain = new_chain(1)
    chain.bucket.put_new(promotion_key(0), content)
    with pytest.raises(RefusedWeights, match=sentence):
        serving_version(chain.bucket)


def test_a_promotion_of_a_version_that_is_gone_is_refused(new_chain: Callable[..., Any]) -> None:
    chain = new_chain(2)
    promote(chain.bucket, 2)
    (chain.folder / pointer_key(2)).unlink()
    with pytest.raises(RefusedWeights, match="not announced"):
        serving_version(chain.bucket)
