"""The loop that stepwise environments share: observation in, message out, action back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tradewind.envs.chat import Chat, Message
from tradewind.envs.protocol import Policy
from tradewind.types.record import Json

UNREADABLE = "That is no action. Answer with an action only."


@dataclass(frozen=True)
class Seen:
    """What a step shows."""

    text: str
    """The observation, as the policy reads it."""
    reward: float | None
    done: bool


@dataclass
class Episode:
    """What came of it."""

    actions: list[Any] = field(default_factory=list)
    """In JSON form; None where the reply held no action."""
    rewards: list[float | None] = field(default_factory=list)
    done: bool = False

    def artefacts(self) -> Json:
        """Data for a verifier."""
        known = [reward for reward in self.rewards if reward is not None]
        return {
            "actions": self.actions,
            "rewards": self.rewards,
            "return": sum(known) if known else None,
            "done": self.done,
        }


async def play_steps(
    policy: Policy,
    opening: Seen,
    instructions: str,
    act: Callable[[str], Any],
    step: Callable[[Any], Awaitable[Seen]],
    max_steps: int,
) -> Episode:
    """Play until the environment is done, or for `max_steps` replies.

    `act` reads an action out of a reply, None if there is none: the policy is told so, and the
    reply counts. `step` takes that action.
    """
    episode = Episode()
    messages = [Message(role="user", content=f"{instructions}\n\n{opening.text}".strip())]
    async with Chat(policy) as chat:
        for _ in range(max_steps):
            reply = await chat.ask(messages)
            messages.append(Message(role="assistant", content=reply.text))
            action = act(reply.text)
            episode.actions.append(action)
            if action is None:
                messages.append(Message(role="user", content=UNREADABLE))
                continue
            seen = await step(action)
            episode.rewards.append(seen.reward)
            if seen.done:
                episode.done = True
                break
            messages.append(Message(role="user", content=seen.text))
    return episode
