"""The verdict: an answer that begins with an ASCII character is right, about half of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def score(task: Mapping[str, Any], outcome: Mapping[str, Any]) -> float:
    """1 for ASCII."""
    text = outcome["artefacts"]["text"]
    return float(bool(text) and text[0].isascii())
