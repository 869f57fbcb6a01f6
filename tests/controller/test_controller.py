"""Leases, outcomes, staleness, refill and status over real HTTP."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import closing

import pytest

from tradewind.controller.config import ControllerConfig
from tradewind.controller.controller import Controller
from tradewind.ledger.ledger import Ledger
from tradewind.pool.reporter import ReportAnswer
from tradewind.types import Stalled
from tradewind.types.trust import Pause


def test_a_lease_holds_what_the_agent_needs_and_no_answer(world):
    w = world(gateway_url="http://gateway/v1", model="policy")
    w.pool()
    w.train()
    lease = w.lease()
    assert lease["base_url"] == "http://gateway/v1" and lease["model"] == "policy"
    assert "q" in lease["input"] and "secret" not in str(lease)
    assert lease["model_key"] != lease["result_key"]


@pytest.mark.parametrize(
    "path,body,name",
    [
        ("/v1/leases", {"worker": "w"}, "worker"),
        ("/v1/pools/report", {}, "pool"),
        ("/v1/evals", {"name": "x", "version": 0}, "admin"),
        ("/v1/training", {"open": True}, "admin"),
    ],
)
def test_a_wrong_key_is_a_sentence_that_names_the_right_one(world, path, body, name):
    w = world()
    for key in ("", "wrong", "worker-keyx"):
        answer = w.post(path, body, key)
        assert answer.status_code == 401
        assert f"the {name} key is wrong" in answer.json()["error"]


def test_the_agents_key_cannot_set_a_reward(world):
    w = world()
    w.pool()
    w.train()
    lease = w.lease()
    w.chat(lease)
    answer = w.report(lease, key="model_key")
    assert answer.status_code == 401 and "result key" in answer.json()["error"]
    other = w.lease()
    answer = w.post(f"/v1/rollouts/{lease['rollout_id']}/outcome", {}, other["result_key"])
    assert answer.status_code == 401


def test_outcomes_are_idempotent_and_end_the_rollout(world):
    w = world()
    w.pool()
    w.train()
    lease = w.lease()
    heartbeat = f"/v1/rollouts/{lease['rollout_id']}/heartbeat"
    assert w.post(heartbeat, key=lease["result_key"]).status_code == 204
    w.chat(lease)
    assert w.report(lease, artefacts={"sql": "x"}).json()["status"] == "completed"
    assert w.report(lease, artefacts={"sql": "x"}).status_code == 200
    assert w.report(lease, artefacts={"sql": "y"}).status_code == 409
    assert w.post(heartbeat, key=lease["result_key"]).status_code == 409


def test_a_body_that_does_not_fit_is_a_sentence(world):
    w = world(max_body_bytes=2000)
    w.pool()
    w.train()
    lease = w.lease()
    answer = w.report(lease, reward=1.0)
    assert answer.status_code == 422 and "reward" in answer.json()["error"]
    assert w.report(lease, status="won").status_code == 422
    assert w.report(lease, detail="x" * 3000).status_code == 413
    assert w.post("/v1/leases", {"worker": ""}, "worker-key").status_code == 422


def test_rollouts_become_a_step_and_room_for_new_groups(world):
    w = world(max_staleness=0)
    w.pool()
    w.train()
    leases = [w.rollout(float(i % 2)) for i in range(4)]
    assert len({lease["rollout_id"] for lease in leases}) == 4
    step = w.commit_step()
    assert step.group_ids == ("g000000", "g000001")
    assert w.lease(wait_s=0.05) is None, "synchronous: the pool still serves the old version"
    w.pool(1)
    assert w.lease()["rollout_id"] == "g000002-r0"


@pytest.mark.parametrize("what", ["round", "look"])
def test_a_writer_that_hangs_costs_a_round_or_a_look_and_not_the_controller(world, what):
    w = world(max_running=100)
    whole, hung, again = getattr(w.controller.rounds, what), threading.Event(), threading.Event()

    def one_that_waits_in_vain():
        if not hung.is_set():
            hung.set()
            raise Stalled("another writer of the ledger", owner="another process", seconds=30.0)
        again.set()
        return whole()

    setattr(w.controller.rounds, what, one_that_waits_in_vain)
    assert again.wait(60)
    w.pool()
    w.train()
    assert w.lease(wait_s=30.0) is not None


def test_no_more_groups_are_open_than_staleness_allows(world):
    w = world(max_staleness=1, max_running=100)
    w.pool()
    w.train()
    w.until(lambda: w.ledger.outstanding() == 4)
    for _ in range(8):
        w.rollout()
    w.until(lambda: w.ledger.closed() == 4)
    assert w.lease(wait_s=0.05) is None
    w.commit_step()
    w.until(lambda: w.ledger.outstanding() == 2)
    assert w.lease(wait_s=0.05) is None, "the pool lags by one, which is all that is allowed"
    w.pool(1)
    assert w.lease() is not None
    assert w.ledger.outstanding() == 4


def test_pools_are_told_where_an_alarm_sends_them_and_status_says_so(world):
    w = world()
    assert "order" not in w.pool().json()
    w.ledger.pause_training(Pause(alarm="judged", cause="tone fell", at=1.0, pools=3))
    for name in ("paris", "oregon"):
        answer = w.pool(5, name, pinned=3)
        assert answer.json()["order"] == {"number": 1, "version": 3}
        assert ReportAnswer.model_validate_json(answer.content).order is not None
    shown = w.status()
    assert [pool["pinned"] for pool in shown["pools"]] == [3, 3]
    (wait, *_) = shown["waits"]
    assert "tone fell; pools go back to version 3 (owner: you)" in wait["sentence"]
    w.ledger.resume_training(2.0, "ana")
    assert w.pool().json()["order"] == {"number": 2, "version": None}


def test_no_pool_no_group(world):
    w = world()
    w.train()
    assert w.lease(wait_s=0.05) is None
    assert "no pool has reported yet" in w.status()["waits"][0]["sentence"]
    w.pool(state="starting")
    assert w.lease(wait_s=0.05) is None


def test_a_null_is_refilled_and_too_many_reject_the_group(world):
    w = world(max_refills=1, groups_per_step=1, max_staleness=0)
    w.pool()
    w.train()
    assert [w.rollout(v)["rollout_id"] for v in (None, 1.0, None)] == [
        "g000000-r0",
        "g000000-r1",
        "g000000-r2",
    ]
    again = w.lease()
    assert again["rollout_id"] == "g000001-r0"
    assert again["task_id"] == w.ledger.group("g000000").task_id
    assert any(e["kind"] == "group.rejected" for e in w.status()["events"])


def test_a_lost_lease_is_leased_again_as_a_refill(world):
    w = world(lease_ttl_s=0.2, heartbeat_s=0.1, groups_per_step=1, max_staleness=0, group_size=1)
    w.pool()
    w.train()
    lost = w.lease()
    refill = w.lease()
    assert (lost["rollout_id"], refill["rollout_id"]) == ("g000000-r0", "g000000-r1")
    answer = w.report(lost)
    assert answer.status_code == 409


def test_a_lease_request_waits_for_work_and_gets_it_at_once(world):
    w = world()
    w.pool()
    got = []
    thread = threading.Thread(target=lambda: got.append(w.lease(wait_s=20.0)))
    thread.start()
    w.until(lambda: "w1" in w.controller.rounds.workers)
    w.train()
    thread.join(timeout=20)
    assert got and got[0]["rollout_id"] == "g000000-r0"


def test_closing_training_leaves_its_waiting_rollouts_for_later(world):
    w = world()
    w.pool()
    w.train()
    w.lease()
    w.train(False)
    w.until(lambda: not w.controller.facts.training)
    assert w.lease(wait_s=0.05) is None
    w.train()
    assert w.lease()["rollout_id"] == "g000000-r1"


def test_an_evaluation_goes_first_and_reports_its_interval(world):
    w = world()
    w.pool()
    w.train()
    w.until(lambda: w.ledger.outstanding() > 0)
    body = {"name": "base", "split": "heldout", "version": 0}
    assert w.post("/v1/evals", body, "admin-key").status_code == 202
    assert w.post("/v1/evals", body, "admin-key").status_code == 202
    assert w.post("/v1/evals", {**body, "version": 1}, "admin-key").status_code == 409
    w.until(lambda: w.status()["evals"]["groups"].get("open") == 2)
    assert [w.rollout(v)["task_id"] for v in (1.0, 0.0)] == ["t6", "t7"]
    w.until(lambda: w.get("/v1/evals/base")["finished"])
    result = w.get("/v1/evals/base")
    assert (result["done"], result["total"]) == (2, 2)
    assert result["overall"]["pass_rate"] == 0.5
    assert 0 < result["overall"]["low"] < 0.5 < result["overall"]["high"] < 1
    missing = w.http.get("/v1/evals/x", headers={"authorization": "Bearer admin-key"})
    assert missing.status_code == 404


def test_an_evaluation_waits_for_a_pool_with_its_version_and_says_so(world):
    w = world()
    w.pool(0)
    w.post("/v1/evals", {"name": "later", "version": 5}, "admin-key")
    w.until(lambda: w.status()["evals"]["waiting_for"] == [5])
    assert w.lease(wait_s=0.05) is None
    (wait,) = w.status()["waits"]
    assert wait["owner"] == "pool" and "version 5, pools serve: paris 0" in wait["sentence"]
    w.pool(5)
    assert w.lease() is not None


def test_a_pool_with_another_base_model_is_told_to_stop(world):
    w = world()
    answer = w.pool(base_state_id="other")
    assert answer.status_code == 409
    assert answer.json()["stop"] and "another base model" in answer.json()["error"]
    assert w.status()["pools"] == []


def test_a_killed_controller_is_started_again_and_nothing_is_lost(world):
    w = world(groups_per_step=1, max_staleness=0)
    w.pool()
    w.train()
    lease = w.lease()
    w.stop()
    w.start()
    w.chat(lease)
    assert w.report(lease).status_code == 200
    w.grade(lease, 1.0)
    w.pool()
    assert w.rollout(0.0)["rollout_id"] == "g000000-r1"
    w.commit_step(1)


def test_training_without_training_tasks_is_a_sentence(world, tmp_path):
    from sqlalchemy import update

    from tradewind.ledger import tables

    w = world()
    with w.ledger.write() as conn:
        conn.execute(update(tables.tasks).values(split="heldout"))
    answer = w.train()
    assert answer.status_code == 400 and "no training tasks" in answer.json()["error"]


def test_a_ledger_that_hangs_is_told_to_come_again(world, monkeypatch):
    """503, which a worker takes for `later`; at 400 or 409 it would drop the outcome."""
    w = world()
    w.pool()
    w.train()
    lease = w.lease()
    w.chat(lease)

    def hang(*_args):
        raise Stalled("another writer of the ledger", owner="another process", seconds=30.0)

    with monkeypatch.context() as patched:
        patched.setattr(type(w.served_ledger), "finish", hang)
        answer = w.report(lease, status="completed")
        assert answer.status_code == 503 and "another writer" in answer.text
    assert w.report(lease, status="completed").status_code == 200


def test_a_caller_that_hangs_up_in_the_middle_is_no_error_of_ours(world, capfd):
    """A worker that is killed while it reports; its lease runs out, and the log stays readable."""
    w = world()
    host, port = w.url.removeprefix("http://").split(":")
    head = b"POST /v1/leases HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer worker-key\r\n"
    with socket.create_connection((host, int(port))) as caller:
        caller.sendall(head + b"Content-Length: 100\r\n\r\n{")
    assert w.status()["rollouts"]["leases"] == 0, "the next one is served"
    w.stop()
    assert "Exception in ASGI application" not in capfd.readouterr().err
    w.start()


def test_a_look_at_judges_that_takes_long_holds_up_no_lease(world):
    w = world()
    w.pool()
    begun, over = threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        assert over.wait(60)

    w.controller.rounds.look = slow
    try:
        assert begun.wait(60)
        w.train()
        assert w.lease() is not None
    finally:
        over.set()


def test_a_look_that_fails_ends_the_controller_with_what_was_wrong(tmp_path):
    with closing(Ledger.open(tmp_path / "ledger.sqlite")) as ledger:
        controller = Controller(ControllerConfig(tick_s=0.001), ledger)
        controller.rounds.look = lambda: 1 / 0
        with pytest.raises(ZeroDivisionError):
            asyncio.run(controller.run())
