"""The internal call, behind every dialect."""

from __future__ import annotations

from dataclasses import dataclass, field

from tradewind.types import Json, TurnId

ANY = "*"
"""Some function, whichever the policy takes."""


@dataclass(frozen=True)
class Sampling:
    """How the answer is sampled, after the parameter table was applied."""

    temperature: float
    """0 is greedy."""
    top_p: float
    max_tokens: int
    seed: int | None = None
    """The user's; rollouts get one from their session and turn."""
    stop: tuple[str, ...] = ()
    """The answer's text ends before the first of these; ids stay as sampled, up to the token with
    which it was complete."""
    n: int = 1
    """Answers to the one prompt."""


@dataclass(frozen=True)
class Call:
    """One request for one answer, or for `sampling.n` of them."""

    messages: tuple[Json, ...]
    """In the shape of chat completions."""
    sampling: Sampling
    digest: str
    """Of the whole request body; equal bodies have equal digests."""
    tools: tuple[Json, ...] = ()
    """Functions that the prompt names, in the shape of chat completions."""
    calls: bool = True
    """Whether the answer may call them; else what looks like a call stays text."""
    must: str | None = None
    """The one that it must call, or `ANY`; None leaves it to the policy."""
    opening: str = ""
    """With what the answer begins for the sake of `must`; its ids are part of the prompt."""
    retry: bool = False
    """The client says that it has sent this body before."""
    idempotency_key: str | None = None
    """Equal keys of one session mean one call."""
    dialect: str = "chat"
    asked: Json = field(default_factory=dict)
    """Sampling parameters as they were sent."""
    auxiliary: bool = False
    """A side call, by the name of the model that it asks for: answered, never trained."""
    previous: TurnId | None = None
    """The turn whose messages and answer come before `messages`."""

    @property
    def tool_names(self) -> frozenset[str]:
        """Of the functions that were offered."""
        return frozenset(tool["function"]["name"] for tool in self.tools)
