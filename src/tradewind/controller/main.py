"""The controller: tasks become groups, groups become leases, outcomes become credit.

  worker                     controller                              ledger
    │ POST /v1/leases  ──►  LeaseQueue ◄── serve ◄───┐
    │ heartbeat, outcome ─► Routes ──────────────────┼──► lease, renew, finish
  pool │ report ──────────► Routes ──────────────────┼──► pools, attestations
  run │ evals, training ──► Routes ──────────────────┤
                            Rounds, every tick_s ────┼──► expire, refill, close, open
                            TrustWatch, beside it ───┴──► standings of judges, alarms, pauses

consumes     requests of workers, pools and `run`; scores (grader) and versions (trainer)
produces     groups, leases, credit, events that name a stall's cause and owner
waits for    nothing: a round every tick_s, or sooner when a request came
unblocked by itself; it opens groups when the trainer commits or a pool catches up
if killed    leases run out or go on, waiting workers ask again, the next round derives from the
             ledger what is due

python -m tradewind.controller --config FILE --workspace DIR
TRADEWIND_WORKER_KEY, TRADEWIND_POOL_KEY, TRADEWIND_ADMIN_KEY from the environment
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import uvicorn

from tradewind.controller.app import application
from tradewind.controller.config import ControllerConfig
from tradewind.controller.controller import Controller
from tradewind.controller.keys import Keys
from tradewind.http.listening import favour_the_event_loop, listen, quiet
from tradewind.ledger.ledger import Ledger
from tradewind.ledger.place import ledger_of
from tradewind.types.errors import UserError

log = logging.getLogger("controller")

GRACE_S = 2
"""For requests in flight after SIGTERM, in seconds."""


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; the exit status is 2 after a sentence about wrong input."""
    parser = argparse.ArgumentParser(
        prog="tradewind controller",
        description="Groups, leases, credit, status",
        epilog="TRADEWIND_WORKER_KEY, TRADEWIND_POOL_KEY and TRADEWIND_ADMIN_KEY in the environment"
        " are the keys that it asks for",
    )
    parser.add_argument(
        "--config", type=Path, help="JSON or TOML file of ControllerConfig's fields"
    )
    parser.add_argument("--workspace", type=Path, default=Path(), help="folder of the run")
    args = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    try:
        config = ControllerConfig.read(args.config)
        keys = Keys.from_environment()
        listener = listen(
            config.host,
            config.port,
            what="the controller",
            fix="end the process that uses this port, or set [controller] port",
        )
        ledger = Ledger.open(config.ledger or ledger_of(args.workspace))
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn raises them again when it has ended
        signal.signal(number, lambda *_: None)
    favour_the_event_loop()
    asyncio.run(serve(Controller(config, ledger), keys, listener))
    ledger.close()
    return 0


async def serve(controller: Controller, keys: Keys, listener: socket.socket) -> None:
    """Serve until SIGTERM, SIGINT or `controller.stop`."""
    server = uvicorn.Server(quiet(application(controller, keys), GRACE_S))
    host, port = listener.getsockname()[:2]
    log.info("ready at http://%s:%d", host, port)
    rounds = asyncio.create_task(controller.run(lambda: server.should_exit))
    rounds.add_done_callback(lambda _: setattr(server, "should_exit", True))
    await server.serve(sockets=[listener])
    await rounds  # a controller without its rounds is dead: what ended them is raised here
