"""A trickle of the product's own users: people who chat while the model is in training.

    python examples/orderdesk/users.py --base-url URL --model NAME --rate 0.2 --seconds 60

Prints one JSON line per chat: time to first token, total time, characters, or the error.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass

import openai
from openai import AsyncOpenAI

CHATS = (
    "Hello! What can you do for me?",
    "How do I see whether my order was sent?",
    "What is the difference between open and late?",
    "Can I return half of an order?",
    "Which teas do you have?",
    "How long does a parcel by sea take?",
    "Who do I write to about an invoice?",
    "Thanks, that is all for today.",
)
MAX_NEW_TOKENS = 24


@dataclass(frozen=True)
class Chat:
    """What one user experienced."""

    question: str
    ttft_seconds: float | None
    """From sending to the first piece of text; None when none came."""
    total_seconds: float
    characters: int
    error: str | None = None


async def chat(client: AsyncOpenAI, model: str, question: str) -> Chat:
    """One streamed chat, timed as the user feels it."""
    start = time.monotonic()
    first: float | None = None
    text, error = "", None
    try:
        stream = await client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": question}],
            max_tokens=MAX_NEW_TOKENS,
            stream=True,
        )
        async for chunk in stream:
            piece = chunk.choices[0].delta.content if chunk.choices else None
            if piece:
                first = first if first is not None else time.monotonic() - start
                text += piece
    except openai.APIError as failure:
        error = f"{type(failure).__name__}: {failure}"  # a user sees an error and comes back later
    return Chat(question, first, time.monotonic() - start, len(text), error)


async def chats(
    client: AsyncOpenAI, model: str, *, per_second: float, seconds: float
) -> AsyncIterator[Chat]:
    """Chats that start at a steady rate, whether or not earlier ones have ended."""
    if per_second <= 0:
        raise ValueError(f"per_second is {per_second}; give a rate above 0, such as 0.2")
    count = max(1, int(per_second * seconds))
    users = [
        asyncio.create_task(_chat_later(client, model, number, per_second))
        for number in range(count)
    ]
    try:
        for done in asyncio.as_completed(users):
            yield await done
    finally:  # whoever stops listening sends the users home
        for user in users:
            user.cancel()


async def _chat_later(client: AsyncOpenAI, model: str, number: int, per_second: float) -> Chat:
    await asyncio.sleep(number / per_second)
    return await chat(client, model, CHATS[number % len(CHATS)])


async def _print_chats(args: argparse.Namespace) -> None:
    async with AsyncOpenAI(
        base_url=args.base_url, api_key=os.environ.get("OPENAI_API_KEY", "none"), max_retries=0
    ) as client:
        trickle = chats(client, args.model, per_second=args.rate, seconds=args.seconds)
        async for done in trickle:
            print(json.dumps(asdict(done)), flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--base-url", required=True, help="OpenAI-compatible endpoint with /v1")
    parser.add_argument("--model", required=True)
    parser.add_argument("--rate", type=float, default=0.2, help="chats started per second")
    parser.add_argument("--seconds", type=float, default=60.0, help="for how long to start chats")
    asyncio.run(_print_chats(parser.parse_args()))


if __name__ == "__main__":
    main()
