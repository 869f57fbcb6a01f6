"""A session longer than the window, through the real gateway: solved by summaries, one credit."""

from __future__ import annotations

import asyncio
import re

import pytest
from tokenizers import Tokenizer

from longledger.env import QUESTION, balance, bookings, make_task, rollout
from tradewind.algo.samples import samples_of
from tradewind.envs.chat import Chat, Message, Reply
from tradewind.envs.longchat import SUMMARY_REQUEST, LongChat, Window
from tradewind.envs.play import play
from tradewind.envs.protocol import Policy
from tradewind.types import ClosedGroup, GradedRollout, Group, Outcome, Task

WINDOW = 400
TASK = make_task(seed=7, pages=20, window=WINDOW)


def clerk(prompt: str) -> str:
    """A policy that can add, and knows nothing but its prompt."""
    last = prompt.rsplit("<|im_start|>user\n", 1)[1]
    seen = bookings(prompt)
    if SUMMARY_REQUEST in last:
        return ", ".join(f"{account} {amount:+d}" for account, amount in seen.items())
    asked = re.search(r"Balance of (\w+)\?", last)
    return f"{seen[asked[1]]:+d}" if asked else "ok"


@pytest.fixture
def policy(world) -> Policy:
    """The clerk behind the real gateway, in a window of 400 byte tokens."""

    tokenizer = Tokenizer.from_file(str(world.model / "tokenizer.json"))

    def answer(asked) -> None:
        prompt = tokenizer.decode(asked.prompt_ids, skip_special_tokens=False)
        world.paris.script.append(world.reply(text=clerk(prompt)))

    world.paris.on_request = answer
    lease = world.lease()
    made = Policy(
        base_url=f"{world.url}/v1", api_key=lease.model_key, model="m", deadline=lease.deadline
    )
    world.lease_of_policy = lease
    return made


def test_no_window_holds_the_ledger_and_every_page_counts():
    assert sum(map(len, TASK["pages"])) > WINDOW, "one token a byte"
    for page in TASK["pages"]:
        fewer = {**TASK, "pages": [p for p in TASK["pages"] if p != page]}
        assert balance(fewer) != balance(TASK)


def test_a_session_longer_than_the_window_is_solved_by_summaries(policy):
    outcome = asyncio.run(play(rollout, TASK, policy))
    assert outcome.status == "completed", outcome.detail
    assert int(outcome.artefacts["answer"]) == balance(TASK)
    assert outcome.artefacts["summaries"] >= 2


def test_without_summaries_the_context_overflows_and_that_is_graded(policy):
    async def plain(task, policy) -> Outcome:
        async with Chat(policy) as chat:
            messages = []
            for page in [*task["pages"], QUESTION.format(task["account"])]:
                messages.append(Message(role="user", content=page))
                reply = await chat.ask(messages, 12)
                messages.append(Message(role="assistant", content=reply.text))
        return Outcome(status="completed")

    outcome = asyncio.run(play(plain, TASK, policy))
    assert outcome.status == "agent_error" and "400" in outcome.detail


def test_whoever_keeps_only_the_newest_pages_is_wrong(policy):
    async def forgetful(task, policy) -> Outcome:
        async with Chat(policy) as chat:
            text = "\n".join([*task["pages"][-4:], QUESTION.format(task["account"])])
            reply = await chat.ask([Message(role="user", content=text)], 12)
        return Outcome(status="completed", artefacts={"answer": reply.text})

    outcome = asyncio.run(play(forgetful, TASK, policy))
    assert int(outcome.artefacts["answer"]) != balance(TASK)


def test_every_token_of_the_chain_has_the_credit_of_the_one_final_reward(world, policy):
    asyncio.run(play(rollout, TASK, policy))
    turns = world.turns(world.lease_of_policy)
    rollout_id = world.lease_of_policy.rollout_id
    task = Task(task_id="t", kind="k", split="train", input=TASK, reference={})
    group = Group(
        group_id="g0", task_id="t", purpose="train", size=1, opened_version=0, state="closed"
    )
    graded = GradedRollout(
        rollout_id=rollout_id, turns=tuple(turns), scores=(), reward=1.0, advantage=0.5
    )
    collected = samples_of(ClosedGroup(group=group, task=task, rollouts=(graded,)))
    assert not collected.excluded
    generations = collected.samples
    assert len(generations) >= 3, "each generation is a branch of its own"
    assert {(s.advantage, s.weight) for s in generations} == {(0.5, 1 / len(generations))}
    sampled = sum(len(turn.completion.output_ids) for turn in turns)
    assert sum(sum(s.mask) for s in generations) == sampled, "summaries are trained, too, once"


def scripted(tokens: list[int]):
    """An `ask` that reports these totals, and what it was asked."""
    asked = []

    async def ask(messages, max_tokens):
        asked.append(([m.content for m in messages], max_tokens))
        return Reply(text=f"a{len(asked)}", tokens=tokens[len(asked) - 1], finish_reason="stop")

    return ask, asked


def test_the_trigger_leaves_room_for_the_answer_and_for_the_summary():
    window = Window(tokens=1000, answer_tokens=100, summary_tokens=100)
    ask, asked = scripted([500, 700, 200])

    async def talk():
        chat = LongChat(ask, "task", window, request="sum")
        for text in ("one", "two" * 100):
            await chat.say(text)
        return chat

    chat = asyncio.run(talk())
    assert chat.summaries == ["a2"]
    assert asked == [
        (["task\n\none"], 100),
        (["task\n\none", "a1", "sum"], 100),
        (["task\n\nSummary so far:\na2\n\n" + "two" * 100], 100),
    ]


def test_a_window_without_room_is_refused():
    with pytest.raises(ValueError, match="no room"):
        Window(tokens=100, answer_tokens=60, summary_tokens=40)
