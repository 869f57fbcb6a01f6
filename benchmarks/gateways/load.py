"""The load: agents of a few turns each, as fast as they get answers or at a fixed rate.

Each agent says a system line and a task, then goes on from the answer, `TURNS` calls in all, over
its own key; then the next agent takes the connection.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from gateways.engine import TEXT
from gateways.wire import Client

TURNS = 4
SYSTEM = "You are an agent in a shop's order desk. Look things up before you answer. " * 2
TASK = "Order {}: the customer asks where the parcel is and whether it can go elsewhere."
MORE = "The tool says: parcel {} left the depot this morning."


@dataclass
class Load:
    """What is asked of whom, and how long each answer took."""

    url: str
    path: str
    keys: Iterator[str]
    seconds: list[float] = field(default_factory=list)
    begun: int = 0

    async def closed(self, connections: int, seconds: float) -> float:
        """Answers per second of so many connections that never rest."""
        start = time.perf_counter()
        self._until = start + seconds
        await asyncio.gather(*(self._agents() for _ in range(connections)))
        return len(self.seconds) / (time.perf_counter() - start)

    async def open(self, rate: float, seconds: float, connections: int) -> None:
        """Calls at a fixed rate, whoever is free makes the next."""
        self._until, self._step = math.inf, 1.0 / rate
        self._next, self._end = time.perf_counter(), time.perf_counter() + seconds
        await asyncio.gather(*(self._agents(paced=True) for _ in range(connections)))

    async def _agents(self, paced: bool = False) -> None:
        client = Client(self.url, "")
        try:
            while True:
                key = next(self.keys)
                for messages in conversation(self.begun):
                    if paced:
                        due, self._next = self._next, self._next + self._step
                        if due >= self._end:
                            return
                        await asyncio.sleep(max(0.0, due - time.perf_counter()))
                    elif time.perf_counter() >= self._until:
                        return
                    await self._call(client, key, messages)
        finally:
            client.close()

    async def _call(self, client: Client, key: str, messages: list[Any]) -> None:
        self.begun += 1
        start = time.perf_counter()
        await client.post(self.path, {"model": "policy", "messages": messages}, key)
        self.seconds.append(time.perf_counter() - start)


def conversation(number: int) -> Iterator[list[Any]]:
    """The messages of each call of one agent."""
    messages = [{"role": "system", "content": SYSTEM}]
    messages.append({"role": "user", "content": TASK.format(number)})
    for turn in range(TURNS):
        yield list(messages)
        messages.append({"role": "assistant", "content": TEXT})
        messages.append({"role": "user", "content": MORE.format(turn)})


def quantile(values: list[float], share: float) -> float:
    """By the nearest rank."""
    return sorted(values)[min(len(values) - 1, math.ceil(share * len(values)) - 1)]
