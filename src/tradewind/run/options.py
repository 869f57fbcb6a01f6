"""Arguments and options that several verbs have, said once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder, runs/<name>.")]
Run = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="A run's folder, a ledger's file or a database URL without a password."
    ),
]
Reward = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A recipe or reward file; reward.toml beside it."),
]
Folder = Annotated[
    Path | None,
    typer.Option("--in", metavar="DIR", help="Where its relative paths begin; its folder."),
]
