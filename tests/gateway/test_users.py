"""The product's users: nothing captured, their waiting recorded, ahead of rollouts (U1)."""

from __future__ import annotations

import openai
import pytest

from tradewind.ledger.user_chats import USER_LEFT
from tradewind.types import Priority


@pytest.mark.parametrize("stream", [False, True])
def test_user_latency_is_recorded_and_nothing_else(world, stream):
    world.paris.version = 2
    answer = world.client().chat.completions.create(
        model="m", messages=[{"role": "user", "content": "secret"}], stream=stream
    )
    if stream:
        assert "".join(e.choices[0].delta.content or "" for e in answer) == "hello"
    (chat,) = world.wait_until(world.ledger.user_chats)
    assert (chat.tokens, chat.version, chat.pool, chat.error) == (6, 2, "paris", None)
    assert 0 < chat.ttft_s <= chat.seconds
    assert world.gateway.metrics.to_json()["turns"] == {}
    assert world.paris.requests[0].priority == Priority.USER
    assert b"secret" not in (world.folder / "ledger.sqlite").read_bytes()


def test_user_sees_text_before_the_pool_has_finished(world):
    world.paris.script.append(world.reply("hello", stall_after=3))
    stream = world.ask("user-key", "x", stream=True)
    seen = ""
    while seen != "hel":
        seen += next(stream).choices[0].delta.content or ""
    world.paris.release()
    assert seen + "".join(e.choices[0].delta.content or "" for e in stream) == "hello"


def test_usage_comes_with_a_stream_that_asks_for_it(world):
    stream = world.ask("user-key", "x", stream=True, stream_options={"include_usage": True})
    last = list(stream)[-1]
    assert last.choices == []
    assert last.usage.completion_tokens == 6


def test_user_is_served_by_another_pool_when_one_dies(world):
    world.report(world.oregon, running=8)
    world.paris.script.append(world.reply("hello", die_after=3))
    world.oregon.script.append(world.reply("lo"))
    assert world.ask("user-key", "x").choices[0].message.content == "hello"
    (chat,) = world.wait_until(world.ledger.user_chats)
    assert (chat.pool, chat.error) == ("oregon", None)


def test_failed_user_chat_is_recorded_with_its_cause(bare_world):
    world = bare_world
    world.start(pool_attempts=1)
    world.paris.script.append(world.reply(error="engine dead"))
    with pytest.raises(openai.InternalServerError):
        world.ask("user-key", "x")
    (chat,) = world.wait_until(world.ledger.user_chats)
    assert (chat.ttft_s, chat.tokens, chat.error) == (None, 0, "answer_lost")


def test_user_who_leaves_frees_the_pool(world):
    world.paris.script.append(world.reply("hello", stall_after=2))
    stream = world.ask("user-key", "x", stream=True)
    next(stream)
    stream.close()
    world.wait_until(lambda: world.paris.dropped)
    (chat,) = world.wait_until(world.ledger.user_chats)
    assert chat.error == USER_LEFT


def test_stream_stays_open_through_a_silent_proxy(bare_world):
    import httpx

    world = bare_world
    world.start(keep_alive_s=0.05)
    world.paris.script.append(world.reply("hello", stall_after=0))
    headers = {"Authorization": "Bearer user-key"}
    body = {"messages": [{"role": "user", "content": "x"}], "stream": True}
    url = f"{world.url}/v1/chat/completions"
    with httpx.stream("POST", url, headers=headers, json=body, timeout=20) as answer:
        lines = answer.iter_lines()
        while next(lines) != ": waiting":
            pass
        world.paris.release()
        assert list(lines)[-2:] == ["data: [DONE]", ""]
