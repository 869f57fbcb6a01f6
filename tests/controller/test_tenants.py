"""Tenants of one run: keys of their own, quotas, and no sight of each other."""

from __future__ import annotations

import threading
import time

import pytest

from tradewind.ledger.rollouts import LeaseTerms
from tradewind.ledger.tenants import OverQuota, Tenant


def add(w, name: str, **quotas) -> str:
    answer = w.post("/v1/tenants", {"name": name, **quotas}, "admin-key")
    assert answer.status_code == 201, answer.text
    return answer.json()["key"]


def lease(w, key: str, wait_s: float = 30.0, request: str | None = None):
    body = {"worker": "theirs", "wait_s": wait_s, "request": request}
    return w.post("/v1/leases", body, key)


@pytest.fixture
def w(world):
    made = world(group_size=4, groups_per_step=2)
    made.pool()
    made.train()
    return made


def test_a_tenants_key_leases_and_is_in_the_ledger_as_a_digest_only(w):
    key = add(w, "acme")
    assert lease(w, key).status_code == 200
    assert key.encode() not in w.path.read_bytes()
    assert w.post("/v1/tenants", {"name": "acme"}, "admin-key").status_code == 409
    assert w.post("/v1/tenants", {"name": "Acme Inc."}, "admin-key").status_code == 422
    assert w.post("/v1/tenants", {"name": "other"}, key).status_code == 401


def test_more_open_leases_than_the_quota_are_refused_until_one_ends(w):
    key = add(w, "acme", max_open=2)
    first = lease(w, key).json()
    assert lease(w, key).status_code == 200
    refused = lease(w, key)
    assert refused.status_code == 429 and int(refused.headers["retry-after"]) >= 1
    assert "holds 2 open leases and may hold 2" in refused.json()["error"]
    w.chat(first)
    assert w.report(first).status_code == 200
    assert lease(w, key).status_code == 200
    (use,) = w.status()["tenants"]
    assert use["open"] == 2 and use["last_minute"] == 3


def test_leases_per_minute_are_bounded_by_a_sliding_window(w):
    tenant = Tenant(name="acme", per_minute=2)
    w.ledger.add_tenant(tenant, "digest")
    terms = LeaseTerms(ttl_s=1e6, deadline_s=1e6, max_running=100, tenant=tenant)
    w.until(lambda: w.ledger.outstanding() > 0)
    at = time.time()
    for moment in (at, at + 20):
        assert w.ledger.lease_next("w", moment, terms, ()) is not None
    with pytest.raises(OverQuota, match="took 2 leases within a minute") as refused:
        w.ledger.lease_next("w", at + 30, terms, ())
    assert refused.value.retry_after_s == pytest.approx(30, abs=0.01)
    assert w.ledger.lease_next("w", at + 61, terms, ()) is not None


def test_one_tenant_cannot_see_renew_or_report_anothers_rollout(w):
    acme, rival = add(w, "acme"), add(w, "rival")
    mine, theirs = lease(w, acme).json(), lease(w, rival).json()
    path = f"/v1/rollouts/{mine['rollout_id']}"
    headers = {"authorization": f"Bearer {acme}"}
    assert w.http.get(path, headers=headers).json()["state"] == "running"
    for key in (rival, "worker-key"):
        answer = w.http.get(path, headers={"authorization": f"Bearer {key}"})
        assert answer.status_code == 404, "not even that it exists"
    for key in (rival, theirs["result_key"], theirs["model_key"]):
        for verb in ("heartbeat", "outcome", "cancel"):
            answer = w.post(f"{path}/{verb}", {"status": "completed"}, key)
            assert answer.status_code == 401, (verb, key)


def test_a_tenant_is_given_its_own_kinds_of_tasks_only_and_nobody_waits_behind_it(w):
    picky = add(w, "picky", kinds=["refunds"])
    assert lease(w, picky, wait_s=0.1).status_code == 204, "every task is of kind k"
    waiting = threading.Thread(target=lease, args=(w, picky, 2.0))
    waiting.start()
    assert lease(w, "worker-key").status_code == 200
    waiting.join()


def test_a_rotated_key_replaces_the_old_one_and_a_revoked_tenant_is_out(w):
    old = add(w, "acme")
    new = w.post("/v1/tenants/acme/key", key="admin-key").json()["key"]
    assert lease(w, old).status_code == 401
    held = lease(w, new).json()
    for _ in range(2):
        answer = w.http.delete("/v1/tenants/acme", headers={"authorization": "Bearer admin-key"})
        assert answer.status_code == 204
    assert lease(w, new).status_code == 401
    w.chat(held)
    assert w.report(held).status_code == 200, "what it holds may end"
    assert w.post("/v1/tenants/nobody/key", key="admin-key").status_code == 404


def test_a_lease_whose_answer_was_lost_is_given_again_to_the_same_request(w):
    acme, rival = add(w, "acme"), add(w, "rival")
    first = lease(w, acme, request="r1").json()
    again = lease(w, acme, request="r1").json()
    assert again["rollout_id"] == first["rollout_id"] and again["deadline"] == first["deadline"]
    assert lease(w, rival, request="r1").json()["rollout_id"] != first["rollout_id"]
    w.chat(again)
    assert w.report(again).status_code == 200
    assert lease(w, acme, request="r1").json()["rollout_id"] != first["rollout_id"]


def test_a_cancelled_rollout_is_null_and_refilled(w):
    held = w.lease()
    path = f"/v1/rollouts/{held['rollout_id']}/cancel"
    for _ in range(2):
        answer = w.post(path, {"reason": "the product is in maintenance"}, held["result_key"])
        assert answer.json()["status"] == "infra_error"
    assert w.post(path, {"reason": "another"}, held["result_key"]).status_code == 409
    assert w.report(held).status_code == 409
