"""Decoding: the embedded engine, `transformers.generate` and vLLM's CPU build.

    python benchmarks/engine.py [--quick] [--json FILE] [--model FOLDER] [--vllm-python PATH]

    load (64 requests of 64 tokens) ──► ours ──► transformers in bf16 and fp32 ──► vLLM in bf16 and
    fp32, if there ──► ratios against each peer's faster dtype

Every side is a process of its own, in turn, on the same cores, and samples at temperature 1 without
top-p or top-k, ends of text ignored; ours and vLLM return the logprob of every sampled id as well,
transformers does not. The median round counts. `engine_swap_pause_ms` is how long decoding stood
still while every weight changed. --batches adds our own figures for other batch sizes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "src"), str(ROOT / "examples")]

from common.figures import write_figures  # noqa: E402
from common.machine import cores  # noqa: E402
from common.model import model_folder  # noqa: E402
from common.side import Event, SideFailedError, run_side  # noqa: E402
from decode.load import Load  # noqa: E402

PEER_DTYPES = ("bfloat16", "float32")


def side(module: str, load: Load, dtype: str, threads: int, args: argparse.Namespace) -> Any:
    """Events of one side, or the sentence with which it failed."""
    python = str(args.vllm_python) if module == "vllm_cpu" else sys.executable
    argv = [python, "-m", f"decode.{module}", load.to_json(), dtype, str(threads)]
    name = f"{module} {dtype} {load.requests}x{load.tokens} on {threads}"
    return run_side(name, argv, limit_s=args.limit, threads=threads, prefix=args.prefix)


def speed(events: list[Event]) -> float:
    """Sampled tokens per second, of the median round."""
    return median(e["tokens_per_s"] for e in events if e["event"] == "round")


def peers(load: Load, threads: int, args: argparse.Namespace) -> dict[str, Any]:
    """Tokens per second of each peer and dtype, or why there are none."""
    modules = ["hf", "vllm_cpu"] if args.vllm_python else ["hf"]
    found: dict[str, Any] = {}
    for module in modules:
        for dtype in args.peer_dtypes:
            try:
                events = side(module, load, dtype, threads, args)
                found[f"{module}_{dtype}"] = {"tokens_per_s": speed(events), "events": events}
            except SideFailedError as error:
                found[f"{module}_{dtype}"] = {"failed": str(error)}
                print(f"  {error}", file=sys.stderr)
    return found


def ratios(ours: float, found: dict[str, Any]) -> dict[str, float]:
    """Ours over each peer's faster dtype."""
    figures: dict[str, float] = {}
    for module, name in (("hf", "transformers"), ("vllm_cpu", "vllm_cpu")):
        speeds = {
            dtype: found[f"{module}_{dtype}"]["tokens_per_s"]
            for dtype in PEER_DTYPES
            if "tokens_per_s" in found.get(f"{module}_{dtype}", {})
        }
        if speeds:
            figures[f"engine_tokens_over_{name}"] = ours / max(speeds.values())
        for dtype, value in speeds.items():
            figures[f"{name}_{dtype}_tokens_per_s"] = value
    return figures


def batches(load: Load, args: argparse.Namespace) -> dict[str, float]:
    """Our tokens per second at other batch sizes and thread counts."""
    figures: dict[str, float] = {}
    for threads in range(1, args.threads + 1):
        for size in (1, 8, 16, 32, 64):
            part = Load(load.model, size, load.prompt, load.tokens, load.rounds)
            name = f"engine_tokens_per_s_batch{size}_threads{threads}"
            figures[name] = speed(side("ours", part, args.dtype, threads, args))
    return figures


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="tiny random model, under a minute")
    parser.add_argument("--model", type=Path, help="checkpoint folder (default: the quickstart's)")
    parser.add_argument("--vllm-python", type=Path, help="interpreter that can import vllm")
    parser.add_argument(
        "--peer-dtypes", nargs="+", default=PEER_DTYPES, help="leave out one that is known slow"
    )
    parser.add_argument("--json", type=Path, help="write the record here")
    parser.add_argument("--threads", type=int, default=cores())
    parser.add_argument("--dtype", default="auto", help="of our arithmetic")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", action="store_true", help="other batch sizes as well")
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds for one side")
    parser.add_argument("--prefix", default="", help="put before each side's command")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    with tempfile.TemporaryDirectory() as scratch:
        model = model_folder(args.model, args.quick, Path(scratch))
        load = Load(str(model), 64, 32, 64, rounds=1 if args.quick else args.rounds)
        ours = side("ours", load, args.dtype, args.threads, args)
        found = peers(load, args.threads, args)
        figures = ratios(speed(ours), found)
        figures["engine_tokens_per_s"] = speed(ours)
        figures["engine_swap_pause_ms"] = next(e["pause_ms"] for e in ours if e["event"] == "swap")
        if args.batches:
            figures |= batches(load, args)
    ready = [e["versions"] for e in ours if e["event"] == "ready"]
    ready += [e["versions"] for p in found.values() for e in p.get("events", []) if "versions" in e]
    versions = {name: v for group in reversed(ready) for name, v in group.items()}
    details = {"load": load.to_json(), "threads": args.threads, "ours": ours, "peers": found}
    write_figures(args.json, figures, versions=versions, details=details)


if __name__ == "__main__":
    main()
