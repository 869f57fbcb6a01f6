"""A rollout function behind the push app, called by the bridge: real controller, real HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest
from playground import play, site, speak

from tradewind.envs.push import push_app
from tradewind.types import Lease, Outcome
from tradewind.worker import bridge
from tradewind.worker.client import ControllerClient
from tradewind.worker.config import PushConfig
from tradewind.worker.customer import Customer, Unplayable
from tradewind.worker.egress import Egress, Rules
from tradewind.worker.worker import Worker

SECRET = "a-shared-secret-of-some-length"
FAST = {"poll_s": 0.02, "lease_s": 5.0, "retry_s": 0.01, "wait_s": 0.2, "allow_private": True}


def a_lease(seconds: float = 60.0, **changes) -> Lease:
    fields = {"rollout_id": "g000000-r0", "task_id": "t", "input": {"q": "x"}}
    fields |= {"base_url": "http://x/v1", "model": "m", "model_key": "mk-0123456789"}
    fields |= {"result_key": "rk", "deadline": time.time() + seconds, "heartbeat_s": 1.0}
    return Lease(**{**fields, **changes})


def customer_at(url: str, secret: str = SECRET, **settings) -> tuple[Egress, Customer]:
    egress = Egress(url, Rules(allow_private=True))
    return egress, Customer(egress, ("k1", secret), PushConfig(**{**FAST, **settings}))


def outcome_of(serve, env, lease: Lease | None = None, **settings) -> Outcome:
    """What the bridge reports of one lease."""

    async def once() -> Outcome:
        async with serve(push_app(env, {"k1": SECRET})) as url:
            egress, customer = customer_at(url, **settings)
            async with egress:
                return await customer.play(lease or a_lease())

    return asyncio.run(once())


class Stuck:
    """A rollout that goes on until it is ended."""

    def __init__(self) -> None:
        self.started, self.ended = asyncio.Event(), asyncio.Event()

    async def rollout(self, task, policy) -> Outcome:
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()


async def answers(task, policy) -> Outcome:
    return Outcome(status="completed", artefacts={**task, "key": policy.api_key})


def test_leases_are_played_by_the_customers_server_and_reported(tmp_path, serve):
    async def scenario() -> None:
        async with site(tmp_path / "l.sqlite") as s, serve(push_app(speak, {"k1": SECRET})) as url:
            egress, customer = customer_at(url)
            config = PushConfig(**FAST)
            async with egress, ControllerClient(s.url, "worker-key", config) as client:
                bridge = Worker(customer.play, client, config)
                running = asyncio.create_task(bridge.run())
                await s.until(lambda: s.finished() == 12)
                bridge.stop()
                await running
            claimed = s.ledger.claim_finished("g", 100, time.time(), 60.0)
            for finished in claimed:
                assert finished.outcome.artefacts == {"said": finished.task.input["q"].upper()}

    play(scenario)


def test_an_outcome_comes_back_without_the_model_key(serve):
    outcome = outcome_of(serve, answers)
    assert outcome.artefacts == {"q": "x", "key": "[removed: the model key]"}


def test_a_failed_rollout_bears_its_cause(serve):
    async def broken(task, policy):
        raise KeyError("sku")

    outcome = outcome_of(serve, broken)
    assert outcome.status == "env_error" and outcome.detail == "KeyError: 'sku'"


def test_a_wrong_secret_is_the_environments_error_with_a_sentence(serve):
    outcome = outcome_of(serve, answers, secret="another-secret-of-some-length")
    assert outcome.status == "env_error" and "signature does not fit" in outcome.detail


def test_the_deadline_is_the_agents_limit(serve):
    async def endless(task, policy):
        await asyncio.Event().wait()

    outcome = outcome_of(serve, endless, a_lease(0.2))
    assert outcome.status == "agent_limit"


def test_a_server_that_is_away_is_waited_for_and_then_null(serve):
    async def scenario() -> None:
        async with serve(push_app(answers, {"k1": SECRET})) as url:
            pass
        egress, customer = customer_at(url, unreachable_s=0.05)
        async with egress:
            outcome = await customer.play(a_lease())
        assert outcome.status == "env_error" and "cannot be reached" in outcome.detail

    asyncio.run(scenario())


def test_a_call_that_hangs_is_asked_again_and_does_not_end_the_rollout(serve):
    app, calls = push_app(answers, {"k1": SECRET}), []

    async def hangs_once(scope, receive, send):
        if scope["type"] == "http":
            calls.append(scope["path"])
            if len(calls) == 1:
                await asyncio.Event().wait()
        await app(scope, receive, send)

    async def scenario() -> None:
        async with serve(hangs_once) as url:
            egress = Egress(url, Rules(allow_private=True, max_seconds=0.3))
            customer = Customer(egress, ("k1", SECRET), PushConfig(**FAST))
            async with egress:
                assert (await customer.play(a_lease())).status == "completed"
        assert calls[:2] == ["/rollouts", "/rollouts"]

    asyncio.run(scenario())


def test_a_lost_lease_cancels_the_rollout_at_the_customers_server(serve):
    stuck = Stuck()

    async def scenario() -> None:
        async with serve(push_app(stuck.rollout, {"k1": SECRET})) as url:
            egress, customer = customer_at(url)
            async with egress:
                playing = asyncio.create_task(customer.play(a_lease()))
                await stuck.started.wait()
                playing.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await playing
                await asyncio.wait_for(stuck.ended.wait(), 30)

    asyncio.run(scenario())


def test_a_bridge_that_died_leaves_no_orphan(serve):
    """OpenEnv#991: 30 orphan environments for 25 hours."""
    stuck = Stuck()

    async def scenario() -> None:
        async with serve(push_app(stuck.rollout, {"k1": SECRET})) as url:
            egress, customer = customer_at(url, lease_s=0.2)
            async with egress:
                await customer._call("POST", "/rollouts", body(customer))
                await asyncio.wait_for(stuck.ended.wait(), 30)
                progress = await customer._call("GET", "/rollouts/g000000-r0")
                assert progress.state == "expired"

    asyncio.run(scenario())


