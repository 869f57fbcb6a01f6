"""Conversations longer than the model's window: the policy writes its own summary and goes on.

    generation 0   task, page, answer, page, answer, ... , "Summarise", summary
    generation 1   task + summary, page, answer, ...     , "Summarise", summary
    generation 2   task + summary, page, answer

Each generation is one chain of turns by exact id prefixes, the next one begins anew. All of them
belong to one rollout, so one final reward is the credit of every sampled token: of the answers, and
of the summaries on which the later ones depend. A summary that forgets what matters loses the
reward, and the policy learns what to carry over.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from tradewind.envs.chat import Message, Reply

Ask = Callable[[Sequence[Message], int | None], Awaitable[Reply]]
"""Messages and the most tokens of the answer, to the answer (`Chat.ask`)."""

SUMMARY_REQUEST = "Summarise what you need to go on. Earlier messages are dropped."
CARRIED = "Summary so far:"


@dataclass(frozen=True)
class Window:
    """When to summarise."""

    tokens: int
    """Of prompt and answer together, at most; the model's window or less."""
    answer_tokens: int
    """Room for an answer."""
    summary_tokens: int
    """Room for a summary."""

    def __post_init__(self) -> None:
        if self.answer_tokens + self.summary_tokens >= self.tokens:
            raise ValueError(f"no room for a prompt in {self}")


class LongChat:
    """One conversation; `say` as often as you like."""

    def __init__(self, ask: Ask, task: str, window: Window, request: str = SUMMARY_REQUEST) -> None:
        """`task` opens every generation; `request` asks for the summary."""
        self._ask, self._task, self._window, self._request = ask, task, window, request
        self._opening = task
        self._messages: list[Message] = []
        self._used = 0
        """Tokens of the messages up to the last answer."""
        self._tokens_per_byte = 1.0
        """Measured at each answer; 1 is what no vocabulary exceeds."""
        self.summaries: list[str] = []
        """One per finished generation, in order."""

    async def say(self, text: str) -> str:
        """The policy's answer to `text`, after a summary if it would not fit otherwise.

        Raises what `ask` raises: a text that does not fit even alone overflows the context.
        """
        if self._messages and not self._fits(text):
            await self._summarise()
        if not self._messages:
            text = f"{self._opening}\n\n{text}"
        return await self._turn(text, self._window.answer_tokens)

    def _fits(self, text: str) -> bool:
        """Whether text, its answer, and afterwards a request for a summary and the summary fit."""
        window = self._window
        new = self._tokens(text) + window.answer_tokens
        summary = self._tokens(self._request) + window.summary_tokens
        return self._used + new + summary <= window.tokens

    def _tokens(self, text: str) -> int:
        return int(len(text.encode()) * self._tokens_per_byte) + _FRAME

    async def _summarise(self) -> None:
        summary = await self._turn(self._request, self._window.summary_tokens)
        self.summaries.append(summary)
        self._opening = f"{self._task}\n\n{CARRIED}\n{summary}"
        self._messages, self._used = [], 0

    async def _turn(self, text: str, max_tokens: int) -> str:
        self._messages.append(Message(role="user", content=text))
        reply = await self._ask(self._messages, max_tokens)
        self._messages.append(Message(role="assistant", content=reply.text))
        size = sum(len(message.content.encode()) for message in self._messages)
        self._used = reply.tokens or size
        frames = _FRAME * len(self._messages)
        self._tokens_per_byte = min(1.0, max(self._used - frames, 1) / max(size, 1))
        return reply.text


_FRAME = 24
"""Tokens that a chat template puts around a message, generously."""
