"""An outcome: what the worker reports when a rollout ends."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from tradewind.types.record import Json, Record


class OutcomeStatus(StrEnum):
    """What the policy can cause is graded; only what it cannot cause may be null (promise R4)."""

    COMPLETED = "completed"
    AGENT_LIMIT = "agent_limit"
    """Turns, tokens or time ran out by the agent's own doing: graded as it stands."""
    AGENT_ERROR = "agent_error"
    """The agent's code failed on what the policy said: graded."""
    ENV_ERROR = "env_error"
    """The product or the worker failed, or the model was never called: null, with its cause."""
    GRADER_ERROR = "grader_error"
    """The product's own check of the result failed to run: null, with its cause."""
    INFRA_ERROR = "infra_error"
    """The platform failed (lost lease, gateway gone): null, with its cause."""

    @property
    def gradable(self) -> bool:
        """Whether a verifier looks at it; otherwise the score is null."""
        return self in (
            OutcomeStatus.COMPLETED,
            OutcomeStatus.AGENT_LIMIT,
            OutcomeStatus.AGENT_ERROR,
        )


class Outcome(Record):
    """Example: `Outcome(status="completed", artefacts={"sql": "SELECT 1", "rows": [[1]]})`."""

    status: OutcomeStatus
    artefacts: Json = Field(default_factory=dict)
    """What the verifier needs. Data only: no verdict of the worker is believed."""
    detail: str | None = None
    """For people; for the three null statuses the cause."""
    environment: str | None = None
    """Which environment played it, with its version, so that a gradient can be traced to it:
    `orderdesk.env:rollout 3f9a0c1b2d4e`. The Python worker fills it in."""
