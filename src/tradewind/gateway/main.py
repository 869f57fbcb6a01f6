"""The gateway process.

    agent (a rollout's key) ──┐                                   ┌──► pool paris
    product's users ──────────┤► dialect ► call ► turn ► router ──┤
                              │                    │              └──► pool oregon
                              │                    ▼
                              │          ledger: intent before, tokens after

    consumes   chat completions, responses and messages, from agents and users; pool reports,
               from the ledger
    produces   answers; turns with the engine's ids, log-probabilities and versions; user latency;
               a beat every second
    waits for  a pool that serves (the version asked for, in an evaluation), at most
               `admission_wait_s` or `eval_wait_s`, then 429; tokens, at most `turn_deadline_s`,
               then 503; the ledger's writer lock
    unblocked by  a pool's report to the controller; another pool; the end of the writer

Killed at any moment: an intent without an answer is LOST at the next start, an answer that was
shown whole is in the ledger, and a retry of it is given the same answer again.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from pathlib import Path

import uvicorn

from tradewind.gateway.app import create_app
from tradewind.gateway.config import GatewayConfig
from tradewind.gateway.gateway import Gateway
from tradewind.gateway.parameters import table
from tradewind.http.listening import favour_the_event_loop, listen, quiet
from tradewind.ledger.ledger import Ledger
from tradewind.ledger.place import ledger_of
from tradewind.render.renderer import Renderer
from tradewind.types import UserError

log = logging.getLogger(__name__)

_GRACE_S = 3
"""For answers in flight after SIGTERM; what is left then is recorded as lost."""


def serve(config: GatewayConfig, workspace: Path) -> None:
    """Runs until SIGTERM or SIGINT. Keys come from TRADEWIND_POOL_KEY and TRADEWIND_USER_KEY.

    Raises `UserError` if the port is taken, the model folder is unreadable or a key is missing.
    """
    favour_the_event_loop()
    gateway = build(config, workspace)
    listener = listen(
        config.host,
        config.port,
        what="the gateway",
        fix="end the process that uses this port, or set another port in [gateway]",
    )
    # uvicorn raises the signal again once all is closed: that is the ordinary end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    log.info("%s", gateway.renderer.form)
    log.info("gateway listens on http://%s:%d", *listener.getsockname()[:2])
    uvicorn.Server(quiet(create_app(gateway), _GRACE_S)).run(sockets=[listener])


def build(config: GatewayConfig, workspace: Path) -> Gateway:
    """All parts, from a config and a workspace folder."""
    pool_key = os.environ.get("TRADEWIND_POOL_KEY")
    if not pool_key:
        raise UserError(
            "the gateway has no key for the pools", fix="set TRADEWIND_POOL_KEY in its environment"
        )
    renderer = Renderer.open(config.model_folder or workspace / "model")
    ledger = Ledger.open(config.ledger or ledger_of(workspace))
    user_key = os.environ.get("TRADEWIND_USER_KEY")
    return Gateway(config, ledger, renderer, pool_key=pool_key, user_key=user_key)


def main(argv: list[str] | None = None) -> int:
    """`python -m tradewind.gateway --config FILE --workspace DIR`; 2 means a sentence on stderr."""
    parser = argparse.ArgumentParser(
        prog="tradewind gateway",
        description="The endpoint for agents and users",
        epilog="TRADEWIND_POOL_KEY and TRADEWIND_USER_KEY in the environment are the keys of pools"
        " and users",
    )
    parser.add_argument("--config", type=Path, help="TOML or JSON file of GatewayConfig's fields")
    parser.add_argument("--workspace", type=Path, default=Path(), help="folder of the run")
    parser.add_argument("--parameters", action="store_true", help="print the parameter table")
    options = parser.parse_args(argv)
    if options.parameters:
        print(table())
        return 0
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        serve(GatewayConfig.read(options.config), options.workspace)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    return 0
