"""Packages that only an adapter needs."""

from __future__ import annotations

import importlib
from typing import Any

from tradewind.types.errors import UserError


def need(module: str, distribution: str) -> Any:
    """The module; raises `UserError` that names what to install if it is missing."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or module
        within = "" if missing.split(".")[0] == module.split(".")[0] else f" (for {module})"
        raise UserError(
            f"this environment needs {missing!r}{within}, which is not installed",
            value=distribution,
            fix=f"pip install 'tradewind[envs]', or pip install {distribution}",
        ) from error