def body(customer: Customer, **changes) -> bytes:
    return customer._assignment(a_lease(**changes)).model_dump_json().encode()


async def until_running(customer: Customer) -> None:
    while True:
        with contextlib.suppress(Unplayable):
            await customer._try("GET", "/rollouts/g000000-r0", b"")
            return
        await asyncio.sleep(0.01)


def test_a_full_server_says_429_and_forgets_only_what_is_over(serve):
    release = asyncio.Event()

    async def waits(task, policy):
        await release.wait()
        return Outcome(status="completed")

    async def scenario() -> None:
        app = push_app(waits, {"k1": SECRET}, max_running=1, max_kept=1)
        async with serve(app) as url:
            egress, customer = customer_at(url, unreachable_s=0.5)
            async with egress:
                first = asyncio.create_task(customer.play(a_lease()))
                await until_running(customer)
                other = body(customer, rollout_id="g000000-r1")
                assert await customer._try("POST", "/rollouts", other) == ("status 429", 5.0)
                release.set()
                assert (await first).status == "completed"
                for index in (1, 2):
                    lease = a_lease(rollout_id=f"g000000-r{index}")
                    assert (await customer.play(lease)).status == "completed"
                forgotten = await customer._try("GET", "/rollouts/g000000-r2", b"")
                assert forgotten[0].state == "succeeded"
                with pytest.raises(Unplayable, match="404"):
                    await customer._try("GET", "/rollouts/g000000-r0", b"")

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "variables,url,says",
    [
        ({}, "https://their.host", "TRADEWIND_PUSH_KEY"),
        ({"TRADEWIND_PUSH_KEY": f"k1:{SECRET}"}, "https://their.host", "TRADEWIND_WORKER_KEY"),
        (
            {"TRADEWIND_PUSH_KEY": f"k1:{SECRET}", "TRADEWIND_WORKER_KEY": "w"},
            "https://me:it@their.host",
            "credentials",
        ),
    ],
)
def test_a_bridge_that_cannot_start_says_why(monkeypatch, capsys, variables, url, says):
    for name in ("TRADEWIND_PUSH_KEY", "TRADEWIND_WORKER_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert bridge.main([url, "--controller", "http://127.0.0.1:9"]) == 2
    said = capsys.readouterr().err
    assert says in said and SECRET not in said and "Traceback" not in said
