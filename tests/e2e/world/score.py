"""The verdict: an answer that begins with a vowel is right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def score(task: Mapping[str, Any], outcome: Mapping[str, Any]) -> float:
    """1 for a vowel."""
    text = outcome["artefacts"]["text"]
    return float(text[:1] in tuple("aeiouAEIOU"))
