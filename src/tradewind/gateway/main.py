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
import socket
import sys
import tomllib
from pathlib import Path

import uvicorn
from pydantic import ValidationError

from tradewind.gateway.app import Gateway, create_app
from tradewind.gateway.config import GatewayConfig
from tradewind.gateway.parameters import table
from tradewind.ledger.ledger import Ledger
from tradewind.ledger.place import ledger_of
from tradewind.render.renderer import Renderer
from tradewind.types import UserError

log = logging.getLogger(__name__)

_SWITCH_S = 0.0005
"""How long the ledger's thread may keep the event loop from running, in seconds."""
_GRACE_S = 3
"""For answers in flight after SIGTERM; what is left then is recorded as lost."""


def serve(config: GatewayConfig, workspace: Path) -> None:
    """Runs until SIGTERM or SIGINT. Keys come from TRADEWIND_POOL_KEY and TRADEWIND_USER_KEY.

    Raises `UserError` if the port is taken, the model folder is unreadable or a key is missing.
    """
    sys.setswitchinterval(_SWITCH_S)
    gateway = build(config, workspace)
    listener = _listen(config.host, config.port)
    # uvicorn raises the signal again once all is closed: that is the ordinary end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    log.info("%s", gateway.renderer.form)
    log.info("gateway listens on http://%s:%d", *listener.getsockname()[:2])
    server = uvicorn.Server(
        uvicorn.Config(
            create_app(gateway),
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=_GRACE_S,
            timeout_keep_alive=75,
        )
    )
    server.run(sockets=[listener])


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
    parser = argparse.ArgumentParser(prog="tradewind gateway")
    parser.add_argument("--config", type=Path, help="TOML or JSON file with the [gateway] section")
    parser.add_argument("--workspace", type=Path, default=Path())
    parser.add_argument("--parameters", action="store_true", help="print the parameter table")
    options = parser.parse_args(argv)
    if options.parameters:
        print(table())
        return 0
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        serve(_config(options.config), options.workspace)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _config(file: Path | None) -> GatewayConfig:
    if file is None:
        return GatewayConfig()
    try:
        text = file.read_text(encoding="utf-8")
        if file.suffix == ".json":
            return GatewayConfig.model_validate_json(text)
        loaded = tomllib.loads(text)
        return GatewayConfig.model_validate(loaded.get("gateway", loaded))
    except (OSError, tomllib.TOMLDecodeError, ValidationError) as error:
        raise UserError(
            f"the gateway's config cannot be used ({error})",
            value=str(file),
            fix="correct the file",
        ) from error


def _listen(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # see the controller's
    try:
        listener.bind((host, port))
        listener.listen()  # from here on clients wait instead of failing
    except OSError as error:
        listener.close()
        raise UserError(
            f"the gateway cannot listen ({error.strerror})",
            value=f"{host}:{port}",
            fix="stop what uses the port, or set another port in [gateway]",
        ) from error
    return listener
