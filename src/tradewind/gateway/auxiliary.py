"""What agents ask beside answers: models and token counts. Nothing here becomes a turn."""

from __future__ import annotations

from collections.abc import Callable

from tradewind.gateway import dialect_chat, dialect_messages
from tradewind.gateway.call import Call
from tradewind.gateway.config import GatewayConfig
from tradewind.gateway.refusal import bad_request
from tradewind.render.renderer import Renderer
from tradewind.types import Json, UserError

Shape = Callable[[int], Json]


def count(renderer: Renderer, call: Call) -> int:
    """Ids of the prompt, rendered afresh; a continued conversation may have a few more or less."""
    try:
        return len(renderer.render(call.messages, tools=call.tools))
    except UserError as error:
        raise bad_request(str(error), param="messages") from error


def counted_messages(tokens: int) -> Json:
    """Anthropic's answer to a count."""
    return {"input_tokens": tokens}


def counted_responses(tokens: int) -> Json:
    """OpenAI's answer to a count."""
    return {"object": "response.input_tokens", "input_tokens": tokens}


def models(config: GatewayConfig, anthropic: bool, one: bool) -> Json:
    """The one model, in a list or alone."""
    if anthropic:
        return dialect_messages.model(config) if one else dialect_messages.models(config)
    return dialect_chat.model(config) if one else dialect_chat.models(config)
