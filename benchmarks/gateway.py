"""What the gateway costs: latency it adds, requests per second of one core, memory of open streams.

    python benchmarks/gateway.py [--quick] [--json FILE] [--no-peers]

    load (core 1) ──► gateway (core 0) ──► fake engine (core 1)       32 tokens, at once
                        └► ledger on disk, every turn captured

    added_ms_p50, _p99       at 100 calls/s, less the median of calls straight to the engine
    requests_s               32 connections that never rest
    open_streams_mib         resident memory with 2,000 streams open

LiteLLM's proxy and rLLM's gateway (which captures too) stand at the same place in turn.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "src"), str(ROOT / "examples")]

from common.figures import write_figures  # noqa: E402
from common.machine import versions  # noqa: E402
from common.peer import peer_python  # noqa: E402
from gateways import sides  # noqa: E402
from gateways.engine import TEXT, FakeEngine  # noqa: E402
from gateways.load import Load, conversation, quantile  # noqa: E402
from gateways.ours import write_ledger, write_model  # noqa: E402
from gateways.wire import Client  # noqa: E402

CHAT = "/v1/chat/completions"
PEERS = {"litellm": "litellm[proxy]==1.108.7", "rllm": "rllm-model-gateway==0.1.0"}
RATE, CONNECTIONS, STREAMS = 100.0, 32, 2000


async def measure(url: str, path: str, keys: Iterator[str], seconds: float) -> dict[str, Any]:
    """Warm up, then latency at a fixed rate, then throughput."""
    await Load(url, path, keys).closed(4, min(2.0, seconds / 4))
    paced = Load(url, path, keys)
    await paced.open(RATE, seconds, CONNECTIONS)
    requests_s = await Load(url, path, keys).closed(CONNECTIONS, seconds)
    milliseconds = [1000 * s for s in paced.seconds]
    p50, p99 = quantile(milliseconds, 0.5), quantile(milliseconds, 0.99)
    return {"p50": p50, "p99": p99, "requests_s": requests_s, "calls": len(milliseconds)}


async def streams_mib(url: str, run: Any, engine: FakeEngine, keys: list[str], n: int) -> float:
    """Memory with `n` streams that have begun and do not end."""
    engine.hold = True
    clients = [Client(url, key) for _, key in zip(range(n), cycle(keys), strict=False)]
    messages = next(conversation(0))
    body = {"model": "policy", "messages": messages, "stream": True}

    async def begin(client: Client) -> None:
        await client.send(CHAT, body)
        await client.first()

    for start in range(0, n, 100):
        await asyncio.gather(*(begin(client) for client in clients[start : start + 100]))
    assert engine.held == n, f"{engine.held} of {n} streams reached the engine"
    found = sides.memory_mib(run)
    for client in clients:
        client.close()
    return found


async def compare(args: argparse.Namespace, scratch: Path) -> dict[str, dict[str, Any]]:
    """Every side in turn."""
    gateway_core = placed()
    seconds, streams = (3.0, 300) if args.quick else (8.0, STREAMS)
    tokenizer = write_model(scratch / "model")
    ids = [
        *tokenizer.encode(TEXT, add_special_tokens=False).ids,
        tokenizer.token_to_id("<|im_end|>"),
    ]
    engine = FakeEngine(ids)
    await engine.start()
    keys = write_ledger(scratch / "ledger.sqlite", engine.url, 400 if args.quick else 3000)
    found = {"direct": await measure(engine.url, CHAT, cycle(["k"]), seconds)}
    with sides.ours(scratch, gateway_core) as (url, run):
        found["ours"] = await measure(url, CHAT, cycle(keys), seconds)
        found["ours"]["open_streams_mib"] = await streams_mib(url, run, engine, keys, streams)
    engine.hold = False
    if args.no_peers:
        return found
    with sides.litellm(peer(args, "litellm"), scratch, engine.url, gateway_core) as url:
        found["litellm"] = await measure(url, CHAT, cycle([sides.LITELLM_KEY]), seconds)
    with sides.rllm(peer(args, "rllm"), scratch, engine.url, gateway_core) as url:
        found["rllm"] = await measure(url, f"/sessions/s1{CHAT}", cycle(["k"]), seconds)
    return found


def placed() -> int:
    """The gateway's core; this process moves to another."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[-1]})
    return cores[0]


def peer(args: argparse.Namespace, name: str) -> Path:
    given: Path | None = args.peer_python
    return given or peer_python(name, [[PEERS[name]]])


def figures_of(found: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Added latency is against the median straight to the engine."""
    direct, own = found["direct"]["p50"], found["ours"]
    figures = {
        "added_ms_p50": own["p50"] - direct,
        "added_ms_p99": own["p99"] - direct,
        "requests_s": own["requests_s"],
        "open_streams_mib": own["open_streams_mib"],
    }
    for name in ("litellm", "rllm"):
        if name in found:
            theirs = found[name]
            figures[f"requests_s_over_{name}"] = own["requests_s"] / theirs["requests_s"]
            added = (theirs["p50"] - direct) / max(1e-3, own["p50"] - direct)
            figures[f"added_ms_{name}_over_ours"] = added
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="seconds of load, 300 streams")
    parser.add_argument("--json", type=Path, help="write the record here")
    parser.add_argument("--no-peers", action="store_true", help="only our side")
    parser.add_argument("--peer-python", type=Path, help="an environment that has both peers")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, suppress(KeyboardInterrupt):
        cores = os.sched_getaffinity(0)
        found = asyncio.run(compare(args, Path(scratch)))
        os.sched_setaffinity(0, cores)  # the record names the machine, not our share of it
        for name, side in found.items():
            print(name, {key: round(value, 3) for key, value in side.items()})
        used = versions("starlette", "uvicorn", "httpx", "sqlalchemy", "tradewind")
        write_figures(args.json, figures_of(found), versions={**used, **PEERS}, details=found)


if __name__ == "__main__":
    main()
