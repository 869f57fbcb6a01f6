"""A family is trained as transformers computes it, or not at all."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from tradewind.trainer.corpus import row_samples
from tradewind.trainer.forest import plant
from tradewind.trainer.policy import Policy
from tradewind.types import UserError

SIZES = {
    "vocab_size": 97,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "initializer_range": 0.3,
}


def model(family, **changes):
    torch.manual_seed(1)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **SIZES | changes))


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("granite", {"logits_scaling": 8.0}),
        ("cohere", {"logit_scale": 0.06}),
        ("nanochat", {"final_logit_softcapping": 15.0}),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logits_that_are_scaled_after_the_head_are_trained_unscaled(family, changes, dtype):
    with pytest.raises(UserError, match=f"more than that to its logits.*{family}"):
        Policy.wrap(model(family, **changes), dtype)


@torch.no_grad()
def test_a_scale_of_one_is_refused():
    policy = Policy.wrap(model("granite", logits_scaling=1.0), torch.float32)
    ids = [5, 17, 40, 3, 88]
    logp, _ = policy(plant(row_samples([ids], True, "row"), 0))
    theirs = model("granite", logits_scaling=1.0)
    theirs.load_state_dict(policy.inner.state_dict())
    logits = theirs(input_ids=torch.tensor([ids])).logits[0, :-1]
    expected = logits.log_softmax(-1)[torch.arange(4), torch.tensor(ids[1:])]
    torch.testing.assert_close(logp, expected, rtol=1e-4, atol=1e-5)


def test_a_window_over_all_layers_is_trained_as_full_attention():
    with pytest.raises(UserError, match=r"no sliding-window attention.*mistral"):
        Policy.wrap(model("mistral", sliding_window=16), torch.float32)
    Policy.wrap(model("mistral", sliding_window=None), torch.float32)
    Policy.wrap(model("qwen2", sliding_window=16, use_sliding_window=False), torch.float32)


def test_trainer_routes_tokens_to_other_experts_than_its_engine():
    """Nothing records the engine's choice, so a mixture of experts is not trained at all."""
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8}
    with pytest.raises(UserError, match=r"no mixture of experts.*no record holds.*qwen3_moe"):
        Policy.wrap(model("qwen3_moe", **experts), torch.float32)
