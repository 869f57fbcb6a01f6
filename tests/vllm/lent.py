"""The vLLM of all tests, lent to a gateway that starts and stops its engines and reads letters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from phrases import byte_model
from smallmodel import VOCAB

from tradewind.pool.engine import OnChunk
from tradewind.pool.engines.vllm.engine import VllmEngine
from tradewind.types import GenerateRequest

LETTERS = 256 + 3
"""Bytes and marks of the byte model; the rest of the small model's vocabulary gets names."""


class Lent:
    """It is started already, and nobody stops it; requests run to their last token."""

    def __init__(self, engine: VllmEngine) -> None:
        self._engine = engine
        self.cancelled: list[str] = []

    def start(self) -> None:
        """It serves."""

    def stop(self) -> None:
        """Others use it yet."""

    def submit(self, request: GenerateRequest, on_chunk: OnChunk) -> None:
        """Without stop ids: what the small model says by chance must not end a request."""
        self._engine.submit(request.model_copy(update={"stop_ids": ()}), on_chunk)

    def cancel(self, request_id: str) -> None:
        self.cancelled.append(request_id)
        self._engine.cancel(request_id)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def letters(folder: Path) -> Path:
    """A tokenizer with as many ids as the small model."""
    return byte_model(folder, (f"<word {n:02}>" for n in range(VOCAB - LETTERS)))
