"""A second turn starts with the ids that were fed and sampled, or it forks."""

from __future__ import annotations

from datetime import datetime

import pytest

from tradewind.render.renderer import Renderer
from tradewind.render.toolcalls import Said

FIRST = [{"role": "user", "content": "hello there"}]
CALL = {"id": "1", "function": {"name": "f", "arguments": "{}"}}
MORE = {"role": "user", "content": "and how are you?"}


def answer(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def end_of(renderer: Renderer, family: str) -> int:
    return renderer.encode(
        {"llama3": "<|eot_id|>", "plain": "<|endoftext|>"}.get(family, "<|im_end|>")
    )[0]


def character_ids(renderer: Renderer, text: str) -> tuple[int, ...]:
    """An unusual but valid tokenisation: no merges."""
    return tuple(i for character in text for i in renderer.encode(character))


@pytest.mark.parametrize("family", ["chatml", "qwen", "llama3"])
def test_canonical_ids_extend_to_exactly_the_full_rendering(model, family):
    renderer = Renderer.open(model(family))
    chat = [*FIRST, answer("hello today"), MORE]
    output = (*renderer.encode("hello today"), end_of(renderer, family))
    extended = renderer.extend(renderer.render(FIRST), output, FIRST, Said("hello today"), chat)
    assert extended == renderer.render(chat)


@pytest.mark.parametrize("family", ["chatml", "qwen", "llama3"])
def test_sampled_ids_survive_although_the_text_tokenises_otherwise(model, family):
    renderer = Renderer.open(model(family))
    prompt = renderer.render(FIRST)
    output = (*character_ids(renderer, "hello today"), end_of(renderer, family))
    assert output[:-1] != renderer.encode("hello today")
    chat = [*FIRST, answer("hello today"), MORE]
    extended = renderer.extend(prompt, output, FIRST, Said("hello today"), chat)
    assert extended is not None
    assert extended[: len(prompt) + len(output)] == prompt + output
    full = renderer.render(chat)
    bridge = extended[len(prompt) + len(output) :]
    assert full[-len(bridge) :] == bridge
    assert renderer.decode(extended) == renderer.decode(full)


@pytest.mark.parametrize("family", ["chatml", "qwen", "llama3"])
def test_answer_cut_by_length_gets_its_end_mark_from_the_bridge(model, family):
    renderer = Renderer.open(model(family))
    chat = [*FIRST, answer("hello to"), MORE]
    output = renderer.encode("hello to")
    extended = renderer.extend(renderer.render(FIRST), output, FIRST, Said("hello to"), chat)
    assert extended == renderer.render(chat)


def test_three_turns_chain(model):
    renderer = Renderer.open(model("chatml"))
    end = end_of(renderer, "chatml")
    chat, prompt = list(FIRST), renderer.render(FIRST)
    for text in ("one", "two", "three"):
        output = (*character_ids(renderer, text), end)
        longer = [*chat, answer(text), MORE]
        extended = renderer.extend(prompt, output, chat, Said(text), longer)
        assert extended is not None and extended[: len(prompt) + len(output)] == prompt + output
        chat, prompt = longer, extended
    assert renderer.decode(prompt) == renderer.decode(renderer.render(chat))


@pytest.mark.parametrize(
    "sent_back",
    [
        pytest.param({"content": " hello today\n"}, id="whitespace added"),
        pytest.param({"refusal": None, "tool_calls": None, "annotations": []}, id="empty keys"),
        pytest.param({"content": [{"type": "text", "text": "hello today"}]}, id="as parts"),
    ],
)
def test_harmless_changes_by_the_client_do_not_fork(model, sent_back):
    renderer = Renderer.open(model("chatml"))
    output = (*renderer.encode("hello today"), end_of(renderer, "chatml"))
    chat = [*FIRST, {**answer("hello today"), **sent_back}, MORE]
    prompt = renderer.render(FIRST)
    extended = renderer.extend(prompt, output, FIRST, Said("hello today"), chat)
    assert extended is not None and extended[: len(prompt) + len(output)] == prompt + output


@pytest.mark.parametrize(
    "chat",
    [
        pytest.param([*FIRST, answer("hello yesterday"), MORE], id="edited answer"),
        pytest.param([{**FIRST[0], "content": "hi"}, answer("hello today"), MORE], id="edited ask"),
        pytest.param(
            [{"role": "system", "content": "x"}, *FIRST, answer("hello today")], id="system"
        ),
        pytest.param([*FIRST, MORE], id="answer dropped"),
        pytest.param(FIRST, id="same prompt again"),
        pytest.param(
            [
                *FIRST,
                {**answer("hello today"), "tool_calls": [CALL]},
            ],
            id="tools",
        ),
    ],
)
def test_edited_history_forks(model, chat):
    renderer = Renderer.open(model("chatml"))
    output = (*renderer.encode("hello today"), end_of(renderer, "chatml"))
    assert renderer.extend(renderer.render(FIRST), output, FIRST, Said("hello today"), chat) is None


def test_reasoning_that_the_template_strips_forks(model):
    renderer = Renderer.open(model("qwen"))
    text = "<think>\nhm\n</think>\n\nhello"
    output = (*renderer.encode(text), end_of(renderer, "qwen"))
    kept = [*FIRST, answer(text), {"role": "tool", "content": "1"}]
    stripped = [*FIRST, answer(text), MORE]
    prompt = renderer.render(FIRST)
    assert renderer.extend(prompt, output, FIRST, Said(text), kept) == renderer.render(kept)
    assert renderer.extend(prompt, output, FIRST, Said(text), stripped) is None


def test_date_of_the_template_that_changed_does_not_fork(model, monkeypatch):
    """Over midnight the policy goes on with the date that it has read."""
    folder = model("chatml")
    file = folder / "chat_template.jinja"
    file.write_text("{{ strftime_now('It is the %d.') }}" + file.read_text())
    renderer = Renderer.open(folder)

    def today(day: int) -> None:
        class Clock(datetime):
            @classmethod
            def now(cls, tz=None):
                return cls(2026, 3, day)

        monkeypatch.setattr("tradewind.render.template.datetime", Clock)

    today(1)
    prompt = renderer.render(FIRST)
    output = (*renderer.encode("hello today"), end_of(renderer, "chatml"))
    today(2)
    chat = [*FIRST, answer("hello today"), MORE]
    extended = renderer.extend(prompt, output, FIRST, Said("hello today"), chat)
    assert extended is not None and extended[: len(prompt) + len(output)] == prompt + output
    assert renderer.decode(extended).count("It is the") == 1
    assert "It is the 02." in renderer.decode(renderer.render(chat))


def test_other_end_mark_than_the_templates_forks(model):
    renderer = Renderer.open(model("chatml"))
    end_of_text = renderer.encode("<|endoftext|>")[0]
    renderer.stop_ids = (*renderer.stop_ids, end_of_text)
    output = (*renderer.encode("hello"), end_of_text)
    chat = [*FIRST, answer("hello"), MORE]
    assert renderer.extend(renderer.render(FIRST), output, FIRST, Said("hello"), chat) is None


@pytest.mark.parametrize("stopped", [True, False])
def test_template_without_marks_forks(model, stopped):
    renderer = Renderer.open(model("plain"))
    output = renderer.encode("hello") + ((end_of(renderer, "plain"),) if stopped else ())
    chat = [*FIRST, answer("hello"), MORE]
    assert renderer.extend(renderer.render(FIRST), output, FIRST, Said("hello"), chat) is None
