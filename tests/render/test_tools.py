"""Tools in the prompt, calls in the answer, and both in the next prompt."""

from __future__ import annotations

import json

import pytest

from tradewind.render.message import canonical
from tradewind.render.renderer import Renderer
from tradewind.render.toolcalls import Hermes, PlainJson, Said, ToolCall

ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds two numbers.",
        "parameters": {"type": "object", "properties": {"a": {"type": "number"}}},
    },
}
USER = {"role": "user", "content": "what is 1 + 2?"}
FORMS = {"hermes": True, "json": True, "chatml": False, "llama3": False, "qwen": False}
END = {"json": "<|eot_id|>", "llama3": "<|eot_id|>"}


def called(arguments: str, content: str | None = None, call_id: str = "c1") -> dict:
    function = {"name": "add", "arguments": arguments}
    call = {"id": call_id, "type": "function", "function": function}
    return {"role": "assistant", "content": content, "tool_calls": [call]}


def result(text: str, call_id: str = "c1") -> dict:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


@pytest.mark.parametrize(("family", "native"), FORMS.items())
def test_form_is_the_one_that_reads_back_what_the_template_writes(model, family, native):
    form = Renderer.open(model(family)).form
    assert form.native is native
    assert form.parser.name == ("json" if family == "json" else "hermes")


@pytest.mark.parametrize("family", FORMS)
def test_prompt_names_the_tools_and_the_next_one_keeps_them(model, family):
    renderer = Renderer.open(model(family))
    chat = [USER, called('{"a": 1}'), result("3")]
    for messages in ([USER], chat):
        text = renderer.decode(renderer.render(messages, tools=[ADD]))
        assert text.count("Adds two numbers.") == 1
    assert "3" in renderer.decode(renderer.render(chat, tools=[ADD])).split("add")[-1]


@pytest.mark.parametrize("family", ["hermes", "json"])
def test_prompt_with_tools_equals_transformers(model, family):
    transformers = pytest.importorskip("transformers")
    folder = model(family)
    chat = [USER, called('{"a": 1}'), result("3"), {"role": "assistant", "content": "three"}, USER]
    reference = transformers.AutoTokenizer.from_pretrained(str(folder))
    expected = reference.apply_chat_template(
        list(canonical(chat)),
        tools=[ADD],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=False,
    )
    assert Renderer.open(folder).render(chat, tools=[ADD]) == tuple(expected)


@pytest.mark.parametrize("family", FORMS)
def test_bridge_after_a_call_equals_the_full_rendering(model, family):
    """Ids of a call in the template's own spelling: bridge and full rendering are the same ids."""
    renderer = Renderer.open(model(family))
    prompt = renderer.render([USER], tools=[ADD])
    chat = [USER, called('{"a": 1}'), result("3")]
    full = renderer.render(chat, tools=[ADD])
    end = renderer.encode(END.get(family, "<|im_end|>"))[0]
    output = full[len(prompt) : full.index(end, len(prompt)) + 1]
    said = renderer.parser([ADD]).parse(renderer.decode(output), {"add"})
    assert said == Said("", (ToolCall("add", {"a": 1}),))
    assert renderer.extend(prompt, output, [USER], said, chat, tools=[ADD]) == full


@pytest.mark.parametrize("family", ["hermes", "json", "chatml"])
def test_call_that_was_spelled_otherwise_keeps_the_engines_ids(model, family):
    """The policy and the client space JSON in their own ways: neither makes a fork."""
    renderer = Renderer.open(model(family))
    prompt = renderer.render([USER], tools=[ADD])
    text = '{"name":"add",  "arguments":{"a":\n1}}'
    text = text if family == "json" else f"<tool_call>{text}</tool_call>"
    end = renderer.encode(END.get(family, "<|im_end|>"))
    output = (*renderer.encode(text), *end)
    said = renderer.parser([ADD]).parse(text, {"add"})
    chat = [USER, called('{"a":1}', content=""), result("3")]
    extended = renderer.extend(prompt, output, [USER], said, chat, tools=[ADD])
    assert extended is not None
    assert extended[: len(prompt) + len(output)] == prompt + output
    assert renderer.decode(extended).count("Adds two numbers.") == 1


