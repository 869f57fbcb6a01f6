"""A random Llama of a few thousand parameters, and samples for it."""

import random

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tradewind.algo.advantages import group_mean
from tradewind.ledger.ledger import Ledger
from tradewind.ledger.rollouts import LeaseTerms
from tradewind.rewards.compose import compose
from tradewind.types import (
    Completion,
    Outcome,
    Sample,
    Score,
    Task,
    Turn,
    TurnState,
    VersionSpan,
    turn_id,
)

VOCABULARY = 97


def tiny_model(seed=0, **changes):
    torch.manual_seed(seed)
    config = LlamaConfig(
        **{
            "vocab_size": VOCABULARY,
            "hidden_size": 24,
            "intermediate_size": 40,
            "num_hidden_layers": 2,
            "num_attention_heads": 6,
            "num_key_value_heads": 2,
            "head_dim": 4,
            "tie_word_embeddings": True,
            "initializer_range": 0.2,
            **changes,
        }
    )
    return LlamaForCausalLM(config)


def make_sample(ids, sampled, *, advantage=1.0, version=0, group=0, rollout=0, **changes):
    """The last `sampled` ids are the policy's."""
    given = len(ids) - sampled
    draw = random.Random(len(ids) * 31 + rollout)
    return Sample(
        **{
            "group_id": f"g{group:06d}",
            "rollout_id": f"g{group:06d}-r{rollout}",
            "ids": tuple(ids),
            "mask": (False,) * given + (True,) * sampled,
            "logprobs": (0.0,) * given + tuple(-4.5 - draw.random() for _ in range(sampled)),
            "versions": (-1,) * given + (version,) * sampled,
            "advantage": advantage,
            "weight": 1.0,
            **changes,
        }
    )


def make_samples(seed=0, groups=3, size=4, version=0):
    """Groups with a shared prompt, answers with shared openings, some of zero advantage."""
    draw = random.Random(seed)
    out = []
    for group in range(groups):
        prompt = [draw.randrange(VOCABULARY) for _ in range(draw.randint(3, 9))]
        opening = [draw.randrange(VOCABULARY) for _ in range(2)]
        for rollout in range(size):
            answer = opening + [draw.randrange(VOCABULARY) for _ in range(draw.randint(1, 8))]
            out.append(
                make_sample(
                    prompt + answer,
                    len(answer),
                    advantage=0.0 if group == 1 else draw.uniform(-1, 1),
                    version=version,
                    group=group,
                    rollout=rollout,
                )
            )
    return out


def save_model(folder, **changes):
    """A checkpoint folder in bf16."""
    tiny_model(**changes).to(torch.bfloat16).save_pretrained(folder)
    return folder


def fill(path, groups, size=4, tasks=5):
    """A ledger with closed groups, as controller, gateway, worker and grader would leave it."""
    ledger = Ledger.open(path)
    ledger.create_run({"run_id": "tiny", "seed": 3})
    ledger.add_tasks(
        Task(task_id=f"t{i}", kind="k", split="train", input={}, reference={}) for i in range(tasks)
    )
    for number in range(groups):
        add_group(ledger, number, size)
    return ledger


def add_group(ledger, number, size=4, version=0):
    """One more closed group, sampled by `version`; group 1 of every four is not mixed."""
    draw = random.Random(number)
    terms = LeaseTerms(ttl_s=1e6, deadline_s=1e6, max_running=1000)
    prompt = tuple(draw.randrange(VOCABULARY) for _ in range(6))
    group = ledger.open_training_group(size)
    for index in range(size):
        rollout = ledger.lease_next("w", 1.0, terms, ()).rollout_id
        _chat(ledger, rollout, prompt, draw, version)
        ledger.finish(rollout, Outcome(status="completed"), 1.0)
        ledger.claim_finished("grader", 100, 1.0, 10.0)
        value = 1.0 if number % 4 == 1 else float(index % 2)
        score = Score(rollout_id=rollout, source="s", source_version="1", value=value)
        ledger.write_scores(rollout, [score])
    assert ledger.close_ready(compose, group_mean) == [group.group_id]


def _chat(ledger, rollout, prompt, draw, version):
    intent = Turn(
        turn_id=turn_id(rollout, 0),
        rollout_id=rollout,
        index=0,
        parent=None,
        state=TurnState.INTENT,
        prompt_ids=prompt,
        completion=None,
        temperature=1.0,
        messages=({"role": "user", "content": "q"},),
        started_at=1.0,
    )
    ledger.write_intent(intent)
    output = tuple(draw.randrange(VOCABULARY) for _ in range(draw.randint(2, 7)))
    done = Completion(
        output_ids=output,
        logprobs=tuple(-4.0 - draw.random() for _ in output),
        spans=(VersionSpan(version=version, count=len(output)),),
        finish_reason="stop",
        pool="paris",
    )
    ledger.finish_turn(
        intent.model_copy(
            update={"state": TurnState.DONE, "completion": done, "text": "a", "finished_at": 1.0}
        )
    )
