"""Read a ledger page by page, then say a balance. The pages together exceed the window.

    task: pages, account, window --> LongChat --> policy
                                        ^ page, page, ... , question

Every page books something on the account that is asked for at the end, and which one that is is
said at the end only: whoever loses a page, or keeps only the newest ones, is wrong.
"""

from __future__ import annotations

import random
import re

from tradewind.envs.chat import Chat
from tradewind.envs.longchat import LongChat, Window
from tradewind.envs.protocol import Policy
from tradewind.types import Outcome, OutcomeStatus
from tradewind.types.record import Json

ACCOUNTS = ("ash", "elm", "oak")
TASK = "Keep the balance of each account over all pages."
QUESTION = "Balance of {}? Answer with the number."


def make_task(seed: int, pages: int, window: int = 400) -> Json:
    """The input of a task; its answer is `balance(task)`. The same for the same seed."""
    rng = random.Random(f"longledger {seed}")
    return {
        "pages": [
            ", ".join(f"{account} {rng.randint(-99, 99):+d}" for account in ACCOUNTS)
            for _ in range(pages)
        ],
        "account": rng.choice(ACCOUNTS),
        "window": window,
    }


def bookings(text: str) -> dict[str, int]:
    """The sum of all bookings in a text, by account."""
    found = dict.fromkeys(ACCOUNTS, 0)
    for account, amount in re.findall(r"\b(ash|elm|oak) ([+-]\d+)", text):
        found[account] += int(amount)
    return found


def balance(task: Json) -> int:
    """What a correct answer says."""
    return bookings("\n".join(task["pages"]))[task["account"]]


async def rollout(task: Json, policy: Policy) -> Outcome:
    """Show every page, ask, and report what was answered."""
    window = Window(tokens=task["window"], answer_tokens=12, summary_tokens=48)
    async with Chat(policy) as chat:
        talk = LongChat(chat.ask, TASK, window)
        for number, page in enumerate(task["pages"], start=1):
            await talk.say(f"Page {number}: {page}")
        answer = await talk.say(QUESTION.format(task["account"]))
    return Outcome(
        status=OutcomeStatus.COMPLETED,
        artefacts={"answer": answer, "summaries": len(talk.summaries)},
    )
