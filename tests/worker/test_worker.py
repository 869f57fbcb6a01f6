"""A worker against a real controller, with a toy environment and a small OpenAI endpoint."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from lossy_proxy import LossyProxy
from playground import play, shout, site, speak, worker

from tradewind.ledger.groups import reject
from tradewind.ledger.keys import digest
from tradewind.ledger.rollouts import LeaseTerms
from tradewind.ledger.tenants import Tenant
from tradewind.types import Outcome, UserError
from tradewind.worker.client import ControllerClient
from tradewind.worker.config import WorkerConfig
from tradewind.worker.play import player
from tradewind.worker.worker import Worker


def test_rollouts_are_played_and_reported(tmp_path):
    async def scenario() -> None:
        async with site(tmp_path / "l.sqlite") as s, worker(s.url, shout):
            await s.until(lambda: s.finished() == 12)
            claimed = s.ledger.claim_finished("g", 100, time.time(), 60.0)
            for finished in claimed:
                assert finished.outcome.artefacts == {"said": finished.task.input["q"].upper()}

    play(scenario)


def test_a_controller_that_is_away_for_a_while_loses_nothing(tmp_path):
    release = asyncio.Event()

    async def slow(task, policy) -> Outcome:
        outcome = await speak(task, policy)
        await release.wait()
        return outcome

    async def scenario() -> None:
        tried = asyncio.Event()
        async with (
            site(tmp_path / "l.sqlite") as s,
            worker(s.url, slow, concurrency=4) as working,
        ):
            await s.until(lambda: s.ledger.counts().turns.get("done") == 4)
            await s.stop_controller()
            post = working._client._post

            async def watched(path, *args, **kwargs):
                try:
                    return await post(path, *args, **kwargs)
                finally:
                    if path.endswith("outcome"):
                        tried.set()

            working._client._post = watched
            release.set()
            await tried.wait()  # an outcome has met a closed port
            await s.start_controller()
            await s.until(lambda: s.finished() == 12)
            assert s.ledger.events() == [], "no lease was lost"

    play(scenario)


def test_a_lost_lease_ends_the_agent_and_reports_nothing(tmp_path):
    ended = []

    async def stuck(task, policy) -> Outcome:
        await speak(task, policy)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(task["q"])

    async def scenario() -> None:
        async with (
            site(tmp_path / "l.sqlite", heartbeat_s=0.05) as s,
            worker(s.url, stuck, concurrency=2, grace_s=0.0),
        ):
            await s.until(lambda: s.ledger.counts().turns.get("done") == 2)
            with s.ledger.write() as conn:
                reject(conn, "g000000", "given up by the test", wait=True)
            await s.until(lambda: len(ended) == 2)
            await s.until(lambda: s.ledger.counts().turns.get("done") == 4)
            assert s.finished() == 0, "an agent that was ended reports nothing"

    play(scenario)


def test_a_worker_that_is_stopped_finishes_or_hands_back(tmp_path):
    hang = asyncio.Event()

    async def sometimes_stuck(task, policy) -> Outcome:
        outcome = await speak(task, policy)
        if not hang.is_set():
            hang.set()
            await asyncio.Event().wait()
        return outcome

    async def scenario() -> None:
        async with site(tmp_path / "l.sqlite") as s:
            async with worker(s.url, sometimes_stuck, concurrency=1, grace_s=0.05):
                await s.until(lambda: s.ledger.counts().turns.get("done") == 1)
            (handed_back,) = s.ledger.claim_finished("g", 100, time.time(), 60.0)
            assert handed_back.outcome.status == "infra_error"
            assert handed_back.outcome.detail == "the worker was stopped"

    play(scenario)


def test_a_rollout_without_a_call_of_the_model_is_the_environments_error(tmp_path):
    async def lazy(task, policy) -> Outcome:
        return Outcome(status="completed", artefacts={"said": "Q"})

    async def scenario() -> None:
        async with site(tmp_path / "l.sqlite") as s, worker(s.url, lazy):
            await s.until(lambda: s.finished() == 12)
            claimed = s.ledger.claim_finished("g", 100, time.time(), 60.0)
            assert {f.outcome.status.value for f in claimed} == {"env_error"}

    play(scenario)


def test_a_wrong_key_is_a_user_error(tmp_path):
    async def scenario() -> None:
        async with site(tmp_path / "l.sqlite") as s:
            config = WorkerConfig(wait_s=0.1)
            async with ControllerClient(s.url, "wrong", config) as client:
                with pytest.raises(UserError, match="TRADEWIND_WORKER_KEY"):
                    await Worker(player(shout), client, config).run()

    play(scenario)


ENV_FILE = """
import httpx
from tradewind.types import Outcome

