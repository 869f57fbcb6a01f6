"""Rendering equals `transformers`; what is missing or strange gets a sentence."""

from __future__ import annotations

import json
import shutil

import pytest

from tradewind.render.renderer import Renderer
from tradewind.types import UserError

USER = {"role": "user", "content": "hello there"}
CHATS = {
    "one question": [USER],
    "with a system line": [{"role": "system", "content": "be brief"}, USER],
    "two turns": [
        USER,
        {"role": "assistant", "content": "hi é€😀"},
        {**USER, "content": "  more "},
    ],
    "markup in a content": [{"role": "user", "content": "<b> & \"quotes\" 'x' {{ 7 }}"}],
    "a tool answer": [
        USER,
        {"role": "assistant", "content": "x"},
        {"role": "tool", "content": "1"},
    ],
}
FAMILY_CHATS = [
    (family, chat)
    for family in ("chatml", "qwen", "llama3")
    for chat in CHATS
    if (family, chat) != ("llama3", "a tool answer")  # that template knows no tools
]


@pytest.mark.parametrize("prompted", [True, False])
@pytest.mark.parametrize(("family", "chat"), FAMILY_CHATS)
def test_rendering_equals_transformers(model, family, prompted, chat):
    transformers = pytest.importorskip("transformers")
    folder = model(family)
    reference = transformers.AutoTokenizer.from_pretrained(str(folder))
    expected = reference.apply_chat_template(
        CHATS[chat], add_generation_prompt=prompted, tokenize=True, return_dict=False
    )
    assert Renderer.open(folder).render(CHATS[chat], prompted) == tuple(expected)


def test_template_with_generation_marks_or_a_terse_tojson_is_refused(model):
    """Marks as in SmolLM3's template, separators as in Kimi's."""
    transformers = pytest.importorskip("transformers")
    folder = model("chatml")
    (folder / "chat_template.jinja").write_text(
        "{%- for message in messages %}\n"
        "    {%- if message.role == 'assistant' %}\n"
        "        {% generation %}\n{{ message.content }}<|im_end|>{%- endgeneration %}\n"
        "    {%- else %}{{ message | tojson(separators=(',', ':'), sort_keys=True) }}{% endif %}\n"
        "{%- endfor %}"
    )
    reference = transformers.AutoTokenizer.from_pretrained(str(folder))
    expected = reference.apply_chat_template(CHATS["two turns"], tokenize=True, return_dict=False)
    assert Renderer.open(folder).render(CHATS["two turns"], False) == tuple(expected)


def test_template_inside_the_tokenizer_config_is_found(model, tmp_path):
    renderer = Renderer.open(model("chatml", template_in_config=True))
    beside = Renderer.open(shutil.copytree(model("chatml"), tmp_path / "b"))
    assert renderer.render([USER]) == beside.render([USER])


def test_default_of_several_named_templates_is_taken(model):
    folder = model("chatml", template_in_config=True)
    file = folder / "tokenizer_config.json"
    config = json.loads(file.read_text())
    single = Renderer.open(folder).render([USER])
    named = [{"name": "tool_use", "template": "x"}]
    named.append({"name": "default", "template": config["chat_template"]})
    file.write_text(json.dumps({**config, "chat_template": named}))
    assert Renderer.open(folder).render([USER]) == single


def test_content_parts_render_as_their_text(model):
    renderer = Renderer.open(model("chatml"))
    parts = [{"type": "text", "text": "hello"}, {"type": "text", "text": "there"}]
    assert renderer.render([{"role": "user", "content": parts}]) == renderer.render(
        [{"role": "user", "content": "hello\nthere"}]
    )


@pytest.mark.parametrize(
    ("messages", "sentence"),
    [
        ([], "the conversation is empty"),
        ([{"content": "x"}], "has no role"),
        ([{"role": "user", "content": 7}], "neither text nor a list of parts"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "images, audio and files"),
        ([{"role": "wizard", "content": "x"}], "Unknown role: wizard"),
    ],
)
def test_strange_messages_get_a_sentence(model, messages, sentence):
    with pytest.raises(UserError, match=sentence):
        Renderer.open(model("llama3")).render(messages)


def test_missing_pieces_of_the_folder_get_a_sentence(model, tmp_path):
    with pytest.raises(UserError, match=r"no tokenizer\.json"):
        Renderer.open(tmp_path)
    folder = model("chatml")
    (folder / "chat_template.jinja").write_text("{% for %}")
    with pytest.raises(UserError, match="does not compile"):
        Renderer.open(folder)
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(UserError, match="has no chat template"):
        Renderer.open(folder)


def test_template_cannot_reach_out_of_its_sandbox(model):
    folder = model("chatml")
    (folder / "chat_template.jinja").write_text(
        "{{ messages.__class__.__mro__[1].__subclasses__() }}"
    )
    with pytest.raises(UserError, match="unsafe"):
        Renderer.open(folder)


def test_end_of_turn_is_a_stop_even_if_the_configs_name_only_end_of_text(model):
    folder = model("chatml")
    renderer = Renderer.open(folder)
    end_of_text, end_of_turn = renderer.encode("<|endoftext|>") + renderer.encode("<|im_end|>")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(
        json.dumps({**config, "eos_token": {"content": "<|endoftext|>"}})
    )
    (folder / "config.json").write_text("{}")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [end_of_text]}))
    assert Renderer.open(folder).stop_ids == tuple(sorted((end_of_text, end_of_turn)))


def test_context_window_is_the_models_when_the_tokenizer_has_none(model):
    assert Renderer.open(model("chatml")).context_window == 512
