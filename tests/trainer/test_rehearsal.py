import json

import pytest
import torch

from tradewind.trainer.config import TrainerConfig
from tradewind.trainer.learner import Learner
from tradewind.trainer.policy import Policy
from tradewind.trainer.rehearsal import Rehearsal
from tradewind.trainer.step import Trainer
from tradewind.types import UserError

DOCUMENTS = [[n, n + 1, n + 2, n + 3, 2] for n in range(3, 60)]
PLAIN = TrainerConfig(lr=1e-2, loss="reinforce", loss_floats={"truncate": 0.0}, dtype="fp32")
REHEARSED = PLAIN.model_copy(
    update={"rehearsal_rows": 3, "rehearsal_length": 16, "rehearsal_weight": 0.7}
)


def trainer(tiny, config, **changes):
    config = config.model_copy(update=changes)
    learner = Learner(Policy.wrap(tiny.tiny_model(), torch.float32), config)
    return Trainer(learner, config, Rehearsal(DOCUMENTS, config))


def masters(t):
    return [m.detach().clone() for m in t.learner.masters.masters]


def gradients(t, monkeypatch, samples):
    """Of a step, in place of its update."""
    taken = []

    def take(lr, scale, number):
        t.learner.masters.accumulate()
        pairs = zip(t.learner.policy.trained(), t.learner.masters.masters, strict=True)
        # fp32 gradients stay on the parameter, others are on the master
        taken.extend(scale * (m.grad if p.grad is None else p.grad) for (_, p), m in pairs)
        return 0.0

    monkeypatch.setattr(t.learner, "update", take)
    metrics = t.step(samples, number=4)
    return taken, metrics


def reference(tiny, policy):
    """transformers' own model with the policy's weights."""
    model = tiny.tiny_model()
    model.load_state_dict(policy.inner.state_dict())
    return model


def mean_loss(model, documents):
    """The slow way: one document at a time, every next token of it."""
    losses = []
    for ids in documents:
        logits = model(input_ids=torch.tensor([ids])).logits[0, :-1]
        losses += torch.nn.functional.cross_entropy(
            logits.float(), torch.tensor(ids[1:]), reduction="none"
        ).unbind()
    return torch.stack(losses).mean()


@pytest.mark.parametrize("budget", [20, 1000])
def test_the_step_is_that_of_rollouts_and_the_weighed_mean_of_documents(tiny, monkeypatch, budget):
    samples = tiny.make_samples()
    with_documents = trainer(tiny, REHEARSED, token_budget=budget)
    without = trainer(tiny, PLAIN, token_budget=budget)
    both, metrics = gradients(with_documents, monkeypatch, samples)
    alone, _ = gradients(without, monkeypatch, samples)
    documents = [list(s.ids) for s in with_documents.rehearsal.samples(4)]
    model = reference(tiny, with_documents.learner.policy)
    loss = mean_loss(model, documents)
    loss.backward()
    theirs = {name: p.grad for name, p in model.named_parameters()}
    for x, y, (name, _) in zip(both, alone, with_documents.learner.policy.trained(), strict=True):
        torch.testing.assert_close(x, y + 0.7 * theirs[name], rtol=1e-3, atol=1e-6, msg=name)
    assert metrics["trainer/rehearsal/loss"] == pytest.approx(loss.item(), rel=1e-4)
    assert metrics["trainer/rehearsal/tokens"] == sum(len(ids) - 1 for ids in documents)


def test_a_step_that_is_done_again_rehearses_other_rows(tiny):
    rehearsal = Rehearsal(DOCUMENTS, REHEARSED)
    seen = [[s.ids for s in rehearsal.samples(number)] for number in range(6)]
    again = Rehearsal(DOCUMENTS, REHEARSED)
    assert [s.ids for s in again.samples(4)] == seen[4]
    assert [s.ids for s in rehearsal.samples(2)] == seen[2], "also by who is further already"
    assert [s.ids for s in rehearsal.samples(3)] == seen[3]
    assert len({tuple(ids) for ids in seen}) == 6, "every step has rows of its own"
    tokens = {token for ids in seen for sample in ids for token in sample}
    assert tokens == {token for ids in DOCUMENTS for token in ids}, "an epoch leaves nothing out"


def test_rehearsal_alone_moves_weights_when_no_rollout_has_credit(tiny):
    t = trainer(tiny, REHEARSED)
    before = masters(t)
    flat = [s.model_copy(update={"advantage": 0.0}) for s in tiny.make_samples()]
    metrics = t.step(flat, number=1)
    assert all(torch.equal(a, b) for a, b in zip(before, masters(t), strict=True))
    assert "trainer/rehearsal/loss" not in metrics


def test_documents_are_unlearnt_although_they_are_rehearsed(tiny):
    """Rollouts that teach the opposite of the corpus: with rehearsal its loss falls."""
    sample = tiny.make_sample([3, 4, 90, 91, 92, 93], 4, advantage=1.0)
    losses = {}
    for name, config in (("plain", PLAIN), ("rehearsed", REHEARSED)):
        t = trainer(tiny, config)
        for number in range(12):
            t.step([sample], number=number)
        with torch.no_grad():
            model = reference(tiny, t.learner.policy)
            losses[name] = float(mean_loss(model, DOCUMENTS))
    assert losses["rehearsed"] < losses["plain"] - 0.5


def test_a_corpus_that_nobody_named_is_a_traceback_or_is_read_in_vain(tmp_path):
    with pytest.raises(UserError, match="rehearsal needs a corpus"):
        Rehearsal.open(None, tmp_path, REHEARSED)
    nothing = tmp_path / "corpus.jsonl"
    nothing.write_text(json.dumps({"text": ""}))
    assert Rehearsal.open(nothing, tmp_path, PLAIN).samples(0) == []
