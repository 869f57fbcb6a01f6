"""Each sampled token has one purpose, counted in the engine's own ids."""

from __future__ import annotations

import random

import pytest

from tradewind.render.parts import count_parts
from tradewind.render.renderer import Renderer
from tradewind.types import TokenParts

ADD = {"type": "function", "function": {"name": "add", "parameters": {}}}
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
ASKED = [{"role": "user", "content": "1 + 2?"}]


@pytest.fixture
def renderer(model) -> Renderer:
    return Renderer.open(model("hermes"))


def parts(renderer: Renderer, *pieces: str, prompt_end: str = "") -> TokenParts:
    """Each piece is tokenised apart, so the truth is known: a boundary is one between tokens."""
    ids = [i for piece in pieces for i in renderer.encode(piece)]
    prompt = (*renderer.render(ASKED, tools=[ADD]), *renderer.encode(prompt_end))
    return count_parts(renderer, prompt, (*ids, renderer.stop_ids[-1]), [ADD])


def n(renderer: Renderer, text: str) -> int:
    return len(renderer.encode(text))


def test_thinking_calls_and_message_are_told_apart(renderer):
    thought, said = "<think>one and two</think>", " I call it. é中"
    found = parts(renderer, thought, said, CALL)
    # The end mark has no text; it belongs to the call, which is what came before it.
    assert found == TokenParts(
        thinking=n(renderer, thought), message=n(renderer, said), calls=n(renderer, CALL) + 1
    )


def test_thinking_that_the_prompt_opened_has_no_opening_mark_in_the_answer(renderer):
    found = parts(renderer, "well</think>", "three", prompt_end="<think>\n")
    assert (found.thinking, found.message) == (
        n(renderer, "well</think>"),
        n(renderer, "three") + 1,
    )


def test_thinking_that_never_ended_is_all_of_it(renderer):
    opened = parts(renderer, "on and on", prompt_end="<think>\n")
    marked = parts(renderer, "so: ", "<think>on and on")
    assert opened.message == opened.calls == 0 < opened.thinking
    assert (marked.message, marked.thinking) == (
        n(renderer, "so: "),
        n(renderer, "<think>on and on") + 1,
    )


def test_a_call_whose_beginning_was_forced_is_a_call(renderer):
    opening, rest = CALL[:20], CALL[20:]
    ids = (*renderer.encode(rest), renderer.stop_ids[-1])
    prompt = (*renderer.render(ASKED, tools=[ADD]), *renderer.encode(opening))
    assert count_parts(renderer, prompt, ids, [ADD], opening) == TokenParts(calls=len(ids))
    assert count_parts(renderer, prompt, ids[:3], [ADD], opening) == TokenParts(message=3)


def test_a_call_that_was_cut_off_is_message(renderer):
    assert parts(renderer, CALL[:-5]).calls == 0


def test_parallel_calls_are_all_counted(renderer):
    assert parts(renderer, CALL, CALL).calls == 2 * n(renderer, CALL) + 1


def test_counts_sum_to_the_sampled_ids_whatever_was_sampled(renderer):
    rng = random.Random(7)
    for _ in range(50):
        ids = [rng.randrange(renderer.vocab_size) for _ in range(rng.randrange(1, 80))]
        found = count_parts(renderer, renderer.render(ASKED), ids, [ADD])
        assert found.thinking + found.calls + found.message == len(ids)
        assert min(found.thinking, found.calls, found.message) >= 0


@pytest.mark.parametrize(
    "text",
    [
        "<think>a [THINK] b</think> c [/THINK]",
        "a [/THINK] b </think>",
        "<think>one<thinking>two[THINK]three",
    ],
)
def test_marks_of_two_families_count_the_same_tokens_twice(renderer, text):
    assert parts(renderer, text) == TokenParts(thinking=n(renderer, text) + 1)
