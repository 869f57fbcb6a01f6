"""Tenants, repeated requests, short groups and nulls by task, in the ledger itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tradewind.ledger.tenants import OverQuota, Tenant
from tradewind.types import Conflict

ACME = Tenant(name="acme", max_open=2, per_minute=3, kinds=("k1",))


def lease(play, tenant: Tenant | None = None, request: str | None = None):
    terms = replace(play.terms, tenant=tenant, request=request)
    return play.ledger.lease_next("w", play.now, terms, ())


@pytest.fixture
def acme(play):
    play.ledger.add_tenant(ACME, "digest")
    for _ in range(4):
        play.ledger.open_training_group(2)
    return ACME


def test_a_tenant_is_known_by_its_keys_digest_until_it_is_rotated_or_revoked(play, acme):
    assert play.ledger.tenant_of_key("digest") == acme
    with pytest.raises(Conflict, match="rotate"):
        play.ledger.add_tenant(acme, "other")
    play.ledger.rotate_tenant("acme", "new")
    assert play.ledger.tenant_of_key("digest") is None
    assert play.ledger.tenant_of_key("new") == acme
    play.ledger.revoke_tenant("acme")
    assert play.ledger.tenant_of_key("new") is None
    with pytest.raises(KeyError):
        play.ledger.revoke_tenant("nobody")


def test_a_tenant_gets_its_kinds_within_its_quotas(play, acme):
    kinds = {task.task_id: task.kind for task in play.ledger.tasks()}
    held = [lease(play, acme) for _ in range(2)]
    assert {kinds[one.task_id] for one in held} == {"k1"}
    with pytest.raises(OverQuota, match="2 open leases"):
        lease(play, acme)
    play.ledger.unlease(held[0].rollout_id)
    (use,) = play.ledger.tenants(play.now)
    assert (use.open, use.last_minute, use.revoked) == (1, 1, False)


def test_a_repeated_request_gets_the_same_rollout_until_it_ends(play, acme):
    first = lease(play, request="r")
    again = lease(play, request="r")
    assert (again.rollout_id, again.deadline) == (first.rollout_id, first.deadline)
    assert again.result_key != first.result_key
    assert lease(play, acme, request="r").rollout_id != first.rollout_id
    assert lease(play, request="r2").rollout_id != first.rollout_id


def test_what_another_tenant_leased_is_not_there(play, acme):
    mine = lease(play, acme).rollout_id
    assert play.ledger.rollout_of_tenant(mine, "acme").state == "running"
    assert play.ledger.rollout_of_tenant(mine, None) is None
    assert play.ledger.rollout_of_tenant(mine, "rival") is None
