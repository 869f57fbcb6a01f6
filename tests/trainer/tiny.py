"""A random Llama of a few thousand parameters, and samples for it."""

import random

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tradewind.types import Sample

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
            "prompt_length": given,
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
