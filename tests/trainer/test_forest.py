import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tradewind.trainer.forest import common_prefix, plant, split
from tradewind.trainer.policy import Policy

IDS = st.lists(st.integers(0, 2), min_size=2, max_size=9)


def reference(model, samples):
    """Each sample alone through transformers' own attention; entries in the forest's order."""
    model.config._attn_implementation = "eager"
    out = []
    for sample in sorted(samples, key=lambda s: s.ids):
        logits = model(torch.tensor([sample.ids])).logits[0].float() / sample.temperature
        logp = logits.log_softmax(-1)
        at = [i for i, trained in enumerate(sample.mask) if trained]
        out += [logp[i - 1, sample.ids[i]] for i in at]
    return torch.stack(out)


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("block", [3, 128])
@pytest.mark.parametrize("share", [True, False])
def test_shared_prefixes_change_values_or_gradients(tiny, block, share):
    samples = tiny.make_samples()
    expected = reference(plain := tiny.tiny_model(), samples)
    policy = Policy(tiny.tiny_model())
    forest = plant(samples, 0, block=block, share=share)
    assert (forest.tokens < sum(len(s.ids) for s in samples)) == share
    logp, _ = policy(forest)
    torch.testing.assert_close(logp, expected, atol=2e-6, rtol=1e-5)
    weights = forest.advantage
    ours = gradients(policy.inner, (logp * weights).sum())
    theirs = gradients(plain, (expected * weights).sum())
    for name, gradient in theirs.items():
        torch.testing.assert_close(ours[name], gradient, atol=1e-5, rtol=1e-4, msg=name)


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
def test_other_families_bypass_the_forest_attention(tiny, family):
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(1)
    config = AutoConfig.for_model(
        family,
        vocab_size=97,
        hidden_size=24,
        intermediate_size=40,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=4,
    )
    model = AutoModelForCausalLM.from_config(config)
    samples = tiny.make_samples()
    with torch.no_grad():
        expected = reference(model, samples)
        logp, _ = Policy(model)(plant(samples, 0, block=4))
    torch.testing.assert_close(logp, expected, atol=2e-6, rtol=1e-5)


def test_temperature_is_ignored(tiny):
    hot = [
        s.model_copy(update={"temperature": 1.0 + 0.5 * (i % 2)})
        for i, s in enumerate(tiny.make_samples())
    ]
    with torch.no_grad():
        expected = reference(tiny.tiny_model(), hot)
        logp, _ = Policy(tiny.tiny_model())(plant(hot, 0))
    torch.testing.assert_close(logp, expected, atol=2e-6, rtol=1e-5)


@given(st.lists(IDS, min_size=1, max_size=6), st.integers(1, 5))
def test_a_token_sees_another_branch_or_misses_an_ancestor(tiny, streams, block):
    samples = [tiny.make_sample(ids, 1, rollout=i) for i, ids in enumerate(streams)]
    forest = plant(samples, 0, block=block)
    nodes = {tuple(ids[: n + 1]) for ids in streams for n in range(len(ids))}
    assert forest.tokens == len(nodes)
    seen = np.zeros((forest.tokens, forest.tokens), bool)
    for part in forest.blocks:
        seen[np.arange(part.start, part.stop)[:, None], part.keys.numpy()[None]] = part.mask.numpy()
    for query in range(forest.tokens):
        chain = np.flatnonzero(seen[query])
        assert chain[-1] == query
        assert forest.positions[chain].tolist() == list(range(len(chain)))
        nodes.discard(tuple(forest.ids[chain].tolist()))
    assert not nodes, "a prefix has no packed token whose visible chain spells it"


@given(st.lists(IDS, min_size=1, max_size=8), st.integers(1, 30))
def test_micro_batches_exceed_the_budget_or_lose_a_sample(tiny, streams, budget):
    samples = [tiny.make_sample(ids, 1, rollout=i) for i, ids in enumerate(streams)]
    parts = split(samples, budget)
    assert sorted(s.rollout_id for p in parts for s in p) == sorted(s.rollout_id for s in samples)
    for part in parts:
        assert len(part) == 1 or plant(part, 0).tokens <= budget


def test_common_prefix_of_streams():
    assert common_prefix((1, 2, 3), (1, 2, 4)) == 2
    assert common_prefix((1, 2), (1, 2, 4)) == 2
    assert common_prefix((), (1,)) == 0


def test_stale_sample_counts_as_pure_mismatch(tiny):
    mixed = tiny.make_sample([1, 2, 3, 4], 2, versions=(-1, -1, 6, 7), rollout=0)
    fresh = tiny.make_sample([5, 2, 3, 4], 2, version=7, rollout=1)
    assert plant([mixed, fresh], 7).same_version.tolist() == [False, False, True, True]
