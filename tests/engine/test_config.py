"""What the engine cannot read gets a sentence that names it."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tinyllm import make_model

from tradewind.pool.engines.embedded.config import shape_of
from tradewind.pool.engines.embedded.engine import EmbeddedEngine, choose_dtype
from tradewind.types import UserError
from tradewind.weights.tensors import TensorSet

PLAIN = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 300,
    "max_position_embeddings": 512,
}


def test_old_and_new_places_of_the_rope_settings():
    assert shape_of(PLAIN | {"rope_theta": 5e5}).rope.theta == 5e5
    new = {"rope_parameters": {"rope_type": "default", "rope_theta": 7e4}}
    assert shape_of(PLAIN | new).rope.theta == 7e4
    scaling = {"type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4}
    old = {"rope_theta": 5e5, "rope_scaling": scaling | {"original_max_position_embeddings": 8192}}
    assert shape_of(PLAIN | old).rope.llama3 == (8, 1, 4, 8192)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"model_type": "gemma3"}, "cannot read this model family: 'gemma3'"),
        ({"model_type": None}, "cannot read this model family"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4}}, "rotary embedding"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "rotary embedding"),
        ({"use_sliding_window": True, "sliding_window": 64}, "full attention"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "full attention"),
        ({"hidden_act": "gelu"}, "activation"),
        ({"quantization_config": {"bits": 4}}, "quantised"),
        ({"num_key_value_heads": 3}, "kv heads"),
    ],
)
def test_an_option_that_would_change_the_arithmetic_is_refused(change, sentence):
    with pytest.raises(UserError, match=sentence):
        shape_of(PLAIN | change)


def open_changed(folder, **config):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    return EmbeddedEngine.open(folder)


def test_a_broken_folder_is_refused_with_a_sentence(tmp_path):
    with pytest.raises(UserError, match="model folder does not exist"):
        EmbeddedEngine.open(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"no config\.json"):
        EmbeddedEngine.open(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UserError, match="not JSON"):
        EmbeddedEngine.open(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(UserError, match="lacks a key"):
        EmbeddedEngine.open(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(PLAIN))
    with pytest.raises(UserError, match="weights file does not exist"):
        EmbeddedEngine.open(tmp_path)


def test_tensors_that_do_not_fit_the_config_are_refused(tmp_path):
    make_model("qwen2", tmp_path)
    with pytest.raises(UserError, match="lacks tensors"):
        open_changed(tmp_path, num_hidden_layers=4)
    with pytest.raises(UserError, match="would not read"):
        open_changed(tmp_path, num_hidden_layers=2)
    with pytest.raises(UserError, match="another shape"):
        open_changed(tmp_path, num_hidden_layers=3, intermediate_size=96)


def test_a_missing_tensor_is_named(tmp_path):
    make_model("llama", tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    del tensors["model.norm.weight"]
    save_file(tensors, file)
    with pytest.raises(UserError, match=r"model\.norm\.weight"):
        EmbeddedEngine.open(tmp_path)


def test_sharded_checkpoints_are_read(tmp_path, opened):
    model = make_model("qwen3", tmp_path)
    before = EmbeddedEngine.open(tmp_path).tensors()
    (tmp_path / "model.safetensors").unlink()
    model.save_pretrained(tmp_path, max_shard_size="100KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    after = EmbeddedEngine.open(tmp_path).tensors()
    assert before.keys() == after.keys()
    assert all((before[name] == after[name]).all() for name in before)


BF16 = TensorSet({"a": np.zeros(2, np.uint16)})
FP32 = TensorSet({"a": np.zeros(2, np.uint16), "b": np.zeros(2, np.float32)})


def test_dtype_follows_the_processor_unless_it_is_given(monkeypatch):
    for units, dtype in (
        ({"amx_bf16": True}, torch.bfloat16),
        ({"avx512_bf16": True}, torch.bfloat16),
        ({"avx2": True, "amx_bf16": False}, torch.float32),
    ):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda units=units: units)
        assert choose_dtype("auto", BF16) == dtype
        assert choose_dtype("auto", FP32) == torch.float32, "bf16 would lose bits"
    assert choose_dtype("bfloat16", BF16) == torch.bfloat16
    with pytest.raises(UserError, match="no such dtype"):
        choose_dtype("float8", BF16)


@pytest.mark.parametrize("option", [{"max_batch": 0}, {"max_tokens": 0}, {"threads": -1}])
def test_an_option_out_of_range_is_refused(tmp_path, option):
    with pytest.raises(UserError, match=next(iter(option))):
        EmbeddedEngine.open(tmp_path, **option)
