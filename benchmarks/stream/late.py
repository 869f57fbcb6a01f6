"""Late pools: objects and bytes that a pool n versions behind fetches, with and without shortcuts.

    synthetic run ──► bucket folder: the chain ──► a copy with the ladder's shortcuts
                                              n = 1, 4, 16, 64 behind, at every place in a span

A pool is put n versions behind each of the newest 16 versions, since how far the last rung is away
matters; the mean and the worst of the 16 are reported. Every pool arrives bit for bit, or the
benchmark fails.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import mean
from typing import Any

from stream.policy import Policy
from tradewind.weights.bucket import Bucket
from tradewind.weights.follow import Follower, Staged
from tradewind.weights.ladder import SPAN, Ladder
from tradewind.weights.publish import Publisher
from tradewind.weights.state import State

RUN = "sync"
BEHIND = (1, 4, 16, 64)


def publish(folder: Path, policy: Policy, newest: int, states: dict[int, State]) -> dict[str, Any]:
    """The chain up to `newest`, shortcuts to the newest `SPAN` versions; fills `states`."""
    bucket = Bucket.open(folder.as_uri())
    publisher = Publisher(bucket, RUN, threads=1)
    tensors = policy.tensors()
    base = State.of(0, tensors)
    parent = publisher.publish(0, None, {}, tensors, "base")
    publisher.announce(parent)
    states[0], base_manifest = base, parent.manifest
    ladder = Ladder(bucket, RUN, base)
    singles, seconds, changed = [], [], []
    for number in range(1, newest + 1):
        policy.step()
        after = policy.tensors()
        version = publisher.publish(number, parent, tensors, after, "rl", step=number)
        publisher.announce(version)
        began = time.perf_counter()
        ladder.offer(version, after)
        assert ladder.settle(600).finished
        seconds.append(time.perf_counter() - began)
        singles.append(version.bytes_shipped)
        changed.append(mean(float((tensors[n] != after[n]).mean()) for n in tensors))
        parent, tensors = version, after
        if number > newest - SPAN - max(BEHIND):
            states[number] = State.of(number, after)
    status = ladder.close(600)
    everything = sum(item.size for item in bucket.objects(""))
    pointers = sum(item.size for item in bucket.objects("latest/"))
    chain = sum(singles) + len(bucket.get(base_manifest, limit=2**26)) + pointers
    assert status.finished and not status.failed, status.last_error
    return {
        "single_bytes": mean(singles),
        "changed_share": mean(changed),
        "ladder_seconds": mean(seconds),
        "shortcuts": status.published,
        "chain_bytes": chain,
        "shortcut_bytes": everything - chain,
        "bytes_full": base.tensors.nbytes,
    }


class Blind(Bucket):
    """A bucket in which no shortcuts are seen."""

    def list(self, prefix: str, *, after: str | None = None) -> list[str]:
        return [] if prefix == "shortcuts/" else super().list(prefix, after=after)


def catch_up(bucket: Bucket, states: dict[int, State], held: int, goal: int) -> Staged:
    """One staging from `held`; the base can be read."""
    base = states[0]
    follower = Follower(bucket, states[held].tensors, held, run_id=RUN, base_state_id=base.state_id)
    follower.read_base = lambda: base.tensors
    staged = follower.stage(goal)
    assert staged.state_id == states[goal].state_id and not staged.detours
    return staged


def measure(folder: Path, states: dict[int, State], newest: int) -> list[dict[str, Any]]:
    """A row per number of versions behind."""
    url = folder.as_uri()
    sides = {"shortcuts": Bucket.open(url), "chain": Blind(url, Bucket.open(url)._store)}
    rows = []
    for behind in (*BEHIND, newest):
        goals = [newest] if behind == newest else range(newest - SPAN + 1, newest + 1)
        row: dict[str, Any] = {"behind": behind}
        for name, bucket in sides.items():
            staged = [catch_up(bucket, states, goal - behind, goal) for goal in goals]
            row[name] = {
                "objects_mean": mean(s.objects for s in staged),
                "objects_most": max(s.objects for s in staged),
                "bytes_mean": mean(s.bytes_fetched for s in staged),
                "bytes_most": max(s.bytes_fetched for s in staged),
                "seconds_mean": mean(s.stage_s for s in staged),
            }
        rows.append(row)
    return rows


def figures_of(rows: list[dict[str, Any]], full: int) -> dict[str, float]:
    """`late_<n>_...` per number of versions behind; the last row is the join from the base."""
    figures: dict[str, float] = {}
    for row in rows[:-1]:
        ours, chain, name = row["shortcuts"], row["chain"], f"late_{row['behind']}"
        figures[f"{name}_objects_most"] = ours["objects_most"]
        figures[f"{name}_bytes_over_full"] = ours["bytes_mean"] / full
        figures[f"{name}_bytes_chain_over_ours"] = chain["bytes_mean"] / ours["bytes_mean"]
    figures["base_join_objects"] = rows[-1]["shortcuts"]["objects_most"]
    figures["base_join_bytes_over_full"] = rows[-1]["shortcuts"]["bytes_mean"] / full
    figures["base_join_bytes_chain_over_full"] = rows[-1]["chain"]["bytes_mean"] / full
    return figures
