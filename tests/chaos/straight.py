"""The slow reference: sample, grade, step, again, in one straight line and one process.

    python straight.py MODEL < {"tasks": [[task, question, kind], ...], "seed": ..., ...}
    > [state id of version 0, of version 1, ...]

No ledger, no gateway, no bucket, no leases, no staleness: what the whole loop must come down to
when nothing is stale. It shares with it what decodes and what learns, and nothing that moves data.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

from score import score

from tradewind.gateway.turn import turn_seed
from tradewind.ledger.draws import permutation
from tradewind.ledger.turns import rollout_seed
from tradewind.pool.engines.embedded.engine import EmbeddedEngine
from tradewind.render.renderer import Renderer
from tradewind.trainer.config import TrainerConfig
from tradewind.trainer.learner import Learner
from tradewind.trainer.step import Trainer
from tradewind.types import GenerateChunk, GenerateRequest, Sample, group_id, rollout_id
from tradewind.weights.state import State

LIMIT_S = 60


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


def group_of(engine: EmbeddedEngine, renderer: Renderer, asked: dict, number: int, version: int):
    """The samples of one group: every rollout of one prompt, with its distance from the mean."""
    n, kinds = len(asked["tasks"]), [kind for _, _, kind in asked["tasks"]]
    task = permutation(asked["seed"], number // n, kinds)[number % n]
    prompt = renderer.render([{"role": "user", "content": asked["tasks"][task][1]}])
    answers, rewards = [], []
    for index in range(asked["group_size"]):
        name = rollout_id(group_id(number), index)
        request = GenerateRequest(
            request_id=name,
            prompt_ids=prompt,
            max_tokens=asked["max_tokens"],
            stop_ids=renderer.stop_ids,
            seed=turn_seed(rollout_seed(asked["seed"], name), 0),
        )
        ids, logprobs = answer(engine, request)
        detokeniser = renderer.detokeniser()
        text = detokeniser.push([i for i in ids if i not in renderer.stop_ids])
        rewards.append(score({}, {"artefacts": {"text": text + detokeniser.flush()}}))
        answers.append((name, ids, logprobs))
    mean = sum(rewards) / len(rewards)
    return [
        Sample(
            group_id=group_id(number),
            rollout_id=name,
            ids=(*prompt, *ids),
            mask=(False,) * len(prompt) + (True,) * len(ids),
            logprobs=(0.0,) * len(prompt) + tuple(logprobs),
            versions=(-1,) * len(prompt) + (version,) * len(ids),
            advantage=reward - mean,
            weight=1.0,
            prompt_length=len(prompt),
        )
        for reward, (name, ids, logprobs) in zip(rewards, answers, strict=True)
    ]


def main(folder: Path) -> None:
    """The state id of every version."""
    asked = json.load(sys.stdin)
    config = TrainerConfig(**asked["trainer"])
    learner = Learner.open(folder, config)
    trainer, renderer = Trainer(learner, config), Renderer.open(folder)
    engine = EmbeddedEngine.open(folder, dtype="float32", threads=1, max_batch=1, max_tokens=4096)
    engine.start()
    states, number = [State.of(0, learner.weights()).state_id], 0
    for step in range(config.steps):
        samples = []
        for _ in range(config.groups_per_step):
            samples += group_of(engine, renderer, asked, number, step)
            number += 1
        trainer.step(samples, version=step, number=step)
        states.append(State.of(step + 1, learner.weights()).state_id)
        engine.swap(learner.weights(), step + 1)
    engine.stop()
    json.dump(states, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
