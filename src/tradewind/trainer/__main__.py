"""`python -m tradewind.trainer --workspace DIR --stage rl|midtrain`, alone or under torchrun.

Exit code 2: the input cannot work, the last line says why. 1: try again later.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from tradewind.ledger.ledger import Ledger
from tradewind.ledger.place import ledger_of, without_password
from tradewind.trainer.config import MidtrainConfig, TrainerConfig
from tradewind.trainer.loop import train
from tradewind.trainer.midtrain import midtrain
from tradewind.trainer.ranks import Ranks
from tradewind.trainer.run import Run
from tradewind.types import TradewindError, UserError


def main(argv: list[str] | None = None) -> int:
    """Run one stage; returns the exit code."""
    options = _parser().parse_args(argv)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(message)s")
    try:
        _run(options)
    except TradewindError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, UserError) else 1
    return 0


def _run(options: argparse.Namespace) -> None:
    ledger = without_password(options.ledger or ledger_of(options.workspace))
    run = Run(
        workspace=options.workspace,
        model=options.model or options.workspace / "model",
        run_id=options.run_id or _run_id(ledger, options.workspace.name),
        ledger_url=ledger,
        bucket_url=options.bucket,
    )
    if options.stage == "rl":
        train(TrainerConfig.read(options.config), run, options.corpus)
    else:
        midtrain(MidtrainConfig.read(options.config), run, options.corpus)
    Ranks.leave()


def _run_id(place: str, default: str) -> str:
    with Ledger.open(place) as ledger:
        return str(ledger.meta("run_id", default))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tradewind trainer", description="One stage of training; also under torchrun"
    )
    parser.add_argument("--workspace", type=Path, required=True, help="folder of the arm")
    parser.add_argument("--stage", choices=("rl", "midtrain"), required=True)
    parser.add_argument("--config", type=Path, help="JSON or TOML with the stage's config")
    parser.add_argument("--model", type=Path, help="base checkpoint; default <workspace>/model")
    parser.add_argument("--corpus", type=Path, help="JSON lines, for midtrain and rehearsal")
    parser.add_argument("--run-id", help="default: the ledger's")
    parser.add_argument(
        "--ledger", help="URL without a password, or path; default: the workspace's own"
    )
    parser.add_argument("--bucket", help="URL; default <workspace>/bucket")
    return parser


if __name__ == "__main__":
    sys.exit(main())
