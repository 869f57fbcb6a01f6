"""Configuration of the gateway."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from tradewind.types.config import Config


class GatewayConfig(Config):
    """Section `[gateway]` of a recipe."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(default=8300, ge=0, le=65535)
    """Port to listen on; 0 takes a free one, told in the first log line."""
    model: str = "policy"
    """Name under which the policy is served; any other name in a request is accepted too."""
    model_folder: Path | None = None
    """Tokenizer, chat template and configs; None is `model/` in the workspace."""
    ledger: str | None = None
    """SQLAlchemy URL or path; None is the workspace's own."""
    max_tokens: int = Field(default=512, ge=1)
    """Most tokens of one answer; a request may ask for fewer."""
    context_window: int | None = Field(default=None, ge=2)
    """Most tokens of prompt and answer together; None is the model's own."""
    temperature: float = Field(default=1.0, gt=0, le=2)
    """Of training rollouts, whatever they ask for. Evaluation is greedy, users are free."""
    max_body_bytes: int = Field(default=4_000_000, ge=1)
    """Larger request bodies get 413."""
    max_choices: int = Field(default=16, ge=1)
    """Most answers that one call may ask for (`n`)."""
    auxiliary_models: tuple[str, ...] = ("*haiku*",)
    """Patterns of model names in requests. A call that asks for such a model is a side call of the
    agent's (a title, a summary): it is answered by the policy, and never trained."""
    delivered_warn: float = Field(default=0.98, gt=0, le=1)
    """A smaller share of sampled tokens that reached their agents is a warning."""
    delivered_stop: float = Field(default=0.95, gt=0, le=1)
    """A smaller one means that training should stop until the cause is known."""
    delivered_window: int = Field(default=20_000, ge=1)
    """Sampled tokens over which that share is taken."""
    max_parallel: int = Field(default=32, ge=1)
    """Calls of one rollout in flight at once; more get 429."""
    admission_wait_s: float = Field(default=10.0, ge=0)
    """How long a new call waits for a pool that can serve before it gets 429, in seconds."""
    eval_wait_s: float = Field(default=60.0, ge=0)
    """The same for an evaluation, which waits for pools of its version, in seconds."""
    turn_deadline_s: float = Field(default=600.0, gt=0)
    """Longest that one answer may take over all pools and retries, in seconds."""
    pool_attempts: int = Field(default=6, ge=1)
    """After so many tries in a row that brought no new token, an answer gets 503."""
    pool_silence_s: float = Field(default=60.0, gt=0)
    """A pool that sends nothing for so long is left for another one, in seconds."""
    pool_connect_s: float = Field(default=2.0, gt=0)
    """Longest wait for a connection to a pool, in seconds."""
    pool_alive_s: float = Field(default=6.0, gt=0)
    """A pool whose last report is older is not called, in seconds."""
    pool_cooloff_s: float = Field(default=2.0, ge=0)
    """A pool that broke off is avoided for so long, in seconds."""
    pool_poll_s: float = Field(default=0.5, gt=0)
    """How old the gateway's view of the pools may be, in seconds."""
    sticky_slack: float = Field(default=0.25, ge=0)
    """A rollout stays with its pool, and with its group's, for the sake of the prefix cache, while
    that pool's load exceeds the lowest by at most this share of its batch."""
    session_cache_s: float = Field(default=1.0, ge=0)
    """How long a key that was open is believed to be open; the ledger's word is final anyway."""
    orphan_grace_s: float = Field(default=3.0, ge=0)
    """An unstreamed call whose client went away goes on for so long, for its retry to join it."""
    keep_alive_s: float = Field(default=15.0, gt=0)
    """A stream without a token for so long gets a comment line, so that proxies keep it open."""
