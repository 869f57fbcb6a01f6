"""Requests for leases that are held open are bounded."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor


def ask(w, key: str = "worker-key", wait_s: float = 30.0):
    return w.post("/v1/leases", {"worker": "w", "wait_s": wait_s}, key)


def waiting(w) -> int:
    return sum(len(queue) for queue in w.controller.leases._waiting.values())


def test_one_more_than_may_wait_is_told_when_to_come_again(world):
    w = world(max_waiting=2, max_wait_s=30.0)
    with ThreadPoolExecutor(2) as others:
        held = [others.submit(ask, w) for _ in range(2)]
        w.until(lambda: waiting(w) == 2)
        refused = ask(w)
        assert refused.status_code == 429 and int(refused.headers["retry-after"]) >= 1
        assert "2 requests wait for a lease already" in refused.json()["error"]
        w.pool()
        w.train()
        assert [future.result().status_code for future in held] == [200, 200]
    assert ask(w).status_code == 200, "and there is room again"


def test_a_tenant_may_not_fill_the_queue(world):
    w = world(max_waiting=100)
    added = w.post("/v1/tenants", {"name": "acme", "max_open": 1}, "admin-key").json()
    with ThreadPoolExecutor(2) as others:
        held = others.submit(ask, w, added["key"])
        w.until(lambda: waiting(w) == 1)
        refused = ask(w, added["key"])
        assert refused.status_code == 429 and "tenant acme wait already" in refused.json()["error"]
        other = others.submit(ask, w)
        w.until(lambda: waiting(w) == 2)
        w.pool()
        w.train()
        assert held.result().status_code == other.result().status_code == 200
