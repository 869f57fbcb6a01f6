"""Configuration of vLLM as a pool's engine: the `[pools.vllm]` table of a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from tradewind.types.config import Config


class VllmConfig(Config):
    """How `vllm serve` is started and driven. Used if the pool says `engine = "vllm"`."""

    python: Path | None = None
    """Interpreter of the environment in which vLLM is installed; None is the pool's own."""
    arguments: tuple[str, ...] = ()
    """More arguments of `vllm serve`, for example `["--tensor-parallel-size", "2"]`."""
    environment: dict[str, str] = Field(default_factory=dict)
    """More environment variables of vLLM, for example `{"CUDA_VISIBLE_DEVICES" = "0,1"}`."""
    max_model_len: int | None = Field(default=None, ge=2)
    """Most ids of a request, prompt and answer together; None is the model's context."""
    start_s: float = Field(default=900.0, gt=0)
    """How long vLLM may take until it answers, in seconds."""
    call_s: float = Field(default=120.0, gt=0)
    """How long one control call, one weight update included, may take, in seconds."""
    health_s: float = Field(default=2.0, gt=0)
    """How often vLLM is asked whether it is well, in seconds."""
    apply: Literal["auto", "dense"] = "auto"
    """How new weights are applied: `auto` sends changed positions only, if a probe at the start
    shows that this vLLM takes them, `dense` always loads all tensors anew."""
    scratch: Path | None = None
    """Folder for patches on their way to vLLM; None is shared memory where it has room for a copy
    of the model, else the folder for temporary files."""
