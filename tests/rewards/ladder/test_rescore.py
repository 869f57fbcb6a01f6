"""Stored rollouts, scored again by another verifier: what changed, and that history did not."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from tradewind.ledger import tables
from tradewind.ledger.ledger import Ledger
from tradewind.ledger.payloads import LostPayload
from tradewind.rewards.config import Composition, SignalConfig
from tradewind.rewards.ladder.rescore import compare, rescore


def again(ledger: Ledger, composition: Composition, **options):
    return list(rescore(ledger.stored_groups(), composition, ledger.turns, **options))


def everything(ledger: Ledger) -> dict[str, list[tuple]]:
    with ledger.read() as conn:
        return {
            name: [tuple(row) for row in conn.execute(select(table))]
            for name, table in tables.metadata.tables.items()
            if name not in ("rescorings", "rescored")
        }


def test_the_same_reward_says_the_same_of_every_stored_rollout(desk, played):
    ledger = played()
    same = Composition(signals=(desk.rows,))
    pairs = again(ledger, same, parallel=3)
    found = compare(same, pairs)
    assert (found.groups, found.rollouts, found.rewards) == (10, 40, 40)
    assert found.signals["resultset"].verdicts == 40
    assert found.signals["resultset"].changed == found.rewards_changed == 0
    assert found.changes == () and found.difference == (0.0, 0.0)
    assert 0.2 < found.reward_before == found.reward_after < 0.8


def test_a_stricter_verifier_changes_verdicts_which_are_counted_and_named(desk, played):
    ledger = played()
    strict = Composition(signals=(desk.signal("strict").model_copy(update={"name": "resultset"}),))
    pairs = again(ledger, strict)
    found = compare(strict, pairs)
    stored = {r.rollout_id: r for group, _ in pairs for r in group.rollouts}
    # Right rows by another query.
    lucky = [
        rollout.rollout_id
        for group, _ in pairs
        for rollout in group.rollouts
        if rollout.reward == 1.0 and rollout.outcome.artefacts["sql"] != group.task.reference["sql"]
    ]
    assert lucky, "the seed gives at least one"
    assert [change.rollout_id for change in found.changes] == lucky
    assert found.signals["resultset"].changed == found.rewards_changed == len(lucky)
    assert sum(count.changed for count in found.kinds.values()) == len(lucky)
    low, high = found.difference
    assert low <= found.reward_after - found.reward_before <= high < 0.01
    first = found.changes[0]
    assert (first.before, first.after) == (1.0, 0.0)
    assert stored[first.rollout_id].scores[0].value == 1.0


def test_a_lost_payload_is_a_null_and_not_the_end_of_rescoring(desk, played):
    ledger = played()
    same = Composition(signals=(desk.rows, SignalConfig(use="effort", role="monitor")))

    def read(rollout: str):
        if rollout == "g000000-r0":
            raise LostPayload(f"turn {rollout}-t0: payload 4f3a is missing")
        return ledger.turns(rollout)

    pairs = list(rescore(ledger.stored_groups(), same, read))
    again = {row.rollout_id: row for _, rescored in pairs for row in rescored}
    lost = again.pop("g000000-r0")
    assert {score.cause for score in lost.scores} == {
        "infra_error: turn g000000-r0-t0: payload 4f3a is missing"
    }
    assert lost.reward is None and all(row.reward is not None for row in again.values())


def test_rescoring_reads_only_and_writing_keeps_it_beside_what_training_used(desk, played):
    ledger = played()
    before = everything(ledger)
    strict = Composition(signals=(desk.signal("strict").model_copy(update={"name": "resultset"}),))
    rows = [row for _, rescored in again(ledger, strict) for row in rescored]
    assert everything(ledger) == before
    data = strict.model_dump(mode="json")
    assert ledger.write_rescoring(strict.version, data, rows) == 0
    assert ledger.write_rescoring(strict.version, data, rows) == 1
    assert everything(ledger) == before
    version, kept = ledger.rescoring(0)
    assert version == strict.version
    assert {row.rollout_id: row for row in kept} == {row.rollout_id: row for row in rows}
    assert kept[0].scores[0].source_version != "1"
    assert ledger.audit() == []
    with pytest.raises(KeyError):
        ledger.rescoring(7)


def test_a_verifier_that_fails_gives_nulls_with_a_cause_and_no_reward(desk, played):
    ledger = played(groups=2)
    broken = Composition(signals=(desk.signal("broken").model_copy(update={"name": "resultset"}),))
    found = compare(broken, again(ledger, broken, attempts=1))
    assert found.signals["resultset"].nulls_after == found.signals["resultset"].verdicts == 8
    assert found.rewards == 0 and found.reward_before is None
    assert "no luck" in found.changes[0].cause_after


def test_signals_that_came_or_went_are_named_and_not_counted_as_changes(desk, played):
    ledger = played(groups=2)
    other = Composition(signals=(desk.rows, desk.signal("form", role="gate")))
    found = compare(other, again(ledger, other))
    assert (found.new_signals, found.gone_signals) == (("form",), ())
    assert set(found.signals) == {"resultset"}
    alone = Composition(signals=(desk.signal("form"),))
    gone = compare(alone, again(ledger, alone))
    assert (gone.new_signals, gone.gone_signals, gone.changes) == (("form",), ("resultset",), ())
    assert gone.rewards_changed > 0


def test_turns_are_read_for_a_signal_that_looks_at_them(desk, played):
    ledger = played(groups=1)
    seen = []

    def read_turns(rollout):
        seen.append(rollout)
        return ledger.turns(rollout)

    counted = Composition(
        signals=(desk.rows, SignalConfig(use="length", role="monitor")),
    )
    pairs = list(rescore(ledger.stored_groups(), counted, read_turns))
    assert len(seen) == 4
    assert all(score.value is not None for _, rows in pairs for r in rows for score in r.scores)
