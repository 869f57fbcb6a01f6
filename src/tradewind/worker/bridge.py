"""Push mode, our side: takes leases and has them played by a customer's server.

    controller ◄── POST /v1/leases ──┐
        │ lease                      │
        ▼                            │
      Customer ── POST /rollouts, signed ──► the customer's server ── chat ──► gateway
        │      ── GET /rollouts/{id} ──────►      (tradewind.envs.push)
        ▼
      POST outcome ─► controller

    consumes     leases
    produces     outcomes
    waits for    leases (controller); the customer's answers, polled, with a bound on each
    unblocked by the controller when a group opens
    if killed    the customer hears no poll any more and ends its rollouts; their leases run out

The same worker as `tradewind worker`, with a customer's server in place of a function. It runs on
our side, so what it calls passes the egress guard. `TRADEWIND_WORKER_KEY` and `TRADEWIND_PUSH_KEY`
(id:secret) from the environment.

    tradewind push https://their.host/agents --controller URL [--concurrency N]
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tradewind.envs.secrets import Secrets
from tradewind.envs.signature import parse_keys
from tradewind.types.errors import UserError
from tradewind.worker.config import PushConfig
from tradewind.worker.customer import Customer
from tradewind.worker.egress import Egress, Rules
from tradewind.worker.main import run, take_key

KEY_VARIABLE = "TRADEWIND_PUSH_KEY"


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; the exit status is 2 after a sentence about wrong input."""
    args = _parse(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        options = {
            "concurrency": args.concurrency,
            "name": args.name,
            "allow_private": args.allow_private or None,
            "allow_http": args.allow_http or None,
        }
        config = PushConfig.with_options(args.config, options)
        (key,) = list(parse_keys(os.environ.get(KEY_VARIABLE, ""), KEY_VARIABLE).items())[:1]
        asyncio.run(bridge(args.url, args.controller, (take_key(), key), config))
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


async def bridge(
    url: str, controller: str, keys: tuple[str, tuple[str, str]], config: PushConfig
) -> None:
    """Work until SIGTERM or SIGINT. `keys` are the worker key and the (id, secret) to sign with."""
    rules = Rules(
        allow_private=config.allow_private,
        allow_http=config.allow_http,
        max_bytes=config.max_answer_bytes,
        max_seconds=config.request_s,
    )
    async with Egress(url, rules) as egress:
        customer = Customer(egress, keys[1], config)
        await run(customer.play, controller, keys[0], config, Secrets({"push key": keys[1][1]}))


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tradewind push", description="Have rollouts played by a customer's server"
    )
    parser.add_argument("url", help="of the customer's server; /rollouts is below it")
    parser.add_argument("--controller", "--join", required=True, help="URL of the controller")
    parser.add_argument("--concurrency", type=int, help="rollouts at the same time")
    parser.add_argument("--name", help="how status and log call this process")
    parser.add_argument("--allow-private", action="store_true", help="private and loopback hosts")
    parser.add_argument("--allow-http", action="store_true", help="hosts without TLS")
    parser.add_argument("--config", type=Path, help="JSON or TOML file of PushConfig's fields")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
