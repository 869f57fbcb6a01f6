"""Our engine as the sampler of both modes: prompts of a step in, graded samples out."""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from grpo.plan import Plan
from grpo.rewards import REWARDS
from tradewind.algo.advantages import group_mean
from tradewind.pool.engines.embedded.engine import EmbeddedEngine
from tradewind.render.renderer import Renderer
from tradewind.types import GenerateChunk, GenerateRequest, Sample, group_id, rollout_id

DEADLINE_S = 300.0


@dataclass
class Rollout:
    """One request while it runs and after."""

    prompt: tuple[int, ...]
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    def add(self, chunk: GenerateChunk) -> bool:
        """Take a chunk; whether it was the last."""
        if chunk.error is not None:
            raise RuntimeError(f"the engine refused a rollout: {chunk.error}")
        self.ids += chunk.ids
        self.logprobs += chunk.logprobs
        self.versions += [chunk.version] * len(chunk.ids)
        return chunk.finish_reason is not None


@dataclass(frozen=True)
class Batch:
    """All rollouts of one step, graded."""

    samples: list[Sample]
    reward: float
    """Mean over rollouts."""
    tokens: int
    """Sampled."""


class Sampling:
    """Submits the rollouts of a step at once and collects them; several steps may overlap."""

    def __init__(self, plan: Plan, engine: EmbeddedEngine) -> None:
        self._plan, self._engine = plan, engine
        self._renderer = Renderer.open(Path(plan.model))
        self._score = REWARDS[plan.reward]
        self._steps: dict[int, tuple[list[Rollout], queue.Queue[Exception | None]]] = {}

    def submit(self, step: int) -> None:
        """Queue `prompts_per_step` x `group` requests."""
        plan, rollouts = self._plan, []
        for messages in plan.batch(step):
            prompt = self._renderer.render(messages)
            rollouts += [Rollout(prompt) for _ in range(plan.group)]
        done: queue.Queue[Exception | None] = queue.Queue()
        self._steps[step] = rollouts, done
        left = _Countdown(len(rollouts), done)
        for index, rollout in enumerate(rollouts):
            request = GenerateRequest(
                request_id=self._name(step, index),
                prompt_ids=rollout.prompt,
                max_tokens=plan.new_tokens,
                stop_ids=self._renderer.stop_ids,
                seed=plan.seed * 1_000_003 + step * 1_009 + index,
            )
            self._engine.submit(request, left.listener(rollout))

    def take(self, step: int) -> Batch:
        """Wait for all rollouts of a submitted step, and grade them."""
        rollouts, done = self._steps.pop(step)
        error = done.get(timeout=DEADLINE_S)
        if error is not None:
            raise error
        rewards = [self._score(self._renderer.decode(rollout.ids)) for rollout in rollouts]
        samples = []
        for start in range(0, len(rollouts), self._plan.group):
            group = range(start, start + self._plan.group)
            credit = group_mean([rewards[i] for i in group])
            for i, advantage in zip(group, credit, strict=True):
                assert advantage is not None
                samples.append(self._sample(step, i, rollouts[i], advantage))
        tokens = sum(len(rollout.ids) for rollout in rollouts)
        return Batch(samples, sum(rewards) / len(rewards), tokens)

    def _sample(self, step: int, index: int, rollout: Rollout, advantage: float) -> Sample:
        name, given = self._name(step, index), len(rollout.prompt)
        return Sample(
            group_id=name.split("-", 1)[0],
            rollout_id=name,
            ids=(*rollout.prompt, *rollout.ids),
            mask=(False,) * given + (True,) * len(rollout.ids),
            logprobs=(0.0,) * given + tuple(rollout.logprobs),
            versions=(-1,) * given + tuple(rollout.versions),
            advantage=advantage,
            weight=1.0,
        )

    def _name(self, step: int, index: int) -> str:
        group, member = divmod(index, self._plan.group)
        return rollout_id(group_id(step * self._plan.prompts_per_step + group), member)


class _Countdown:
    """Says once that all rollouts of a step have ended, or that one failed."""

    def __init__(self, left: int, done: queue.Queue[Exception | None]) -> None:
        self._left, self._done = left, done
        self._lock = threading.Lock()

    def listener(self, rollout: Rollout):  # type: ignore[no-untyped-def]
        def listen(chunk: GenerateChunk) -> None:
            try:
                last = rollout.add(chunk)
            except RuntimeError as error:
                self._done.put(error)
                return
            if last:
                with self._lock:
                    self._left -= 1
                    if self._left == 0:
                        self._done.put(None)

        return listen


def open_engine(plan: Plan, steps_in_flight: int) -> EmbeddedEngine:
    """An engine that holds the rollouts of so many steps at once, started."""
    rollouts = plan.prompts_per_step * plan.group * steps_in_flight
    engine = EmbeddedEngine.open(plan.model, threads=plan.threads, max_batch=rollouts)
    engine.start()
    return engine


def seconds_since(moment: float) -> float:
    return time.perf_counter() - moment
