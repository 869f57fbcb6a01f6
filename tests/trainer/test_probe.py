"""Probes are what transformers computes with exactly the published weights."""

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import LlamaForCausalLM

from tradewind.ledger.ledger import Ledger
from tradewind.trainer.bits import from_bits
from tradewind.trainer.config import TrainerConfig
from tradewind.trainer.learner import Learner
from tradewind.trainer.lineage import Lineage
from tradewind.trainer.loop import train
from tradewind.trainer.policy import Policy
from tradewind.trainer.run import Run
from tradewind.weights.bucket import Bucket
from tradewind.weights.checkpoint import read_folder
from tradewind.weights.follow import Follower
from tradewind.weights.probe import DRAWS, LENGTH, TEXT, TEXT_LENGTH


def slow_probe(model, ids):
    """One sequence, the whole softmax."""
    with torch.no_grad():
        logp = model(torch.tensor([ids])).logits[0].float().log_softmax(-1)
    return [float(logp[i, token]) for i, token in enumerate(ids[1:])]


def test_a_probe_belongs_to_another_sequence_or_sees_another(tiny):
    model = tiny.tiny_model().eval()
    learner = Learner(Policy.wrap(tiny.tiny_model(), torch.float32), TrainerConfig())
    for parameter in model.parameters():
        parameter.data = parameter.data.to(torch.bfloat16).float()
    sequences = [(50, 3, 3), (4, 90, 7, 8, 9, 1), (4, 90), (50, 3, 3)]
    probes = learner.probe(sequences)
    assert [probe.ids for probe in probes] == sequences
    for probe in probes:
        np.testing.assert_allclose(probe.logprobs, slow_probe(model, probe.ids), atol=1e-5)


def test_a_trainer_in_16_bits_blurs_what_its_pools_are_measured_by(tiny):
    """Right pools were refused after mid-training, and after RL: both sides had rounded."""
    model = tiny.tiny_model().eval()
    for parameter in model.parameters():
        parameter.data = parameter.data.to(torch.bfloat16).float()
    learner = Learner(Policy.wrap(tiny.tiny_model(), torch.bfloat16), TrainerConfig())
    (probe,) = learner.probe([(4, 90, 7, 8, 9, 1)])
    assert probe.dtype == "float32"
    np.testing.assert_allclose(probe.logprobs, slow_probe(model, probe.ids), atol=1e-5)
    assert learner.policy.inner.dtype == torch.bfloat16


def test_published_probes_are_not_of_the_published_weights(tiny, tmp_path):
    folder = tiny.save_model(tmp_path / "model")
    tiny.fill(tmp_path / "ledger.sqlite", 4).close()
    run = Run(workspace=tmp_path, model=folder, run_id="tiny")
    config = {"groups_per_step": 2, "max_staleness": 9, "lr": 1e-2, "dtype": "fp32"}
    train(TrainerConfig(steps=2, **config), run)
    ledger = Ledger.open(tmp_path / "ledger.sqlite")
    assert all(step.metrics["trainer/probe/seconds"] > 0 for step in ledger.steps())
    ledger.close()
    follower = Follower(Bucket.open((tmp_path / "bucket").as_uri()), read_folder(folder),
                        run_id="tiny")  # fmt: skip
    asked, found = [], []
    for version in (1, 2):
        follower.commit(follower.stage(version))
        model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
        weights = {name: from_bits(bits).float() for name, bits in follower.mirror.items()}
        model.load_state_dict({**weights, "lm_head.weight": weights["model.embed_tokens.weight"]})
        probes = follower.state.probes
        assert len(probes) == DRAWS and {len(probe.ids) for probe in probes} == {LENGTH}
        for probe in probes:
            np.testing.assert_allclose(probe.logprobs, slow_probe(model, probe.ids), atol=1e-5)
        asked.append([probe.ids for probe in probes])
        found.append([probe.logprobs for probe in probes])
    assert asked[0] == asked[1] and found[0] != found[1]


def test_steps_that_change_nothing_publish_something_or_prove_something_else(tiny, tmp_path):
    """A learning rate below what a weight can hold: empty deltas, one state, the same probes."""
    folder = tiny.save_model(tmp_path / "model")
    tiny.fill(tmp_path / "ledger.sqlite", 4).close()
    run = Run(workspace=tmp_path, model=folder, run_id="tiny")
    config = {"groups_per_step": 2, "max_staleness": 9, "lr": 1e-30, "dtype": "fp32"}
    train(TrainerConfig(steps=2, **config), run)
    bucket = Bucket.open((tmp_path / "bucket").as_uri())
    assert bucket.list("frames/") == []
    follower = Follower(bucket, read_folder(folder), run_id="tiny")
    base, found = follower.state_id, []
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for version in (1, 2):
        follower.commit(follower.stage(version))
        assert follower.state_id == base
        for probe in follower.state.probes:
            np.testing.assert_allclose(probe.logprobs, slow_probe(model, probe.ids), atol=1e-5)
        found.append(follower.state.probes)
    assert found[0] == found[1] and found[0]


def test_a_probe_moves_weights_or_leaves_a_gradient(tiny):
    learner = Learner(Policy.wrap(tiny.tiny_model(), torch.float32), TrainerConfig())
    before = learner.weights()
    assert learner.probe([(1, 2, 3)]) == learner.probe([(1, 2, 3)])
    after = learner.weights()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert all(parameter.grad is None for _, parameter in learner.policy.trained())


def test_stages_of_a_run_probe_other_sequences(tiny, tmp_path):
    """Whoever asks first decides."""
    folder = tiny.save_model(tmp_path / "model")
    ledger = tiny.fill(tmp_path / "ledger.sqlite", 0)
    bucket = Bucket.open((tmp_path / "bucket").as_uri())
    base = read_folder(folder)
    first = Lineage(ledger, bucket, "tiny", base, probe_text=lambda: [9] * 90).probe_ids(97)
    again = Lineage(ledger, bucket, "tiny", base, probe_text=lambda: [8] * 90).probe_ids(97)
    assert again == first and first[0] == (9,) * TEXT_LENGTH
    ledger.close()


def test_a_model_with_a_tokenizer_is_probed_with_random_ids_alone(tmp_path):
    words = {word: i for i, word in enumerate(["[UNK]", *TEXT.split()])}
    tokenizer = Tokenizer(WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    run = Run(workspace=tmp_path, model=tmp_path, run_id="tiny")
    assert run.probe_text() == []
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert run.probe_text() == [words[word] for word in TEXT.split()]
