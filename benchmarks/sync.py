"""The weight stream: over far regions, to pools that are late, and what the trainer pays for it.

    python benchmarks/sync.py [--quick] [--json FILE] [--part regions|late|trainer]
                              [--weights N] [--lr LR] [--model FOLDER]

Three parts, `stream/{regions,late,trainer}.py`; what each does stands at its head. The first two
train the synthetic policy of `stream/policy.py`, the last one a real model.
`late_join_bytes_over_full` is what a pool that holds the base alone fetches through the slowest
region's line to reach the newest version, over the bytes of a dense copy: smaller is better.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "src")]

from common.figures import write_figures  # noqa: E402
from common.machine import versions  # noqa: E402
from common.model import model_folder  # noqa: E402
from stream import late, regions, trainer  # noqa: E402
from stream.policy import Policy, matrices  # noqa: E402

from tradewind.weights.state import State  # noqa: E402


def run_regions(args: argparse.Namespace, scratch: Path) -> tuple[dict[str, float], Any]:
    weights = args.weights or (1_500_000 if args.quick else 30_000_000)
    if args.quick:
        found = regions.measure(scratch, weights, 2, args.lr, [regions.FAR])
    else:
        found = regions.measure(scratch, weights, 30, args.lr)
    return regions.figures_of(found), {"lines": regions.LINES, **found}


def run_late(args: argparse.Namespace, scratch: Path) -> tuple[dict[str, float], Any]:
    weights, newest = (100_000, 72) if args.quick else (args.weights or 4_000_000, 100)
    states: dict[int, State] = {}
    about = late.publish(scratch / "bucket", Policy(matrices(weights), args.lr), newest, states)
    rows = late.measure(scratch / "bucket", states, newest)
    details = {"weights": weights, "versions": newest, **about, "late": rows}
    return late.figures_of(rows, about["bytes_full"]), details


def run_trainer(args: argparse.Namespace, scratch: Path) -> tuple[dict[str, float], Any]:
    size = trainer.QUICK if args.quick else trainer.FULL
    model = model_folder(args.model, args.quick, scratch)
    lines = trainer.measure(model, size, scratch / "run")
    return trainer.figures_of(lines), {"size": vars(size), "lines": lines}


PARTS = {"regions": run_regions, "late": run_late, "trainer": run_trainer}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="few weights, under a minute")
    parser.add_argument("--json", type=Path, help="write the record here")
    parser.add_argument("--part", choices=PARTS, help="only this one")
    parser.add_argument("--model", type=Path, help="checkpoint folder (default: the quickstart's)")
    parser.add_argument("--weights", type=int, help="of the synthetic policy")
    parser.add_argument("--lr", type=float, default=1e-6)
    args = parser.parse_args()
    figures: dict[str, float] = {}
    details: dict[str, Any] = {"lr": args.lr}
    for name in [args.part] if args.part else PARTS:
        with tempfile.TemporaryDirectory() as scratch:
            found, details[name] = PARTS[name](args, Path(scratch))
        figures |= found
    write_figures(
        args.json,
        figures,
        versions=versions("numpy", "numba", "zstandard", "obstore", "torch", "moto"),
        details=details,
    )


if __name__ == "__main__":
    main()
