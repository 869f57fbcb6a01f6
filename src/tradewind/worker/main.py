"""The worker: on the customer's side, it plays rollouts in the real product.

    controller ◄── POST /v1/leases (held open) ──┐
        │ lease: task input, base URL, keys      │
        ▼                                        │
      stage ── rollout(task, policy) ──► the customer's agent and product; it may block
        │          heartbeats ─► controller        │ chat completions
        ▼                                          ▼
      POST outcome ─► controller                gateway

    consumes     leases
    produces     outcomes: data for the grader, never a verdict
    waits for    leases (controller), by long polls; reports are repeated until they are on record
    unblocked by the controller when a group opens
    if killed    its leases run out and the rollouts are played again elsewhere

It only dials out. `TRADEWIND_WORKER_KEY` is all the secret it holds, and the agent does not inherit
it. What the environment's variables hold is taken out of every outcome.

    tradewind worker my_env.py --controller URL [--concurrency N]
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

from tradewind.envs.protocol import load_env
from tradewind.envs.secrets import Secrets
from tradewind.types.errors import UserError
from tradewind.worker.client import ControllerClient
from tradewind.worker.config import WorkerConfig
from tradewind.worker.play import Player
from tradewind.worker.stage import Stage
from tradewind.worker.worker import Worker

log = logging.getLogger("worker")

KEY_VARIABLE = "TRADEWIND_WORKER_KEY"


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; the exit status is 2 after a sentence about wrong input."""
    args = _parse(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        options = {"concurrency": args.concurrency, "name": args.name}
        config = WorkerConfig.with_options(args.config, options)
        secrets = Secrets.from_environment(os.environ, config.secret_variables)
        key = take_key()
        with Stage() as stage:
            play = stage.player(load_env(args.env))
            asyncio.run(run(play, args.controller, key, config, secrets))
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def take_key() -> str:
    """The worker key, taken out of this process's environment: an agent's shell inherits that."""
    key = os.environ.pop(KEY_VARIABLE, "")
    if not key:
        raise UserError(
            "the worker key is missing", value=KEY_VARIABLE, fix="set this environment variable"
        )
    return key


async def run(
    play: Player, controller: str, key: str, config: WorkerConfig, secrets: Secrets
) -> None:
    """Work until SIGTERM or SIGINT."""
    async with ControllerClient(controller, key, config) as client:
        worker = Worker(play, client, config, secrets)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, worker.stop)
        log.info(
            "ready: %s works for %s, %d at a time", config.name, controller, config.concurrency
        )
        await worker.run()


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tradewind worker",
        description="Play rollouts in your product; only dials out",
        epilog=f"{KEY_VARIABLE} in the environment is the key that the run gave you",
    )
    parser.add_argument(
        "env", nargs="?", help="path/to/env.py[:name] or package.module[:name]; name: rollout"
    )
    parser.add_argument("--env", "--entry", dest="entry", help="the same")
    parser.add_argument("--controller", "--join", required=True, help="URL of the controller")
    parser.add_argument("--concurrency", type=int, help="rollouts at the same time")
    parser.add_argument("--name", help="how status and log call this worker")
    parser.add_argument("--config", type=Path, help="JSON or TOML file of WorkerConfig's fields")
    parser.add_argument("--workspace", type=Path, help="not needed; every process accepts it")
    args = parser.parse_args(argv)
    if (args.env is None) == (args.entry is None):
        parser.error("name one environment, as in: tradewind worker my_env.py --controller URL")
    args.env = args.env or args.entry
    return args
