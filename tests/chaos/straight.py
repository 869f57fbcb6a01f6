"""The slow reference: sample, grade, step, again, in one straight line and one process.

    python straight.py MODEL < {"tasks": [[task, question, kind], ...], "seed": ..., ...}
    > [state id of version 0, of version 1, ...]

No ledger, no gateway, no bucket, no leases, no staleness: what the whole loop must come down to
when nothing is stale. It shares with it what decodes and what learns, and nothing that moves data.
So `learned` gives runs that nothing can have disturbed.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).with_name("world")))

from first_token import Chances
from score import score

from tradewind.gateway.turn import turn_seed
from tradewind.ledger.draws import permutation
from tradewind.ledger.turns import rollout_seed
from tradewind.pool.engines.embedded.engine import EmbeddedEngine
from tradewind.render.renderer import Renderer
from tradewind.trainer.config import TrainerConfig
from tradewind.trainer.learner import Bits, Learner
from tradewind.trainer.step import Trainer
from tradewind.types import GenerateChunk, GenerateRequest, Sample, group_id, rollout_id
from tradewind.weights.state import State

LIMIT_S = 60

Earned = list[tuple[str, float]]
"""Task and reward of each rollout."""


def answer(engine: EmbeddedEngine, request: GenerateRequest) -> tuple[list[int], list[float]]:
    """Ids and log-probabilities of one answer; nothing else runs meanwhile."""
    ids: list[int] = []
    logprobs: list[float] = []
    over = threading.Event()

    def take(chunk: GenerateChunk) -> None:
        assert chunk.error is None, chunk.error
        ids.extend(chunk.ids)
        logprobs.extend(chunk.logprobs)
        if chunk.finish_reason is not None:
            over.set()

    engine.submit(request, take)
    assert over.wait(LIMIT_S)
    return ids, logprobs


def verdict(renderer: Renderer, ids: list[int]) -> float:
    """The reward of an answer."""
    detokeniser = renderer.detokeniser()
    text = detokeniser.push([i for i in ids if i not in renderer.stop_ids])
    return score({}, {"artefacts": {"text": text + detokeniser.flush()}})


def group_of(
    engine: EmbeddedEngine, renderer: Renderer, asked: dict, number: int, version: int
) -> tuple[list[Sample], Earned]:
    """The samples of one group: every rollout of one prompt, with its distance from the mean.

    `asked["loses"]` is the share of wrong answers that get lost and are sampled again: 0 but for
    those who want to see a bias.
    """
    n, kinds = len(asked["tasks"]), [kind for _, _, kind in asked["tasks"]]
    task, question, _ = asked["tasks"][permutation(asked["seed"], number // n, kinds)[number % n]]
    prompt = renderer.render([{"role": "user", "content": question}])
    answers, rewards, draw = [], [], random.Random(f"{asked['seed']} {number}")
    attempts = itertools.count()
    while len(answers) < asked["group_size"]:
        name = rollout_id(group_id(number), next(attempts))
        request = GenerateRequest(
            request_id=name,
            prompt_ids=prompt,
            max_tokens=asked["max_tokens"],
            stop_ids=renderer.stop_ids,
            seed=turn_seed(rollout_seed(asked["seed"], name), 0),
        )
        ids, logprobs = answer(engine, request)
        reward = verdict(renderer, ids)
        if reward or draw.random() >= asked["loses"]:
            rewards.append(reward)
            answers.append((name, ids, logprobs))
    mean = sum(rewards) / len(rewards)
    samples = [
        Sample(
            group_id=group_id(number),
            rollout_id=name,
            ids=(*prompt, *ids),
            mask=(False,) * len(prompt) + (True,) * len(ids),
            logprobs=(0.0,) * len(prompt) + tuple(logprobs),
            versions=(-1,) * len(prompt) + (version,) * len(ids),
            advantage=reward - mean,
            weight=1.0,
        )
        for reward, (name, ids, logprobs) in zip(rewards, answers, strict=True)
    ]
    return samples, [(task, reward) for reward in rewards]


def play(folder: Path, asked: dict) -> Iterator[tuple[Bits, Earned]]:
    """The weights of every version, the base first, and what the step that made it trained on."""
    config = TrainerConfig(**asked["trainer"])
    learner = Learner.open(folder, config)
    trainer, renderer = Trainer(learner, config), Renderer.open(folder)
    engine = EmbeddedEngine.open(folder, dtype="float32", threads=1, max_batch=1, max_tokens=4096)
    engine.start()
    yield learner.weights(), []
    for step in range(config.steps):
        samples, earned = list[Sample](), Earned()
        for place in range(config.groups_per_step):
            number = step * config.groups_per_step + place
            group, got = group_of(engine, renderer, asked, number, step)
            samples += group
            earned += got
        trainer.step(samples, version=step, number=step)
        engine.swap(learner.weights(), step + 1)
        yield learner.weights(), earned
    engine.stop()


def learned(folder: Path, asked: dict) -> tuple[list[tuple[float, float]], list[float]]:
    """Reward and chance of every rollout; the mean chance over all tasks, by version."""
    policy = Chances(folder, {task: question for task, question, _ in asked["tasks"]})
    pairs, means, before = list[tuple[float, float]](), list[float](), dict[str, float]()
    for weights, earned in play(folder, asked):
        pairs += [(reward, before[task]) for task, reward in earned]
        before = policy.of(weights)
        means.append(sum(before.values()) / len(before))
    return pairs, means


def main(folder: Path) -> None:
    """The state id of every version."""
    versions = enumerate(play(folder, json.load(sys.stdin)))
    json.dump([State.of(n, weights).state_id for n, (weights, _) in versions], sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
