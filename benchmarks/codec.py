"""The weight codec on deltas of real RL steps: size against published formats and bounds, speed.

    python benchmarks/codec.py [--quick] [--json FILE] [--record FOLDER | --deltas FOLDER]

    RL at each learning rate (our engine, our trainer) ──► bf16 weights before and after a step
        ──► our codec in a bucket, published formats, entropies ──► a table for each delta
        ──► our codec on one thread ──► MB of dense bf16 a second

Every format codes the same bytes, and is decoded again and compared. Figures are given for each
delta, and the worst of them under the plain name: the largest `bytes_over_exponent_bound`, the
smallest of all others.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "src"), str(ROOT / "examples")]

from common.figures import write_figures  # noqa: E402
from common.machine import versions  # noqa: E402
from common.model import model_folder  # noqa: E402
from common.side import Event  # noqa: E402
from deltas.bounds import exponent_bytes, memoryless_bytes  # noqa: E402
from deltas.delta import Delta, recorded  # noqa: E402
from deltas.formats import FORMATS, Format, GapXor, XorZstd  # noqa: E402
from deltas.ours import Shipped, Speed, shipped, speeds  # noqa: E402
from deltas.runs import Runs  # noqa: E402

NEMO_LIKE, XOR_ZSTD = GapXor(), XorZstd()
SMALLER_IS_BETTER = "bytes_over_exponent_bound"


FULL = Runs(rates=(1e-6, 5e-6, 2e-5), steps=6, kept=(0, 5), new_tokens=16, reward="query_words")
QUICK = Runs(rates=(5e-6,), steps=2, kept=(0, 1), new_tokens=8, reward="lower_case")
ROUNDS = 7
"""Of each clock; three in the quick size."""


@dataclass(frozen=True)
class Measured:
    """All about one delta; sizes in bytes."""

    delta: str
    dense: int
    weights: int
    changed: int
    ours: Shipped
    formats: dict[str, int]
    memoryless: float
    exponent: float
    speeds: dict[str, Speed]

    def figures(self) -> dict[str, float]:
        """Under plain names."""
        ours = self.ours.total
        return {
            SMALLER_IS_BETTER: ours / self.exponent,
            "nemo_like_bytes_over_ours": self.formats[NEMO_LIKE.name] / ours,
            "xor_zstd_bytes_over_ours": self.formats[XOR_ZSTD.name] / ours,
            "dense_bytes_over_ours": self.dense / ours,
            "encode_mb_s_per_core": self.speeds["encode"].cpu,
            "apply_mb_s_per_core": self.speeds["apply"].cpu,
        }

    def show(self) -> None:
        """The table."""
        share = 100 * self.changed / self.weights
        print(f"\n{self.delta}: {self.dense / 1e6:.1f} MB dense, {share:.3f} % changed")
        print(f"{'':36}{'MB':>10}{'dense/it':>10}{'bits/change':>13}{'x bound':>9}")
        rows = dict(self.formats)
        rows["memoryless bound"] = round(self.memoryless)
        rows["ours, as shipped"] = self.ours.total
        rows["ours, frames alone"] = self.ours.frames
        rows["bound given the old exponent"] = round(self.exponent)
        for name, size in rows.items():
            bits = 8 * size / max(self.changed, 1)
            print(
                f"{name:36}{size / 1e6:10.3f}{self.dense / size:10.1f}{bits:13.2f}"
                f"{size / self.exponent:9.2f}"
            )
        for name, speed in self.speeds.items():
            print(f"{name:10} {speed.cpu:7.0f} MB/s of CPU time, {speed.wall:7.0f} by the wall")


def measure(delta: Delta, rounds: int) -> Measured:
    """Every size, decoded again, and the speeds."""
    return Measured(
        delta=delta.name,
        dense=delta.nbytes,
        weights=delta.weights(),
        changed=delta.changed(),
        ours=shipped(delta),
        formats={form.name: coded_size(form, delta) for form in FORMATS},
        memoryless=memoryless_bytes(delta),
        exponent=exponent_bytes(delta),
        speeds=speeds(delta, rounds),
    )


def coded_size(form: Format, delta: Delta) -> int:
    """Bytes of the delta in this format, which must give it back."""
    blob = form.encode(delta.old, delta.new)
    back = form.decode(blob, delta.old)
    assert all((back[n] == delta.new[n]).all() for n in delta.new), f"{form.name} lost bits"
    return len(blob)


def figures_of(measured: list[Measured]) -> dict[str, float]:
    """The worst under the plain name, then each with the name of its delta."""
    figures: dict[str, float] = {}
    for name in measured[0].figures():
        worst = max if name == SMALLER_IS_BETTER else min
        figures[name] = worst(m.figures()[name] for m in measured)
        figures |= {f"{name}_{m.delta}": m.figures()[name] for m in measured}
    return figures


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="tiny random model, under a minute")
    parser.add_argument("--model", type=Path, help="checkpoint folder (default: the quickstart's)")
    parser.add_argument("--json", type=Path, help="write the record here")
    deltas = parser.add_mutually_exclusive_group()
    deltas.add_argument("--record", type=Path, help="keep the deltas in this folder")
    deltas.add_argument("--deltas", type=Path, help="use the deltas of this folder, train nothing")
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds for one run of RL")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    runs, rounds = (QUICK, 3) if args.quick else (FULL, ROUNDS)
    load = os.getloadavg()[0]
    events: list[Event] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.deltas or args.record or Path(scratch) / "deltas"
        if args.deltas is None:
            model = model_folder(args.model, args.quick, Path(scratch))
            events = runs.record(model, folder, args.limit)
        found = recorded(folder)
        if not found:
            sys.exit(f"error: no deltas in {folder}")
        measured = []
        for path in found:
            measured.append(measure(Delta.read(path), rounds))
            measured[-1].show()
    print()
    details: dict[str, Any] = {
        "load_before": load,
        "deltas": [asdict(m) for m in measured],
        "recording": events,
    }
    used = versions("numpy", "numba", "zstandard", "torch", "tradewind")
    write_figures(args.json, figures_of(measured), versions=used, details=details)


if __name__ == "__main__":
    main()
