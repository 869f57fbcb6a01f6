"""A chat template: the model family's own Jinja source, run in a sandbox.

The environment offers what templates on the hub expect from `transformers`
(`trim_blocks`, loop controls, `generation` blocks, `raise_exception`, `strftime_now`, a plain
`tojson`), and `tests/render` compares the two.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import TemplateError, TemplateSyntaxError
from jinja2.ext import Extension
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tradewind.types import Json, UserError


class ChatTemplate:
    """Messages to text, compiled once; `render` depends on its arguments and the date only."""

    def __init__(self, source: str, constants: Mapping[str, str]) -> None:
        """`constants` are the special tokens that a template may name, such as `bos_token`."""
        self._constants = dict(constants)
        try:
            self._compiled = _environment().from_string(source)
        except TemplateSyntaxError as error:
            raise UserError(
                f"the chat template does not compile (line {error.lineno}: {error.message})",
                fix="use the template that came with the model",
            ) from error

    @classmethod
    def open(cls, folder: Path, tokenizer_config: Json) -> ChatTemplate:
        """Reads `chat_template.jinja`, else the template inside `tokenizer_config.json`."""
        return cls(_source(folder, tokenizer_config), _constants(tokenizer_config))

    def render(
        self,
        messages: Sequence[Json],
        *,
        tools: Sequence[Json] = (),
        add_generation_prompt: bool = True,
    ) -> str:
        """The conversation as the model reads it; raises `UserError` where the template refuses."""
        try:
            return self._compiled.render(
                messages=list(messages),
                tools=list(tools) or None,
                documents=None,
                add_generation_prompt=add_generation_prompt,
                **self._constants,
            )
        except (TemplateError, TypeError, AttributeError) as error:
            # A template concatenates whatever it finds, so a strange message is a TypeError.
            raise UserError(
                f"the model's chat template refuses these messages ({error})",
                fix="send roles and contents that the model family knows",
            ) from error


class _Generation(Extension):
    """`{% generation %}` marks what the assistant said, for masks that are never made here."""

    tags = {"generation"}  # noqa: RUF012  # as jinja declares it

    def parse(self, parser: Parser) -> list[Node]:
        """The block's content, as if the marks were not there."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _source(folder: Path, tokenizer_config: Json) -> str:
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = tokenizer_config.get("chat_template")
    if isinstance(template, list):  # several named ones
        named = {entry.get("name"): entry.get("template") for entry in template}
        template = named.get("default")
    if not isinstance(template, str):
        raise UserError(
            "the model has no chat template",
            value=str(folder),
            fix="put chat_template.jinja beside its tokenizer.json; instruct models ship one",
        )
    return template


def _constants(tokenizer_config: Json) -> dict[str, str]:
    """`bos_token`, `eos_token` and the like, which are strings or `{"content": ...}`."""
    found = {}
    for name, value in tokenizer_config.items():
        text = value.get("content") if isinstance(value, Mapping) else value
        if name.endswith("_token") and isinstance(text, str):
            found[name] = text
    return found


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment


def _tojson(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)
