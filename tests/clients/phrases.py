"""A tiny model that can play an agent's game: bytes, a few phrases, and what demonstrations taught.

    demonstrations (an agent's real calls, answered by a script)
        ──► vocabulary: every byte, and the phrases that all prompts and answers are made of
        ──► a random Llama of about 150,000 weights ──► imitation: it knows the moves, not the best

Phrases keep prompts short: a tool's whole description is one token. They are ordinary tokens, not
special ones, so they are shown to agents like any text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

from tradewind.render.message import canonical
from tradewind.render.renderer import Renderer
from tradewind.types import Turn

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = """\
{%- if tools %}
    {{- '<|im_start|>system\\n# Tools' }}
    {%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content }}
    {%- for call in message.tool_calls or [] %}
        {{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
        {{- call.function.arguments | tojson }}{{- '}\\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""


def call(name: str, **arguments: Any) -> str:
    """A call in the family's own writing."""
    return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'


@dataclass(frozen=True)
class Demonstration:
    """One chain of turns that a script answered."""

    turns: tuple[Turn, ...]

    def phrases(self) -> set[str]:
        """Texts of tools and longer lines of the prompts, as the template writes them."""
        tools = {json.dumps(tool, ensure_ascii=False) for turn in self.turns for tool in turn.tools}
        lines = {line for turn in self.turns for line in _lines(turn.messages)}
        return tools | {line for line in lines if len(line) > 8}

    def ids(self, renderer: Renderer) -> tuple[list[int], list[bool]]:
        """The whole chain in a model's ids, and which of them the policy says."""
        ids: list[int] = []
        said: list[bool] = []
        for turn in self.turns:
            prompt = renderer.render(turn.messages, tools=turn.tools)
            assert list(prompt[: len(ids)]) == ids, "a demonstration extends itself"
            answer = renderer.encode(_answer(turn)) + renderer.encode("<|im_end|>")
            said += [False] * (len(prompt) - len(ids)) + [True] * len(answer)
            ids = [*prompt, *answer]
        return ids, said


def byte_model(folder: Path, phrases: Iterable[str] = (), window: int = 16384) -> Path:
    """Tokenizer, template and configs without weights."""
    folder.mkdir(parents=True, exist_ok=True)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate((*SPECIAL, *letters))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    tokenizer.add_tokens([AddedToken(p, normalized=False) for p in sorted(phrases)])
    tokenizer.save(str(folder / "tokenizer.json"))
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": window}))
    return folder


def imitate(
    folder: Path, demonstrations: Sequence[Demonstration], phrases: Iterable[str], steps: int
) -> Path:
    """A model folder whose policy answers like one demonstration or another, evenly."""
    byte_model(folder, phrases)
    renderer = Renderer.open(folder)
    model = _random_llama(renderer.vocab_size)
    rows = [one.ids(renderer) for one in demonstrations]
    length = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([row + [0] * (length - len(row)) for row, _ in rows])
    labels = torch.full_like(ids, -100)
    for row, (_, said) in enumerate(rows):
        mask = torch.tensor(said + [False] * (length - len(said)))
        labels[row, mask] = ids[row, mask]
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = 1e-2 * (1 - step / steps)
        optimiser.zero_grad()
        model(input_ids=ids, labels=labels).loss.backward()
        optimiser.step()
    model.to(torch.bfloat16).save_pretrained(str(folder))
    return folder


def _random_llama(vocabulary: int) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=16384,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config)


def _lines(messages: Sequence[dict[str, Any]]) -> list[str]:
    contents = [
        m["content"] for m in canonical(messages) if m["role"] in ("system", "user", "developer")
    ]
    return [line for content in contents for line in (content or "").split("\n")]


def _answer(turn: Turn) -> str:
    calls = [call["function"] for call in turn.tool_calls]
    return (turn.text or "") + "".join(call(c["name"], **json.loads(c["arguments"])) for c in calls)
