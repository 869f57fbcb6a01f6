"""The long line of `benchmarks/sync.py`: it delays and limits, and never changes a byte."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from common import s3
from stream.line import BURST_S, Lane, Line
from stream.policy import Policy, llama, llama_shapes, matrices
from stream.regions import FAR, JOINER, LATE_RELAYED, NEAR, PAIR, REGIONS, Lines, figures_of

from tradewind.weights.bucket import Bucket
from tradewind.weights.digest import state_id
from tradewind.weights.follow import Follower
from tradewind.weights.publish import Publisher


def test_a_lane_carries_its_rate_and_no_more() -> None:
    lane = Lane(rate=1000.0, delay_s=0.25)
    left = [lane.send(100, now=5.0)[0] for _ in range(20)]
    assert left[-1] == pytest.approx(5.0 - BURST_S + 2.0), "2,000 bytes at 1,000 bytes/s"
    assert lane.size == 2000
    left_late, arrives = lane.send(100, now=60.0)
    assert left_late == pytest.approx(60.1 - BURST_S), "an idle line saves up no more than a burst"
    assert arrives == pytest.approx(left_late + 0.25)


def test_a_chunk_arrives_no_sooner_than_the_delay() -> None:
    lane = Lane(rate=1e12, delay_s=0.25)
    assert lane.send(1, now=7.0)[1] == pytest.approx(7.25)


def test_bytes_pass_unchanged_both_ways_and_are_counted() -> None:
    data = np.random.default_rng(0).bytes(300_000)

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read(-1))[::-1])
        writer.close()

    async def through_the_line() -> tuple[bytes, Line]:
        target = await asyncio.start_server(echo, "127.0.0.1", 0)
        line = Line("127.0.0.1", target.sockets[0].getsockname()[1], rtt_s=0.01, mbit_s=1000)
        server, port = await line.listen()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        writer.write_eof()
        back = await reader.read(-1)
        writer.close()
        for each in (server, target):
            each.close()
        return back, line

    back, line = asyncio.run(asyncio.wait_for(through_the_line(), 60))
    assert back == data[::-1]
    assert (line.up.size, line.down.size) == (len(data), len(data))


def test_the_synthetic_run_changes_about_a_hundredth_of_its_weights() -> None:
    policy = Policy(matrices(200_000), lr=1e-6)
    before = policy.tensors()
    for _ in range(3):
        policy.step()
    after = policy.tensors()
    share = np.mean([(before[name] != after[name]).mean() for name in before])
    assert 0.005 < share / 3 < 0.05


def test_the_pools_model_has_the_shapes_that_its_config_says() -> None:
    config = llama(1_500_000)
    tensors = Policy(llama_shapes(config), lr=1e-6).tensors()
    assert tensors["model.embed_tokens.weight"].shape == (8192, config["hidden_size"])
    assert 0.5 < tensors.nbytes / 2 / 1_500_000 < 2
    norm = tensors["model.norm.weight"].astype(np.uint32) << 16
    assert norm.view(np.float32) == pytest.approx(1, abs=0.2)


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    with s3.moto() as url:
        yield url


def test_three_far_regions_follow_a_run_bit_for_bit(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The benchmark in small: lines of a few milliseconds, followers instead of pools."""
    regions = {"oregon": (4, 200), "frankfurt": (9, 100), "mumbai": (15, 50)}
    with Lines.to(store, regions) as lines:
        published, active, shipped = _follow_from_afar(store, lines, monkeypatch)
        received = lines.received()
    assert len(published) == 5 and active == dict.fromkeys(regions, published)
    assert all(received[name] > shipped for name in regions), "all of it came by the lines"


def _follow_from_afar(
    store: str, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[str], dict[str, list[str]], int]:
    """State ids of five versions, those that each region decoded, and the bytes of the versions."""
    for name, value in s3.environment(store).items():
        monkeypatch.setenv(name, value)
    policy = Policy(matrices(50_000), lr=1e-6)
    near = Bucket.open(f"s3://{s3.BUCKET}/run")
    publisher = Publisher(near, "run", threads=1)
    states = [policy.tensors()]
    versions = [publisher.publish(0, None, {}, states[0], "base")]
    publisher.announce(versions[0])
    followers: dict[str, Follower] = {}
    for name, port in lines.ports.items():
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        followers[name] = Follower(Bucket.open(near.url), states[0], run_id="run")
    active: dict[str, list[str]] = {name: [] for name in followers}
    for number in range(1, 6):
        policy.step()
        states.append(policy.tensors())
        versions.append(publisher.publish(number, versions[-1], *states[-2:], "rl", step=number))
        publisher.announce(versions[-1])
        for name, follower in followers.items():
            assert follower.newest() == number
            follower.commit(follower.stage(number))
            active[name].append(state_id(follower.mirror))
    shipped = sum(version.bytes_shipped for version in versions[1:])
    return [version.state_id for version in versions[1:]], active, shipped


def test_figures_are_taken_from_the_end_of_the_step_to_the_proven_version() -> None:
    def proof(version: int, at: float, pause_ms: float) -> dict[str, Any]:
        return {
            "version": version,
            "activated_at": at,
            "pause_ms": pause_ms,
            "bytes_fetched": 10,
            "stage_s": 0.5,
        }

    proofs = [proof(0, 90.0, 99.0), proof(1, 102.0, 1.0), proof(2, 211.0, 3.0)]
    beside = [proof(2, 211.0, 9.0), proof(3, 304.0, 1.0)]
    lines = {"oregon": 40, "frankfurt": 40, "mumbai": 60, "relayed": 30}
    run = {
        "bytes_full": 1000,
        "direct_versions": 2,
        "down": dict.fromkeys(("direct", "join", "beside", "join_relayed"), lines),
        "proof_ms": {name: {0: 0.0, 1: 20.0, 2: 40.0} for name in (NEAR, *REGIONS)},
        "versions": [
            {"version": 1, "ended": 100.0, "publish_s": 0.5, "changed": 0.01},
            {"version": 2, "ended": 210.0, "publish_s": 0.7, "changed": 0.03},
            {"version": 3, "ended": 300.0, "publish_s": 0.7, "changed": 0.03},
        ],
        "attestations": {
            **dict.fromkeys((NEAR, *REGIONS, JOINER, LATE_RELAYED), proofs),
            FAR: [*proofs, proof(3, 305.0, 77.0)],
            **dict.fromkeys(PAIR, beside),
        },
    }
    figures = figures_of(run)
    assert figures["active_seconds_near"] == pytest.approx(1.5)
    assert figures["active_seconds_most_mumbai"] == pytest.approx(2.0)
    assert figures["line_bytes_over_full_mumbai"] == pytest.approx(0.03)
    assert figures["pause_ms_p99"] == pytest.approx(3.0, rel=0.05), "the base is no swap"
    assert figures["proof_ms_p50"] == pytest.approx(30.0)
    assert figures["late_join_bytes_over_full"] == pytest.approx(0.01)
    assert figures["late_join_relayed_line_bytes_over_full"] == pytest.approx(0.03)
    assert figures["beside_relay_active_seconds_direct"] == pytest.approx(5.0)
    assert figures["beside_relay_active_seconds_relayed"] == pytest.approx(4.0)
    assert figures["line_bytes_two_direct_over_two_relayed"] == pytest.approx(4.0)
