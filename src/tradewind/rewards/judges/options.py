"""What a judge takes: the endpoint, what it may cost, and when it is asked again."""

from __future__ import annotations

from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from tradewind.rewards.criteria.options import CriterionOptions
from tradewind.types.config import Config


class EndpointOptions(Config):
    """Options of `use = "judge"` that say whom to ask and how hard."""

    url: str = ""
    """Base URL of an OpenAI-compatible endpoint, as in `https://judge.example/v1`."""
    model: str = ""
    """The name to ask for. Pin a dated one: another judge gives other verdicts."""
    key_env: str | None = None
    """Name of the environment variable that holds the key; the key itself is never written down."""
    temperature: float = Field(default=0.0, ge=0)
    """Of sampling. 0 does not make a judge repeat itself; near the bar it is asked again."""
    max_tokens: int = Field(default=512, gt=0)
    """Of a reply."""
    response_format: Literal["json_object", "json_schema", "text"] = "json_object"
    """`json_schema` where the endpoint can be held to a shape: small judges need it, for in free
    JSON they may never end. `text` where it knows no `response_format`. The reply is checked
    alike."""
    deadline_s: float = Field(default=60.0, gt=0)
    """Longest that one verdict may take with waiting, retries and repeats; then it is null."""
    timeout_s: float = Field(default=30.0, gt=0)
    """Longest that one call may take."""
    attempts: int = Field(default=4, ge=1)
    """Calls at most for one reply while the endpoint answers 429, 5xx or not at all."""
    backoff_s: float = Field(default=0.5, gt=0)
    """Pause before the second attempt; it doubles, and `Retry-After` counts if it is longer."""
    breaker_s: float = Field(default=20.0, gt=0)
    """Calls have failed for so long, three at least, and none was answered: then verdicts are null
    at once (`judge_away`), for as long; then one call tries again, and each failure doubles the
    pause, up to eight times this."""
    parallel: int = Field(default=8, ge=1)
    """Calls at the same time, of all threads of this process together."""
    calls_per_s: float | None = Field(default=None, gt=0)
    """At most so many calls begin in a second, of this process; None: no limit."""
    store: Path | None = None
    """SQLite file for verdicts and what was spent; it survives restarts. None: in memory only."""
    run: str = ""
    """Whose budget it is, if several runs share a store."""
    max_calls: int | None = Field(default=None, ge=0)
    """Calls of the run. A spent budget makes nulls and an alarm, never zeros."""
    max_total_tokens: int | None = Field(default=None, ge=0)
    """Tokens of the run, prompts and replies."""
    max_usd: float | None = Field(default=None, ge=0)
    """Money of the run, by the two prices."""
    usd_per_mtok_in: float = Field(default=0.0, ge=0)
    """Price of a million prompt tokens."""
    usd_per_mtok_out: float = Field(default=0.0, ge=0)
    """Price of a million reply tokens."""

    @field_validator("url")
    @classmethod
    def _no_secret_in_it(cls, url: str) -> str:
        parts = urlsplit(url)
        if url and parts.scheme not in ("http", "https"):
            raise ValueError("must begin with http:// or https://")
        if parts.username or parts.password or parts.query:
            raise ValueError("holds a user, password or query; name the key's variable in key_env")
        return url.rstrip("/")

    @model_validator(mode="after")
    def _priced(self) -> EndpointOptions:
        if self.max_usd is not None and not (self.usd_per_mtok_in or self.usd_per_mtok_out):
            raise ValueError("max_usd needs usd_per_mtok_in and usd_per_mtok_out")
        return self


class JudgeOptions(EndpointOptions, CriterionOptions):
    """All options of `use = "judge"`: one criterion of a file, asked of one endpoint."""

    repeats: int = Field(default=3, ge=1)
    """Readings at most where a verdict is near the bar; 1: never a second one."""
    near_low: float = Field(default=0.25, ge=0, le=1)
    """Between `near_low` and `near_high` a reading is near the bar (its value, or the confidence
    of a yes)."""
    near_high: float = Field(default=0.75, ge=0, le=1)
    """See `near_low`."""
    correlation: float = Field(default=0.5, ge=0, le=1)
    """Of repeated readings, until enough of them tell (`judges/repeats.py`)."""
    least_gain: float = Field(default=0.1, ge=0)
    """Another reading must be worth so many independent ones, or it is not taken."""
    max_chars: int = Field(default=60_000, gt=0)
    """Evidence longer than this is not judged: its value is the worst one, with the cause."""
