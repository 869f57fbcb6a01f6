"""Configuration of a pool: one `[[pools]]` section of a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from tradewind.pool.engines.vllm.config import VllmConfig
from tradewind.types.config import Config
from tradewind.weights.pointer import PublicKey


class PoolConfig(Config):
    """One pool: one process, one engine."""

    name: str = Field(default="pool", pattern=r"^[A-Za-z0-9._-]{1,64}$")
    """Names the pool in turns, reports and logs; unique in a run."""
    engine: Literal["embedded", "vllm"] = "embedded"
    """Who decodes: the embedded engine, for CPUs, or a vLLM of its own (see `vllm`)."""
    vllm: VllmConfig = VllmConfig()
    """How vLLM is started and driven, if it is the engine."""
    model: Path | None = None
    """Folder of the base checkpoint; None is `model/` in the workspace."""
    bucket: str | None = None
    """Where weights come from: `file:///folder`, `s3://bucket/prefix`, or a relay's
    `http://host:port`. A pool needs one."""
    fallback: str | None = None
    """The bucket behind the relay, for when the relay is down or wrong; None waits for the relay.
    """
    run_id: str | None = None
    """Refuse versions of any other run; None follows the run whose base is in the bucket."""
    trust: tuple[PublicKey, ...] = ()
    """Public keys of those who may say which version is next; with any, a version that none of them
    signed is refused. `tradewind weights keygen` makes a pair."""
    controller: str | None = None
    """Base URL to which the pool reports; None reports to nobody."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(default=0, ge=0, le=65535)
    """Port to listen on; 0 takes a free one."""
    url: str | None = None
    """Under which the gateway reaches the pool; None is host and port."""
    threads: int = Field(default=1, ge=1)
    """Of the embedded engine's arithmetic. vLLM takes what it finds; see `vllm.environment`."""
    dtype: str = "auto"
    """Of the engine's arithmetic: `auto`, `float32` or `bfloat16` (vLLM: `float16` as well)."""
    max_batch: int = Field(default=32, ge=1)
    """Most requests that decode at once."""
    max_tokens: int = Field(default=32768, ge=1)
    """Tokens of KV memory of the embedded engine. vLLM sizes its own; see `vllm.arguments`."""
    kv_policy: Literal["keep", "recompute"] = "keep"
    """What a swap does to running requests: `keep` goes on over keys and values of the old weights,
    `recompute` reads all their ids again with the new ones. Prefixes of another version are never
    served to a new request in either case."""
    base_wait_s: float = Field(default=600.0, gt=0)
    """How long to wait for version 0 in the bucket, in seconds."""
    poll_s: float = Field(default=0.2, gt=0)
    """How often the bucket is asked for a newer version, in seconds."""
    report_s: float = Field(default=1.0, gt=0)
    """How often the pool reports, in seconds."""
    undo_versions: int = Field(default=4, ge=0)
    """Versions back to which the pool goes without the network. Each costs about six bytes per
    changed bf16 weight, and at most a dense copy of the changed tensors."""
    mirror: Path | None = None
    """Folder that the pools of this host share, best in memory (`/dev/shm/...`): each version is
    fetched and decoded by one of them and mapped by all. None: each pool has its own copy."""
    retry_s: float = Field(default=1.0, gt=0)
    """Wait before a refused version is tried again, in seconds; doubles up to `retry_max_s`."""
    retry_max_s: float = Field(default=30.0, gt=0)
    """Longest wait before a refused version is tried again, in seconds."""
