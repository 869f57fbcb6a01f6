"""Messages to token ids and back, for one model folder.

    render   messages, tools               -> prompt ids
    extend   a parent's ids, new messages  -> prompt ids that start with the parent's, or None
    decode   ids                           -> text
    parser   text                          -> content and tool calls, as this family writes them

`extend` is what keeps promise R2. A second turn rendered from text rarely starts with the ids
that the engine sampled (merges differ, and the newline after the end mark is never sampled), so
the parent's prompt and output ids are kept as they are and only the *bridge* is tokenised: the
template's text between the end of the assistant's content and the next generation prompt.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from tradewind.render.detokeniser import Detokeniser
from tradewind.render.message import canonical
from tradewind.render.template import ChatTemplate
from tradewind.render.tokenizer import open_tokenizer
from tradewind.render.toolcalls import Plain, Said, ToolCall, ToolParser
from tradewind.render.toolform import choose_form
from tradewind.types import Json, UserError

Ids = tuple[int, ...]

_PROBE = "x7Qz9probe4Kd"
"""Stands for an assistant's content; a word that no template contains or trims."""
_NO_LIMIT = 1 << 20


class Renderer:
    """The only place that knows a chat template. Stateless after `open`; safe between threads."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate, *, config: Json) -> None:
        """`config` is the merged view of the model's JSON files; `open` builds it."""
        self._tokenizer = tokenizer
        self._template = template
        self._special = {
            token: added.content
            for token, added in tokenizer.get_added_tokens_decoder().items()
            if added.special
        }
        self.vocab_size: int = tokenizer.get_vocab_size(with_added_tokens=True)
        """Number of ids the tokenizer knows."""
        self.context_window: int = _context_window(config)
        """Most tokens of prompt and answer together."""
        self.stop_ids: Ids = self._stop_ids(config)
        """Sampling one of these ends the answer; ascending."""
        self.form = choose_form(template)
        """How this family is told of tools and writes its calls."""

    @classmethod
    def open(cls, folder: Path | str) -> Renderer:
        """Reads tokenizer and template of a model folder; raises `UserError` if one is missing."""
        folder = Path(folder)
        tokenizer = open_tokenizer(folder)
        tokenizer_config = _json(folder / "tokenizer_config.json")
        template = ChatTemplate.open(folder, tokenizer_config)
        config = {
            "model": _json(folder / "config.json"),
            "generation": _json(folder / "generation_config.json"),
            "tokenizer": tokenizer_config,
        }
        return cls(tokenizer, template, config=config)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        *,
        tools: Sequence[Json] = (),
    ) -> Ids:
        """Prompt ids of a conversation, equal to `transformers.apply_chat_template`.

        Where the template knows no tools, they are written as `toolform` says.
        """
        return self.encode(self._text(canonical(messages), tools, add_generation_prompt))

    def parser(self, tools: Collection[Json]) -> ToolParser:
        """Of an answer to a prompt that named `tools`."""
        return self.form.parser if tools else Plain()

    def encode(self, text: str) -> Ids:
        """Ids of `text`; special tokens written out in it become their ids, none are added."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def extend(
        self,
        parent_ids: Sequence[int],
        parent_output_ids: Sequence[int],
        parent_messages: Sequence[Mapping[str, Any]],
        said: Said,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Json] = (),
    ) -> Ids | None:
        """`parent_ids + parent_output_ids + bridge`, or None if `messages` are not a continuation.

        A continuation is: the parent's messages, one assistant message that means what was
        delivered, then anything; `tools` are those of both prompts. None (a fork) also where the
        template would render the history differently from what the engine read and wrote:
        reasoning stripped from older turns, another end mark, a rewritten system line.
        """
        before, now = canonical(parent_messages), canonical(messages)
        if not continues(before, said, now):
            return None
        bridge = self._bridge(before, said, now, tools)
        if bridge is None:
            return None
        ids = self._after_end_mark(bridge, parent_output_ids)
        return None if ids is None else (*parent_ids, *parent_output_ids, *ids)

    def detokeniser(self) -> Detokeniser:
        """A fresh incremental decoder for one answer."""
        return Detokeniser(self._tokenizer)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of `ids` without special tokens; display only, never trained."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)

    def _text(
        self, messages: Sequence[Json], tools: Sequence[Json], add_generation_prompt: bool = True
    ) -> str:
        return self._template.render(
            self.form.prepare(messages, tools),
            tools=tools if self.form.native else (),
            add_generation_prompt=add_generation_prompt,
        )

    def _bridge(
        self, before: Sequence[Json], said: Said, now: Sequence[Json], tools: Sequence[Json]
    ) -> str | None:
        """Template text after the assistant's content, if all text before it is unchanged."""
        n = len(before)
        opening, actual = self._text(before, tools), self._text(now, tools)
        probe = {"role": "assistant", "content": _PROBE}
        try:
            probed = self._text((*now[:n], probe, *now[n + 1 :]), tools)
        except UserError:  # this template wants the calls before their results
            return None
        head, found, bridge = probed.partition(_PROBE)
        if not found or head != opening or _PROBE in bridge:
            return None
        if not (actual.startswith(opening) and actual.endswith(bridge)):
            return None
        # Templates may trim an answer or space its calls in their own way: what it means must be
        # the same, and the engine's ids stay as they were sampled.
        middle = actual[len(opening) : len(actual) - len(bridge)]
        names = {call.name for call in said.calls}
        return bridge if self.parser(tools).parse(middle, names).means(said) else None

    def _after_end_mark(self, bridge: str, output_ids: Sequence[int]) -> Ids | None:
        """Ids of the bridge that follow the sampled output.

        If the engine stopped by itself, its last id must be the end mark with which the bridge
        begins, and is not repeated. If it ran out of length, the bridge supplies the mark.
        """
        ids = self.encode(bridge)
        # Without a special token at the seam, text on both sides could merge into other ids.
        if not ids or ids[0] not in self._special:
            return None
        if not output_ids or output_ids[-1] not in self.stop_ids:
            return ids
        return ids[1:] if ids[0] == output_ids[-1] else None

    def _stop_ids(self, config: Json) -> Ids:
        found = set(_id_list(config["generation"].get("eos_token_id")))
        found |= set(_id_list(config["model"].get("eos_token_id")))
        name = config["tokenizer"].get("eos_token")
        text = name.get("content") if isinstance(name, Mapping) else name
        if isinstance(text, str) and (token := self._tokenizer.token_to_id(text)) is not None:
            found.add(token)
        found |= self._end_of_turn()
        if not found:
            raise UserError(
                "the model names no token that ends an answer",
                fix="set eos_token_id in its generation_config.json",
            )
        return tuple(sorted(found))

    def _end_of_turn(self) -> set[int]:
        """The special token that the template puts right after an assistant's content, if any."""
        chat = ({"role": "user", "content": "hi"}, {"role": "assistant", "content": _PROBE})
        text = self._template.render(chat, add_generation_prompt=False)
        after = self.encode(text.partition(_PROBE)[2])
        return {after[0]} if after and after[0] in self._special else set()