@pytest.mark.parametrize("content", [None, "", [], "missing"])
def test_no_content_and_empty_content_of_a_call_are_the_same(model, content):
    renderer = Renderer.open(model("hermes"))
    prompt = renderer.render([USER], tools=[ADD])
    text = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
    output = (*renderer.encode(text), *renderer.encode("<|im_end|>"))
    said = Hermes().parse(text, {"add"})
    sent_back = called('{"a": 1}', content=content)
    if content == "missing":
        del sent_back["content"]
    chat = [USER, sent_back, result("3")]
    extended = renderer.extend(prompt, output, [USER], said, chat, tools=[ADD])
    assert extended is not None and extended[: len(prompt) + len(output)] == prompt + output


def test_edited_arguments_fork(model):
    renderer = Renderer.open(model("hermes"))
    said = Said("", (ToolCall("add", {"a": 1}),))
    chat = [USER, called('{"a": 2}'), result("3")]
    assert renderer.extend((1,), (2,), [USER], said, chat, tools=[ADD]) is None


def test_parallel_calls_and_content_extend(model):
    renderer = Renderer.open(model("hermes"))
    text = (
        'I add.\n<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>\n'
        '<tool_call>\n{"name": "add", "arguments": {"a": 2}}\n</tool_call>'
    )
    said = Hermes().parse(text, {"add"})
    assert said == Said("I add.", (ToolCall("add", {"a": 1}), ToolCall("add", {"a": 2})))
    both = called('{"a": 1}', content="I add.")
    both["tool_calls"].append(called('{"a": 2}', call_id="c2")["tool_calls"][0])
    chat = [USER, both, result("3"), result("4", "c2")]
    prompt = renderer.render([USER], tools=[ADD])
    output = (*renderer.encode(text), *renderer.encode("<|im_end|>"))
    extended = renderer.extend(prompt, output, [USER], said, chat, tools=[ADD])
    assert extended == renderer.render(chat, tools=[ADD])


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "add", "arguments": {"a": 1}}',
        '<tool_call>{"name": "add", "argum',
        "<tool_call>add(1)</tool_call>",
        '<tool_call>{"name": 7, "arguments": {}}</tool_call>',
        '<tool_call>{"name": "add", "arguments": [1]}</tool_call>',
        '<tool_call>{"name": "add", "arguments": {"a": NaN}}</tool_call>',
        "no call at all",
    ],
)
def test_block_that_is_no_whole_call_stays_text(text):
    assert Hermes().parse(text, {"add"}) == Said(text)


def test_half_a_call_after_a_whole_one_stays_text():
    whole = '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'
    said = Hermes().parse(f'hm {whole} <tool_call>{{"name": "a', {"add"})
    assert said == Said('hm\n<tool_call>{"name": "a', (ToolCall("add", {"a": 1}),))


def test_end_mark_inside_an_argument_does_not_end_the_call():
    block = json.dumps({"name": "add", "arguments": {"a": "</tool_call>"}})
    said = Hermes().parse(f"<tool_call>{block}</tool_call>", {"add"})
    assert said.calls == (ToolCall("add", {"a": "</tool_call>"}),)


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ('{"name": "add", "parameters": {"a": 1}}', 1),
        ('```json\n{"name": "add", "arguments": {"a": 1}}\n```', 1),
        ('[{"name": "add", "arguments": {}}, {"name": "add", "arguments": {}}]', 2),
        ('{"name": "Ada", "age": 36}', 0),
        ('{"name": "add", "arguments": {}} and more', 0),
        ('{"name": "add", "argu', 0),
    ],
)
def test_json_answer_is_a_call_only_if_it_names_a_tool(text, calls):
    said = PlainJson().parse(text, {"add"})
    assert len(said.calls) == calls
    assert said.content == ("" if calls else text)


@pytest.mark.parametrize("parser", [Hermes(), PlainJson()], ids=lambda p: p.name)
@pytest.mark.parametrize(
    "text",
    [
        "plain text < with > marks",
        'I add. <tool_call>{"name": "add", "arguments": {}}</tool_call> done <tool_call>',
        '{"name": "add", "arguments": {}}',
        '  \n{"a": 1} hm',
        "ends with a beginning <tool",
    ],
)
def test_what_was_shown_of_an_unfinished_answer_is_the_beginning_of_its_content(parser, text):
    content = parser.parse(text, {"add"}).content
    for end in range(len(text) + 1):
        shown = parser.shown(text[:end])
        assert content.startswith(text[:shown]), text[:end]


def test_call_that_names_no_function_gets_a_sentence(model):
    from tradewind.types import UserError

    bad = {"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]}
    with pytest.raises(UserError, match="names no function"):
        Renderer.open(model("hermes")).render([USER, bad])
