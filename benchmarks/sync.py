"""Late pools: objects and bytes that a pool n versions behind fetches, with and without shortcuts.

    python benchmarks/sync.py [--quick] [--json FILE] [--weights N] [--versions N] [--lr LR]

    synthetic run ──► bucket folder: the chain ──► a copy with the ladder's shortcuts
                                              n = 1, 4, 16, 64 behind, at every place in a span

The run is random bf16 weights and AdamW steps on correlated noise (fp32 masters, gradients half new
in every step); the record says which share of the weights a step changed. A pool is put
n versions behind each of the newest 16 versions, since how far the last rung is away matters; the
mean and the worst of the 16 are reported. Every pool arrives bit for bit, or the benchmark fails.

`late_join_bytes_over_full` is what a pool that holds the base alone fetches to reach the newest
version, over the bytes of a dense copy: smaller is better.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "src")]

from common.figures import write_figures  # noqa: E402
from common.machine import versions  # noqa: E402

from tradewind.weights.bucket import Bucket  # noqa: E402
from tradewind.weights.follow import Follower, Staged  # noqa: E402
from tradewind.weights.ladder import SPAN, Ladder  # noqa: E402
from tradewind.weights.publish import Publisher  # noqa: E402
from tradewind.weights.state import State  # noqa: E402
from tradewind.weights.tensors import TensorSet  # noqa: E402

RUN = "sync"
BEHIND = (1, 4, 16, 64)


class Policy:
    """Eight random matrices with fp32 masters; `step` is one AdamW step."""

    def __init__(self, weights: int, lr: float) -> None:
        self._draw = np.random.default_rng(0)
        side = max(8, int((weights / 8) ** 0.5))
        self._lr, self._count = lr, 0
        self._master = self._draw.normal(0, 0.02, (8, side, side)).astype(np.float32)
        self._master = (bf16(self._master).astype(np.uint32) << 16).view(np.float32)
        self._gradient = np.zeros_like(self._master)
        self._mean, self._square = np.zeros_like(self._master), np.zeros_like(self._master)

    def step(self) -> None:
        new = self._draw.standard_normal(self._master.shape, np.float32)
        self._gradient = (self._gradient + new) / 2
        self._count += 1
        self._mean += 0.1 * (self._gradient - self._mean)
        self._square += 0.05 * (self._gradient**2 - self._square)
        mean_now = self._mean / (1 - 0.9**self._count)
        square_now = self._square / (1 - 0.95**self._count)
        self._master -= self._lr * mean_now / (np.sqrt(square_now) + 1e-8)

    def tensors(self) -> TensorSet:
        bits = bf16(self._master)
        return TensorSet({f"layer.{i}.weight": bits[i].copy() for i in range(len(bits))})


def bf16(values: np.ndarray) -> np.ndarray:
    """Rounded to nearest, ties to even, as uint16 bits."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


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
    figures["late_join_objects"] = rows[-1]["shortcuts"]["objects_most"]
    figures["late_join_bytes_over_full"] = rows[-1]["shortcuts"]["bytes_mean"] / full
    figures["late_join_bytes_chain_over_full"] = rows[-1]["chain"]["bytes_mean"] / full
    return figures


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="few weights, under a minute")
    parser.add_argument("--json", type=Path, help="write the record here")
    parser.add_argument("--weights", type=int, default=4_000_000)
    parser.add_argument("--versions", type=int, default=100, help="at least 80")
    parser.add_argument("--lr", type=float, default=1e-6)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    weights = 100_000 if args.quick else args.weights
    newest = 80 if args.quick else max(80, args.versions)
    with tempfile.TemporaryDirectory() as scratch:
        folder, states = Path(scratch) / "bucket", {}
        about = publish(folder, Policy(weights, args.lr), newest, states)
        rows = measure(folder, states, newest)
    for row in rows:
        for side in ("chain", "shortcuts"):
            s = row[side]
            print(
                f"{row['behind']:4} behind, {side:9}: {s['objects_mean']:6.2f} objects "
                f"(most {s['objects_most']}), {s['bytes_mean']:12,.0f} bytes (most "
                f"{s['bytes_most']:,}), {s['seconds_mean']:.3f} s"
            )
    details = {"weights": weights, "versions": newest, "lr": args.lr, **about, "late": rows}
    write_figures(
        args.json,
        figures_of(rows, about["bytes_full"]),
        versions=versions("numpy", "numba", "zstandard", "obstore"),
        details=details,
    )


if __name__ == "__main__":
    main()
