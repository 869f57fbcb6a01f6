"""A turn: one call of the agent to the model, in the engine's own token ids."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from tradewind.types.ids import RolloutId, TurnId
from tradewind.types.record import Json, Record


class FinishReason(StrEnum):
    """Why the engine stopped."""

    STOP = "stop"
    """A stop id was sampled; it is the last of the output ids."""
    LENGTH = "length"
    """`max_tokens` or the context window was reached."""
    CANCELLED = "cancelled"
    """The caller went away or the deadline passed."""


class VersionSpan(Record):
    """`count` consecutive output tokens that were decoded by weight `version`."""

    version: int
    count: int


class Completion(Record):
    """What a pool returns for one prompt.

    Example: five tokens, weights swapped after the third::

        Completion(output_ids=(5, 9, 2, 7, 2), logprobs=(-.1, -.2, -.1, -1.3, -.01),
                   spans=(VersionSpan(version=4, count=3), VersionSpan(version=5, count=2)),
                   finish_reason="stop", pool="paris")
    """

    output_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Natural log of the probability with which each id was sampled, after temperature."""
    spans: tuple[VersionSpan, ...]
    finish_reason: FinishReason
    pool: str


class TokenParts(Record):
    """What the sampled tokens of one answer were for; together they are all of them.

    Example: `TokenParts(thinking=80, calls=24, message=6)`.
    """

    thinking: int = 0
    """Between the family's thinking marks, marks included."""
    calls: int = 0
    """Of tool calls, as its parser reads them."""
    message: int = 0
    """All others; an unfinished call too, and the end mark of a message."""


class TurnState(StrEnum):
    """Promise R3: INTENT is durable before the pool is called."""

    INTENT = "intent"
    DONE = "done"
    LOST = "lost"
    """Dispatched and never answered: the rest of its chain cannot be trained."""


class Turn(Record):
    """One captured call.

    `prompt_ids` of a turn whose parent is not None start with the parent's
    `prompt_ids + output_ids`, id for id (promise R2).
    """

    turn_id: TurnId
    rollout_id: RolloutId
    index: int
    parent: TurnId | None
    """The turn that this one extends by an exact id prefix; None at a root or after a fork."""
    state: TurnState
    prompt_ids: tuple[int, ...]
    completion: Completion | None
    """None unless DONE."""
    temperature: float
    messages: tuple[Json, ...]
    """The request's messages, in the shape of chat completions, whatever dialect they came in."""
    tools: tuple[Json, ...] = ()
    """The tools that the prompt names, in the shape of chat completions."""
    text: str | None = None
    """The content that was delivered to the agent; None unless DONE."""
    tool_calls: tuple[Json, ...] = ()
    """The calls that were delivered beside the text, in the shape of chat completions."""
    parts: TokenParts | None = None
    """What the sampled tokens were for, counted by the gateway, which holds the tokenizer."""
    kind: str = "root"
    """How it began: `root`, `extended`, or why it forked (`gateway/conversation.py`)."""
    choice_of: TurnId | None = None
    """The first answer of the same call, if the call asked for several; this one is its sibling."""
    auxiliary: bool = False
    """A side call of the agent's (a title, a summary) that is answered and never trained."""
    dialect: str = "chat"
    """How the agent spoke: `chat`, `messages` or `responses`."""
    asked: Json = Field(default_factory=dict)
    """Sampling parameters as the agent sent them; what counts is `temperature` and the config."""
    digest: str | None = None
    """SHA-256 of the request's body, by which a retry is known."""
    idempotency_key: str | None = None
    started_at: float
    """Unix seconds, at the intent."""
    finished_at: float | None = None
    delivered: bool = False
    """Whether the whole answer reached the agent."""

    def oldest_version(self) -> int:
        """The oldest weight version among the sampled tokens; raises if the turn is not DONE."""
        assert self.completion is not None, f"{self.turn_id} is {self.state}, it has no tokens"
        return min(span.version for span in self.completion.spans)
