"""Probes: drawn the same on both sides, carried by the manifest, fixed by the first attempt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from tradewind.types import RefusedWeights
from tradewind.weights.chain import read_manifest, read_pointer
from tradewind.weights.follow import Follower
from tradewind.weights.manifest import Manifest
from tradewind.weights.probe import DRAWS, LENGTH, TEXT_LENGTH, Probe, draw_ids
from tradewind.weights.publish import Publisher
from tradewind.weights.tensors import Array

PROBES = (Probe(ids=(5, 17, 3), logprobs=(-2.5, -0.25)),)


def test_probes_differ_between_two_starts_of_a_run() -> None:
    assert draw_ids(300, "desk") == draw_ids(300, "desk")
    assert draw_ids(300, "desk") != draw_ids(300, "other")


def test_probes_lose_their_draws_to_a_text_or_are_longer_than_they_may_be() -> None:
    drawn = draw_ids(300, "desk")
    assert [len(ids) for ids in drawn] == [LENGTH] * DRAWS
    told, one = draw_ids(300, "desk", [*range(100)])
    assert told == tuple(range(TEXT_LENGTH)) and one == drawn[0]
    assert all(0 <= i < 300 for ids in (told, *drawn) for i in ids)


@pytest.mark.parametrize("text", [[], [7], [7, 300]])
def test_a_text_that_the_model_cannot_read_is_probed_with(text: list[int]) -> None:
    assert draw_ids(300, "desk", text) == draw_ids(300, "desk")


@pytest.mark.parametrize(
    ("ids", "logprobs"),
    [((1,), ()), ((1, 2), ()), ((1, 2), (-1.0, -1.0)), ((1, 2), (0.1,)), ((1, 2), (float("nan"),)),
     ((1, 2), (float("-inf"),)), ((1, -2), (-1.0,))],
)  # fmt: skip
def test_what_is_no_probe_is_accepted(ids: tuple[int, ...], logprobs: tuple[float, ...]) -> None:
    with pytest.raises(ValidationError):
        Probe(ids=ids, logprobs=logprobs)


def test_rounding_makes_a_probability_above_one() -> None:
    assert Probe.of((1, 2, 3), [1e-7, -0.12345678]).logprobs == (0.0, -0.123457)


def test_a_staged_version_lacks_its_probes_or_has_its_parents(
    new_chain: Callable[..., Any], step: Callable[..., dict[str, Array]]
) -> None:
    chain = new_chain(0)
    base, probed, bare = chain.states[0], step(chain.states[0], 1), step(chain.states[0], 2)
    first = chain.publisher.publish(1, chain.versions[0], base, probed, "rl", probes=PROBES)
    chain.publisher.announce(first)
    chain.publisher.announce(chain.publisher.publish(2, first, probed, bare, "rl"))
    follower = Follower(chain.bucket, base, run_id="run")
    follower.commit(follower.stage(1))
    assert follower.state.probes == PROBES
    follower.commit(follower.stage(2))
    assert follower.state.probes == ()


def test_a_repeated_publish_conflicts_because_the_last_digit_of_a_probe_differs(
    new_chain: Callable[..., Any], step: Callable[..., dict[str, Array]]
) -> None:
    chain = new_chain(0)
    old, new = chain.states[0], step(chain.states[0], 1)
    first = chain.publisher.publish(1, chain.versions[0], old, new, "rl", probes=PROBES)
    other = (Probe(ids=(5, 17, 3), logprobs=(-2.500001, -0.25)),)
    again = Publisher(chain.bucket, "run").publish(
        1, chain.versions[0], old, new, "rl", probes=other
    )
    assert again == first
    chain.publisher.announce(again)
    manifest = read_manifest(chain.bucket, read_pointer(chain.bucket, 1), run_id="run")
    assert manifest.probes == PROBES


def test_a_manifest_with_a_bent_probe_is_read(new_chain: Callable[..., Any]) -> None:
    chain = new_chain(0)
    manifest = read_manifest(chain.bucket, read_pointer(chain.bucket, 0), run_id="run")
    whole = manifest.model_copy(update={"probes": PROBES}).to_bytes()
    assert Manifest.parse(whole).probes == PROBES
    with pytest.raises(RefusedWeights, match="probes"):
        Manifest.parse(whole.replace(b"[-2.5,-0.25]", b"[-2.5]"))
