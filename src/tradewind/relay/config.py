"""Configuration of a relay."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from tradewind.types.config import Config


class RelayConfig(Config):
    """One relay: one process, for the pools of one region and one run."""

    bucket: str | None = None
    """What it stands before: `s3://bucket/prefix` or `file:///folder`. A relay needs one."""
    model: Path | None = None
    """Folder of the base checkpoint, with which merged deltas are made; None only caches."""
    run_id: str | None = None
    """Make merged deltas for this run only; None takes the run whose base is in the bucket."""
    cache: Path = Path("relay-cache")
    """Folder for objects, in the layout of a bucket. It may be deleted while the relay is down."""
    cache_bytes: int = Field(default=20 * 2**30, ge=0)
    """Most bytes of objects in the cache; those that were not asked for longest go first."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(default=8800, ge=0, le=65535)
    """Port to listen on; 0 takes a free one."""
    names_s: float = Field(default=0.5, ge=0)
    """How long a listing is given out before the bucket is asked again, in seconds."""
    follow_s: float = Field(default=1.0, gt=0)
    """How often the relay's own mirror looks for a newer version, in seconds."""
    undo_versions: int = Field(default=32, ge=0)
    """Versions back to which a merged delta starts without the bucket; each costs about six bytes
    of memory per changed bf16 weight."""
    make_s: float = Field(default=50.0, gt=0)
    """Longest wait for a merged delta, in seconds; then a pool finds another way."""
    threads: int = Field(default=1, ge=1)
    """Of coding and hashing."""