def continues(before: Sequence[Json], said: Said, now: Sequence[Json]) -> bool:
    """Whether canonical `now` is `before`, one assistant message that means `said`, then anything.

    Agents trim what they received, and write arguments anew; that is forgiven, because the ids
    that the engine sampled are kept whatever the agent sends back.
    """
    n = len(before)
    if len(now) <= n or now[n]["role"] != "assistant" or tuple(now[:n]) != tuple(before):
        return False
    return set(now[n]) <= {"role", "content", "tool_calls"} and said.means(said_by(now[n]))


def said_by(message: Json) -> Said:
    """What a canonical assistant message means."""
    functions = [call["function"] for call in message.get("tool_calls", [])]
    return Said(message["content"], tuple(ToolCall(f["name"], f["arguments"]) for f in functions))


def _context_window(config: Json) -> int:
    limits = (
        config["model"].get("max_position_embeddings"),
        config["tokenizer"].get("model_max_length"),
    )
    # Tokenizers without a limit say 1e30.
    return min([int(n) for n in limits if isinstance(n, int | float) and n > 0], default=_NO_LIMIT)


def _id_list(value: object) -> list[int]:
    if isinstance(value, int):
        return [value]
    return [v for v in value if isinstance(v, int)] if isinstance(value, list) else []


def _json(file: Path) -> Json:
    if not file.is_file():
        return {}
    try:
        loaded = json.loads(file.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise UserError(
            f"a file of the model is not JSON ({error})", value=str(file), fix="download it again"
        ) from error
    assert isinstance(loaded, dict), f"{file} holds no JSON object"
    return loaded
