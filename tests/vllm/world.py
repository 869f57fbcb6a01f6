"""vLLM and the embedded engine side by side, over the same weights."""

from __future__ import annotations

from smallmodel import stepped
from tinyllm import Listener

from tradewind.pool.engines.embedded.engine import EmbeddedEngine
from tradewind.pool.engines.vllm.engine import VllmEngine
from tradewind.weights.tensors import Array

BOUND = 1e-3
"""Nats between vLLM and the embedded engine, both in fp32; about 1e-4 was measured."""
PROMPT = tuple((7 * i * i + 3) % 320 for i in range(70))


class World:
    """vLLM and the embedded engine over the same weights, and the version that both are at."""

    def __init__(self, vllm: VllmEngine, embedded: EmbeddedEngine, base: dict[str, Array]) -> None:
        self.vllm, self.embedded = vllm, embedded
        self.asked, self.wanted = Listener(vllm), Listener(embedded)  # type: ignore[arg-type]
        self.tensors = base
        self.version = 0
        self._names = 0

    def name(self) -> str:
        self._names += 1
        return f"request-{self._names}"

    def step(self) -> None:
        """One more version, in both."""
        after = stepped(self.tensors, self.version)
        self.vllm.swap(after if self.version % 2 else self.part(after), self.version + 1)
        self.follow(self.tensors | (after if self.version % 2 else self.part(after)))

    def part(self, after: dict[str, Array]) -> dict[str, Array]:
        """All but one tensor: as a training step that leaves one alone."""
        return {name: array for name, array in after.items() if name != "model.norm.weight"}

    def follow(self, after: dict[str, Array]) -> None:
        self.version += 1
        self.embedded.swap(after, self.version)
        self.tensors = after

    def compare(self, prompt: tuple[int, ...] = PROMPT, tokens: int = 24) -> set[int]:
        """Greedy answers of both are the same; returns the versions that vLLM named."""
        name = self.name()
        for listener in (self.asked, self.wanted):
            listener.ask(name, prompt, tokens)
            listener.wait()
        assert self.asked.ids(name) == self.wanted.ids(name)
        pairs = zip(self.asked.logprobs(name), self.wanted.logprobs(name), strict=True)
        assert max(abs(a - b) for a, b in pairs) < BOUND
        return set(self.asked.versions(name))
