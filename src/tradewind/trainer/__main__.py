"""`python -m tradewind.trainer --workspace DIR --stage rl|midtrain`, alone or under torchrun.

Exit code 2: the input cannot work, the last line says why. 1: try again later.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tomllib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

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
    values = _read(options.config) if options.config else {}
    ledger = without_password(options.ledger or ledger_of(options.workspace))
    run = Run(
        workspace=options.workspace,
        model=options.model or options.workspace / "model",
        run_id=options.run_id or _run_id(ledger, options.workspace.name),
        ledger_url=ledger,
        bucket_url=options.bucket,
    )
    try:
        if options.stage == "rl":
            train(TrainerConfig(**values), run)
        else:
            midtrain(MidtrainConfig(**values), run, options.corpus)
        Ranks.leave()
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(
            f"the {options.stage} config is wrong at {'.'.join(map(str, first['loc']))}: "
            f"{first['msg']}",
            value=first["input"],
            fix=f"correct it in {options.config}",
        ) from error


def _run_id(place: str, default: str) -> str:
    with Ledger.open(place) as ledger:
        return str(ledger.meta("run_id", default))


def _read(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text(encoding="utf-8")
        values = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
    except (OSError, ValueError) as error:
        raise UserError(
            f"the config file cannot be read ({error})", value=str(file), fix="check it"
        ) from error
    assert isinstance(values, dict), f"{file} holds no table"
    return values


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tradewind.trainer")
    parser.add_argument("--workspace", type=Path, required=True, help="folder of the arm")
    parser.add_argument("--stage", choices=("rl", "midtrain"), required=True)
    parser.add_argument("--config", type=Path, help="JSON or TOML with the stage's config")
    parser.add_argument("--model", type=Path, help="base checkpoint; default <workspace>/model")
    parser.add_argument("--corpus", type=Path, help="JSON lines, for --stage midtrain")
    parser.add_argument("--run-id", help="default: the ledger's")
    parser.add_argument(
        "--ledger", help="URL without a password, or path; default: the workspace's own"
    )
    parser.add_argument("--bucket", help="URL; default <workspace>/bucket")
    return parser


if __name__ == "__main__":
    sys.exit(main())
