"""The worker: on the customer's side, it plays rollouts in the real product.

    controller ◄── POST /v1/leases (held open) ──┐
        │ lease: task input, base URL, keys      │
        ▼                                        │
      play ── rollout(task, policy) ──► the customer's agent and product
        │          heartbeats ─► controller        │ chat completions
        ▼                                          ▼
      POST outcome ─► controller                gateway

    consumes     leases
    produces     outcomes: data for the grader, never a verdict
    waits for    leases (controller), by long polls; reports are repeated until they are on record
    unblocked by the controller when a group opens
    if killed    its leases run out and the rollouts are played again elsewhere

It only dials out. `TRADEWIND_WORKER_KEY` is all the secret it holds.

    python -m tradewind.worker --env path/to/env.py:rollout --controller URL [--concurrency N]
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from tradewind.envs.protocol import Env, load_env
from tradewind.types.errors import UserError
from tradewind.worker.client import ControllerClient
from tradewind.worker.config import WorkerConfig
from tradewind.worker.worker import Worker

log = logging.getLogger("worker")

KEY_VARIABLE = "TRADEWIND_WORKER_KEY"


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; the exit status is 2 after a sentence about wrong input."""
    args = _parse(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        config = WorkerConfig.read(args.config)
        if args.concurrency is not None:
            config = config.model_copy(update={"concurrency": args.concurrency})
        if args.name is not None:
            config = config.model_copy(update={"name": args.name})
        key = os.environ.get(KEY_VARIABLE)
        if not key:
            raise UserError(
                "the worker key is missing", value=KEY_VARIABLE, fix="set this environment variable"
            )
        asyncio.run(run(load_env(args.env), args.controller, key, config))
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


async def run(env: Env, controller: str, key: str, config: WorkerConfig) -> None:
    """Work until SIGTERM or SIGINT."""
    async with ControllerClient(controller, key, config) as client:
        worker = Worker(env, client, config)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, worker.stop)
        log.info(
            "ready: %s works for %s, %d at a time", config.name, controller, config.concurrency
        )
        await worker.run()


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tradewind.worker", description="Play rollouts")
    parser.add_argument(
        "--env", "--entry", required=True, help="path/to/env.py:rollout or package.module:rollout"
    )
    parser.add_argument("--controller", "--join", required=True, help="URL of the controller")
    parser.add_argument("--concurrency", type=int, help="rollouts at the same time")
    parser.add_argument("--name", help="how status and log call this worker")
    parser.add_argument("--config", type=Path, help="JSON or TOML file of WorkerConfig's fields")
    parser.add_argument("--workspace", type=Path, help="not needed; every process accepts it")
    return parser.parse_args(argv)
