"""The verdict: an answer that begins with a plain letter or digit is right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def begins_well(text: str) -> bool:
    """Whether the first character is one of 62."""
    return text[:1].isascii() and text[:1].isalnum()


def score(task: Mapping[str, Any], outcome: Mapping[str, Any]) -> float:
    """1 for a letter."""
    return float(begins_well(outcome["artefacts"]["text"]))
