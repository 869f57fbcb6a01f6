"""Which tokens are trained and which are only read, against a plain forward over a chain."""

import torch

from tradewind.trainer.config import TrainerConfig
from tradewind.trainer.learner import Learner
from tradewind.trainer.policy import Policy
from tradewind.trainer.step import Trainer

IDS = [5, 6, 7, 8, 9, 10, 11, 12, 13, 14]
SAMPLED = [0, 0, 0, 1, 1, 0, 0, 0, 1, 1]
"""Two turns: what a tool said stands between them."""


def sample_of(tiny):
    said = [bool(one) for one in SAMPLED]
    changes = {
        "mask": tuple(said),
        "logprobs": tuple(-4.0 if one else 0.0 for one in said),
        "versions": tuple(0 if one else -1 for one in said),
    }
    return tiny.make_sample(IDS, 2, **changes)


def gradient(model):
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def reference(tiny, trained, visible=None):
    """Gradient of the mean of -log p over `trained`, by transformers' own forward."""
    model = tiny.tiny_model()
    for parameter in model.parameters():  # the trainer's are bf16-exact
        parameter.data = parameter.data.to(torch.bfloat16).to(torch.float32)
    ids = torch.tensor([IDS])
    logits = model(input_ids=ids, attention_mask=visible).logits[0, :-1]
    logp = logits.log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
    chosen = torch.tensor(trained[1:], dtype=torch.bool)
    (-logp[chosen].mean()).backward()
    return gradient(model)


def ours(tiny):
    config = TrainerConfig(loss="reinforce", loss_floats={"truncate": 0.0}, token_budget=1000)
    trainer = Trainer(Learner(Policy.wrap(tiny.tiny_model(), torch.float32), config), config)
    trainer.learner.backward([sample_of(tiny)], 0, trainer._objective, 0)
    return gradient(trainer.learner.policy.inner) / sum(SAMPLED)


def test_tokens_of_the_environment_are_in_the_loss(tiny):
    assert torch.allclose(ours(tiny), reference(tiny, SAMPLED), atol=1e-5)
    everything = [0, 0, 0, *[1] * 7]
    assert not torch.allclose(ours(tiny), reference(tiny, everything), atol=1e-3)


def test_gradient_goes_to_states_instead_of_actions(tiny):
    inverted = [1 - one for one in SAMPLED]
    assert not torch.allclose(ours(tiny), reference(tiny, inverted), atol=1e-3)


def test_what_is_not_trained_is_not_read_either(tiny):
    """A loss mask that became an attention mask."""
    visible = torch.tensor([[1, 1, 1, 1, 1, 0, 0, 0, 1, 1]])
    assert not torch.allclose(ours(tiny), reference(tiny, SAMPLED, visible), atol=1e-3)
