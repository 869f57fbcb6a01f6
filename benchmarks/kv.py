"""What a swap does to requests that are running: go on over old keys and values, or read again.

    python benchmarks/kv.py [--quick] [--json FILE] [--deltas FOLDER]

    32 requests decode ──► half way: swap to the weights of one RL step later ──► they end
        ──► pause of the swap
        ──► each token sampled after it: logprob as sampled, against a fresh reading of the whole
            sequence by the new weights (which is what a trainer computes)

For each recorded step and each policy. `k3_<policy>` is the mean of exp(d) - 1 - d, d the trainer's
logprob less the engine's: what the loss sees as mismatch of the engine. Plain names: the worst.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "src"), str(ROOT / "examples")]

from common.figures import write_figures  # noqa: E402
from common.machine import cores, versions  # noqa: E402
from common.model import model_folder  # noqa: E402
from deltas.delta import Delta, recorded  # noqa: E402
from deltas.runs import Runs  # noqa: E402
from grpo.questions import prompts  # noqa: E402
from grpo.sampling import Rollout  # noqa: E402

from tradewind.pool.engines.embedded.engine import EmbeddedEngine  # noqa: E402
from tradewind.pool.engines.embedded.scheduler import KvPolicy  # noqa: E402
from tradewind.render.renderer import Renderer  # noqa: E402
from tradewind.types import GenerateChunk, GenerateRequest  # noqa: E402

FULL = Runs(rates=(1e-6, 2e-5), steps=4, kept=(3,), new_tokens=16, reward="query_words")
QUICK = Runs(rates=(2e-5,), steps=2, kept=(1,), new_tokens=8, reward="lower_case")
DEADLINE_S = 300.0


@dataclass
class Running:
    """Requests of one engine, and the moments at which to act."""

    rollouts: list[Rollout]
    turn: int
    """Tokens in all after which the weights are swapped."""
    half: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)
    _sampled: int = 0
    _ended: int = 0

    def listener(self, rollout: Rollout):  # type: ignore[no-untyped-def]
        """Called by the engine's thread alone."""

        def listen(chunk: GenerateChunk) -> None:
            self._ended += rollout.add(chunk)
            self._sampled += len(chunk.ids)
            if self._sampled >= self.turn:
                self.half.set()
            if self._ended == len(self.rollouts):
                self.over.set()

        return listen


@dataclass(frozen=True)
class Mismatch:
    """Of the tokens that were sampled after the swap."""

    pause_ms: float
    tokens: int
    mean: float
    """Of |d|, in nats."""
    largest: float
    k3: float


def measure(model: Path, delta: Delta, policy: KvPolicy, tokens: int) -> Mismatch:
    """Decode, swap half way, compare."""
    renderer = Renderer.open(model)
    asked = [renderer.render(p) for p in prompts(4, seed=1) for _ in range(8)]
    engine = EmbeddedEngine.open(model, threads=cores(), max_batch=len(asked), kv_policy=policy)
    engine.start()
    engine.swap(delta.old, 0)
    running = Running([Rollout(ids) for ids in asked], turn=len(asked) * tokens // 2)
    for number, rollout in enumerate(running.rollouts):
        request = GenerateRequest(
            request_id=str(number),
            prompt_ids=rollout.prompt,
            max_tokens=tokens,
            stop_ids=(),
            seed=number,
        )
        engine.submit(request, running.listener(rollout))
    assert running.half.wait(DEADLINE_S), "the first half did not end"
    pause = engine.swap(delta.new, 1)
    assert running.over.wait(DEADLINE_S), "the second half did not end"
    whole = [[*r.prompt, *r.ids] for r in running.rollouts]
    read = [engine.score([ids])[0] for ids in whole]  # a deadline holds for each call
    engine.stop()
    apart = [
        fresh - sampled
        for rollout, scored in zip(running.rollouts, read, strict=True)
        for fresh, sampled, version in zip(
            scored[len(rollout.prompt) - 1 :], rollout.logprobs, rollout.versions, strict=True
        )
        if version == 1
    ]
    return Mismatch(
        pause_ms=1000 * pause,
        tokens=len(apart),
        mean=sum(map(abs, apart)) / len(apart),
        largest=max(map(abs, apart)),
        k3=sum(math.expm1(d) - d for d in apart) / len(apart),
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="tiny random model, under a minute")
    parser.add_argument("--model", type=Path, help="checkpoint folder (default: the quickstart's)")
    parser.add_argument("--json", type=Path, help="write the record here")
    parser.add_argument("--deltas", type=Path, help="deltas that codec.py recorded; train nothing")
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds for one run of RL")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    tokens = 16 if args.quick else 64
    with tempfile.TemporaryDirectory() as scratch:
        model = model_folder(args.model, args.quick, Path(scratch))
        folder = args.deltas or Path(scratch) / "deltas"
        if args.deltas is None:
            (QUICK if args.quick else FULL).record(model, folder, args.limit)
        found: dict[str, Mismatch] = {}
        for path in recorded(folder):
            delta = Delta.read(path)
            for policy in KvPolicy:
                one = found[f"{policy.value}_{delta.name}"] = measure(model, delta, policy, tokens)
                print(
                    f"{delta.name:16} {policy.value:10} pause {one.pause_ms:8.1f} ms, "
                    f"{one.tokens} tokens: mean |d| {one.mean:.2e}, max {one.largest:.2e}, "
                    f"k3 {one.k3:.2e}"
                )
    if not found:
        sys.exit(f"error: no deltas in {folder}")
    figures = {}
    for policy in KvPolicy:
        own = {name: m for name, m in found.items() if name.startswith(policy.value)}
        figures[f"k3_{policy.value}"] = max(m.k3 for m in own.values())
        figures[f"pause_ms_{policy.value}"] = max(m.pause_ms for m in own.values())
        figures |= {f"k3_{name}": m.k3 for name, m in own.items()}
    details = {name: vars(m) for name, m in found.items()}
    used = versions("torch", "transformers", "numpy", "tradewind")
    write_figures(args.json, figures, versions=used, details=details)


if __name__ == "__main__":
    main()
