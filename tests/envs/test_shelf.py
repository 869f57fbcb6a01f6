"""A push server that starts again knows what it had played, and which requests it had seen."""

from __future__ import annotations

import asyncio
import time

import httpx
import pytest
from pushed import assignment

from tradewind.envs.host import RolloutHost
from tradewind.envs.push import push_app
from tradewind.envs.secrets import Secrets
from tradewind.envs.shelf import LOST, Shelf
from tradewind.envs.signature import BadSignature, SignatureCheck, sign
from tradewind.types import Conflict, Outcome, UserError
from tradewind.types.assignment import RolloutState

KEY = ("k1", "a-shared-secret-of-some-length")


async def plays(task, policy) -> Outcome:
    if task["q"] == "for ever":
        await asyncio.Event().wait()
    return Outcome(status="completed", artefacts=dict(task))


def host_on(file) -> RolloutHost:
    return RolloutHost(plays, Secrets({}), max_running=4, max_kept=2, shelf=Shelf(file))


def test_rollouts_are_known_after_a_kill_and_none_is_played_twice(tmp_path):
    file = tmp_path / "push.sqlite"

    async def scenario() -> None:
        killed = host_on(file)
        killed.create(assignment("done"))
        killed.create(assignment("running", "for ever"))
        while killed.get("done").state is not RolloutState.SUCCEEDED:
            await asyncio.sleep(0)
        started = host_on(file)
        assert started.get("done") == killed.get("done")
        lost = started.get("running")
        assert (lost.state, lost.outcome.detail) == (RolloutState.FAILED, LOST)
        assert not lost.outcome.status.gradable, "it is null, and is played again elsewhere"
        for name, question in (("done", "x"), ("running", "for ever")):
            asked = assignment(name, question)
            with pytest.raises(Conflict):  # another deadline is another body
                started.create(asked)
        assert started.running == 0
        await killed.close()

    asyncio.run(scenario())
    assert b"the-model-key" not in b"".join(p.read_bytes() for p in tmp_path.iterdir())


def test_repeated_body_after_a_restart_starts_nothing(tmp_path):
    async def scenario() -> None:
        asked, first = assignment("done"), host_on(tmp_path / "push.sqlite")
        first.create(asked)
        while not first.get("done").state.over:
            await asyncio.sleep(0)
        second = host_on(tmp_path / "push.sqlite")
        progress, new = second.create(asked)
        assert (progress.state, new) == (RolloutState.SUCCEEDED, False)

    asyncio.run(scenario())


def test_forgotten_rollouts_are_forgotten_on_the_shelf_too(tmp_path):
    async def scenario() -> None:
        host = host_on(tmp_path / "push.sqlite")
        for number in range(9):
            host.create(assignment(f"r{number}"))
            while not host.get(f"r{number}").state.over:
                await asyncio.sleep(0)
        again = host_on(tmp_path / "push.sqlite")
        known = [n for n in range(9) if again.get(f"r{n}") is not None]
        assert known == [n for n in range(9) if host.get(f"r{n}") is not None] == [3, 4, 5, 6, 7, 8]

    asyncio.run(scenario())


def test_replay_is_refused_by_the_next_life_and_forgotten_after_two_windows(tmp_path):
    file, now = tmp_path / "push.sqlite", time.time()
    headers = sign(KEY, "GET", "/rollouts/r", b"", at=now)

    def check_at(at: float) -> SignatureCheck:
        return SignatureCheck(dict([KEY]), clock=lambda: at, shelf=Shelf(file))

    check_at(now).check("GET", "/rollouts/r", headers, b"")
    with pytest.raises(BadSignature, match="used before"):
        check_at(now + 1).check("GET", "/rollouts/r", headers, b"")
    later = now + 1000
    check_at(later).check("GET", "/r", sign(KEY, "GET", "/r", b"", at=later), b"")
    assert Shelf(file).new_nonce(f"k1 {headers['Tradewind-Nonce']}", later, later)


def test_server_on_a_state_file_refuses_over_http_what_its_earlier_life_had_seen(tmp_path, serve):
    body = assignment("r").model_dump_json().encode()
    headers = sign(KEY, "POST", "/rollouts", body)

    async def ask() -> int:
        app = push_app(plays, dict([KEY]), state=tmp_path / "push.sqlite")
        async with serve(app) as url, httpx.AsyncClient() as client:
            answer = await client.post(f"{url}/rollouts", content=body, headers=headers)
            return answer.status_code

    assert [asyncio.run(ask()), asyncio.run(ask())] == [201, 401]


def test_state_that_is_no_file_of_ours_is_a_sentence(tmp_path):
    (tmp_path / "text").write_text("hello, this is not a database at all, is it?" * 50)
    with pytest.raises(UserError, match="--state"):
        Shelf(tmp_path / "text")