async def rollout(task, policy):
    async with httpx.AsyncClient(base_url=policy.base_url) as client:
        answer = await client.post("/chat/completions",
            headers={"authorization": "Bearer " + policy.api_key},
            json={"model": policy.model, "messages": [{"role": "user", "content": task["q"]}]})
    return Outcome(status="completed", artefacts=answer.json())
"""


def start_process(
    folder: Path,
    url: str,
    key: str,
    source: str = ENV_FILE,
    variables: dict[str, str] | None = None,
) -> subprocess.Popen[str]:
    (folder / "toy_env.py").write_text(source)
    argv = [sys.executable, "-m", "tradewind.worker", f"{folder}/toy_env.py"]
    argv += ["--controller", url, "--concurrency", "2"]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TRADEWIND_WORKER_KEY": key}
    env |= variables or {}
    return subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, env=env)


def test_the_process_works_until_sigterm_and_refuses_a_wrong_key_with_a_sentence(tmp_path):
    async def scenario() -> None:
        async with site(tmp_path / "l.sqlite") as s:
            good = start_process(tmp_path, s.url, "worker-key")
            wrong = start_process(tmp_path, s.url, "wrong")
            _out, said = await asyncio.to_thread(wrong.communicate)
            assert wrong.returncode == 2
            assert "refuses this worker" in said and "Traceback" not in said
            await s.until(lambda: s.finished() == 12)
            good.send_signal(signal.SIGTERM)
            _out, said = await asyncio.to_thread(good.communicate)
            assert good.returncode == 0 and "Traceback" not in said

    play(scenario)


def test_a_killed_workers_rollouts_are_played_again(tmp_path):
    async def scenario() -> None:
        async with site(tmp_path / "l.sqlite") as s:
            await s.until(lambda: s.ledger.outstanding() == 6)
            terms = LeaseTerms(ttl_s=30.0, deadline_s=100.0, max_running=100)
            long_ago = time.time() - 1000.0
            victim = await asyncio.to_thread(s.ledger.lease_next, "killed", long_ago, terms, ())
            async with worker(s.url, speak):
                await s.until(lambda: s.finished() == 12)
            assert [e.subject for e in s.ledger.events()] == [victim.rollout_id]

    play(scenario)


def test_a_rollout_goes_on_through_a_network_drop_and_its_outcome_arrives_once(tmp_path):
    """OpenRLHF's and verifiers' users lose loaded workers to a missed heartbeat (PR#1599)."""
    release = asyncio.Event()
    calls: list[str] = []

    async def slow(task, policy) -> Outcome:
        outcome = await speak(task, policy)
        calls.append(policy.api_key)
        await release.wait()
        return outcome

    async def scenario() -> None:
        async with (
            site(tmp_path / "l.sqlite", heartbeat_s=0.02) as s,
            LossyProxy(s.port) as proxy,
            worker(proxy.url, slow, concurrency=2),
        ):
            await s.until(lambda: len(calls) == 2)
            proxy.is_down = True
            proxy.cut()
            release.set()
            assert s.finished() == 0
            proxy.lose_after = b"/outcome"  # and once it is up, the first answer is lost, too
            proxy.is_down = False
            await proxy.lost.wait()
            await s.until(lambda: s.finished() == 12)
            assert len(calls) == len(set(calls)) == 12, "nothing was played twice"
            assert s.ledger.events() == [], "no lease was lost"

    play(scenario)


def test_a_lease_that_was_lost_on_the_way_is_not_burnt(tmp_path):
    async def scenario() -> None:
        async with site(tmp_path / "l.sqlite") as s, LossyProxy(s.port) as proxy:
            proxy.lose_after = b"/v1/leases"
            async with worker(proxy.url, speak, concurrency=1, wait_s=5.0):
                await proxy.lost.wait()
                await s.until(lambda: s.finished() == 12)
            assert s.ledger.counts().rollouts == {"finished": 12}, "none is held by nobody"

    play(scenario)


CURIOUS_ENV = """
import os, subprocess, httpx
from tradewind.types import Outcome

async def rollout(task, policy):
    async with httpx.AsyncClient(base_url=policy.base_url) as client:
        await client.post("/chat/completions",
            headers={"authorization": "Bearer " + policy.api_key},
            json={"model": policy.model, "messages": [{"role": "user", "content": task["q"]}]})
    shell = subprocess.run("env", shell=True, capture_output=True, text=True).stdout
    if task["q"] in ("q0", "q1"):
        raise KeyError(f"refused for {os.environ['SHOP_API_KEY']}")
    return Outcome(status="completed", artefacts={"env": shell, "worker": "tw" in shell})
"""


def test_nothing_of_the_workers_environment_leaves_it(tmp_path):
    secrets = {"SHOP_API_KEY": "shop-secret-123", "DB_PASSWORD": "correct-horse-battery"}

    async def scenario() -> None:
        async with site(tmp_path / "l.sqlite") as s, LossyProxy(s.port) as proxy:
            process = start_process(tmp_path, proxy.url, "worker-key", CURIOUS_ENV, secrets)
            await s.until(lambda: s.finished() == 12)
            process.send_signal(signal.SIGTERM)
            _out, said = await asyncio.to_thread(process.communicate)
            for secret in secrets.values():
                assert secret.encode() not in proxy.sent
            assert b"[removed: SHOP_API_KEY]" in proxy.sent and "SHOP_API_KEY" in said
            keyed = proxy.sent.count(b"worker-key")
            assert keyed == proxy.sent.count(b"POST /v1/leases"), "only to ask for a lease"
            assert b"TRADEWIND_WORKER_KEY" not in proxy.sent, "an agent's shell does not inherit it"

    play(scenario)


def test_a_tenant_over_its_quota_waits_as_long_as_it_is_told(tmp_path):
    async def scenario() -> None:
        async with site(tmp_path / "l.sqlite") as s:
            s.ledger.add_tenant(Tenant(name="acme", max_open=1), digest("acme-key"))
            release = asyncio.Event()

            async def slow(task, policy) -> Outcome:
                outcome = await speak(task, policy)
                await release.wait()
                return outcome

            async with worker(s.url, slow, key="acme-key") as working:
                refused = asyncio.Event()

                async def watch(answer) -> None:
                    if answer.status_code == 429:
                        refused.set()

                working._client._http.event_hooks = {"response": [watch]}
                await refused.wait()
                assert s.ledger.counts().rollouts["running"] == 1
                release.set()
                await s.until(lambda: s.finished() >= 2)

    play(scenario)


def test_a_function_that_blocks_the_event_loop_keeps_its_lease(tmp_path):
    """verifiers PR#1599: a 30 s heartbeat killed loaded but healthy workers."""

    async def scenario() -> None:
        settings = {"heartbeat_s": 0.1, "lease_ttl_s": 0.5, "max_staleness": 0}
        async with site(tmp_path / "l.sqlite", groups_per_step=1, **settings) as s:
            await s.until(lambda: s.ledger.outstanding() == 1)
            process = start_process(tmp_path, s.url, "worker-key", BLOCKING_ENV.format(seconds=1.0))
            await s.until(lambda: s.finished() == 2)
            process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(process.communicate)
            assert s.ledger.events() == [], "no lease was lost"

    play(scenario)


def test_a_function_that_blocks_beyond_the_deadline_is_ended_as_it_stands(tmp_path):
    async def scenario() -> None:
        settings = {"rollout_deadline_s": 2.0, "lease_ttl_s": 60.0, "max_staleness": 0}
        async with site(tmp_path / "l.sqlite", groups_per_step=1, **settings) as s:
            process = start_process(tmp_path, s.url, "worker-key", BLOCKING_ENV.format(seconds=600))
            await s.until(lambda: s.finished() >= 1)
            process.kill()
            await asyncio.to_thread(process.communicate)
            ended = s.ledger.claim_finished("g", 100, time.time(), 60.0)[0].outcome
            assert ended.status == "agent_limit", "the policy may have caused it: graded"
            assert "blocked its event loop" in ended.detail

    play(scenario)


BLOCKING_ENV = """
import time, httpx
from tradewind.types import Outcome

async def rollout(task, policy):
    async with httpx.AsyncClient(base_url=policy.base_url) as client:
        await client.post("/chat/completions",
            headers={{"authorization": "Bearer " + policy.api_key}},
            json={{"model": policy.model, "messages": [{{"role": "user", "content": task["q"]}}]}})
    time.sleep({seconds})
    return Outcome(status="completed")
"""
