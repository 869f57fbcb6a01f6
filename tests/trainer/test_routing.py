import pytest
import torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from tradewind.trainer.policy import Policy
from tradewind.types import UserError


def test_trainer_routes_tokens_to_other_experts_than_the_engine_did():
    """Nothing records the engine's choice, so a mixture of experts is not trained at all."""
    size = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 1, "vocab_size": 97}
    heads = {"num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 4}
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8}
    model = Qwen3MoeForCausalLM(Qwen3MoeConfig(**size, **heads, **experts))
    with pytest.raises(UserError, match=r"no mixture of experts.*no record holds.*qwen3_moe"):
        Policy.wrap(model, torch.float32)
