"""What the ledger keeps of judges: labels, standings as a history, factors of who judges now."""

from __future__ import annotations

import pytest

from tradewind.algo.advantages import group_mean
from tradewind.ledger.trust import Judge, factors_of
from tradewind.rewards.trust.config import TrustConfig
from tradewind.rewards.trust.faults import find_faults
from tradewind.rewards.trust.reading import read_evidence
from tradewind.run.judged import judged_chart, judged_figures, read_curves
from tradewind.types import Composed, PoolOrder, Score, UserError
from tradewind.types.trust import Label, Pause, Probe, Standing, TrustState


def standing(state: str, version: str = "v1", at: float = 1.0, **fields) -> Standing:
    factor = {"trusted": 1.0, "probation": 0.5}.get(state, 0.0)
    made = {"signal": "tone", "version": version, "state": state, "factor": factor, "at": at}
    return Standing(**{**made, "reasons": ("because",), **fields})


def meet(play, version: str = "v1", **fields) -> None:
    made = {"signal": "tone", "version": version, "minimum": TrustState.PROBATION, "about": {}}
    play.ledger.meet_judge(Judge(**{**made, **fields}))


def label(rollout: str, rater: str = "ana", value: float = 1.0, at: float = 1.0) -> Label:
    return Label(rollout_id=rollout, signal="tone", rater=rater, value=value, at=at)


def test_a_label_counts_once_and_the_first_one_stands(play):
    play.closed_group(0)
    rollout = "g000000-r0"
    assert play.ledger.add_labels([label(rollout), label(rollout, "bo", 0.0, at=2.0)]) == 2
    assert play.ledger.add_labels([label(rollout, value=0.0)]) == 0
    assert [(x.rater, x.value) for x in play.ledger.labels("tone")] == [("ana", 1.0), ("bo", 0.0)]
    assert play.ledger.labels("other") == []


def test_labels_of_an_unknown_rollout_are_refused_and_none_of_them_is_kept(play):
    play.closed_group(0)
    with pytest.raises(UserError, match="g000009-r0"):
        play.ledger.add_labels([label("g000000-r0"), label("g000009-r0")])
    assert play.ledger.labels("tone") == []


def test_a_standing_is_appended_when_the_state_changes_and_says_so_as_an_event(play):
    assert play.ledger.record_standing(standing("uncalibrated"))
    assert play.ledger.record_standing(standing("trusted", at=2.0, measures={"n": 80}))
    assert not play.ledger.record_standing(standing("trusted", at=2.0, measures={"n": 90}))
    assert play.ledger.record_standing(standing("quarantined", at=3.0, faults=("drift",)))
    history = play.ledger.standings("tone")
    assert [s.state.value for s in history] == ["uncalibrated", "trusted", "quarantined"]
    assert history[1].measures == {"n": 80}, "the evidence it was decided on stays"
    kinds = [e.kind for e in play.ledger.events() if e.kind.startswith("judge.")]
    assert kinds == ["judge.trusted", "judge.quarantined"]


def test_the_newest_evidence_is_seen_without_a_new_entry(play):
    play.ledger.record_standing(standing("probation", measures={"n": 80}))
    play.ledger.record_standing(standing("probation", measures={"n": 90}))
    seen = play.ledger.standing("tone", "v1")
    assert seen is not None and seen.measures == {"n": 90}


def test_another_version_of_a_judge_has_no_trust_until_it_is_earned(play):
    """A changed prompt, model or criterion flips verdicts: calibration begins anew."""
    assert play.ledger.factors_by_version() == {}
    play.ledger.record_standing(standing("trusted"))
    play.ledger.record_standing(standing("uncalibrated", "v2"))
    play.ledger.record_standing(standing("probation", at=2.0))
    assert play.ledger.factors_by_version() == {("tone", "v2"): 0.0, ("tone", "v1"): 0.5}


@pytest.mark.parametrize("version,factor", [("v1", 0.0), ("v2", 1.0), ("v3", 0.0)])
def test_a_group_is_weighed_by_the_judge_who_read_it_and_not_by_who_judges_now(
    play, version, factor
):
    """A fallen judge's verdicts do not count because its successor is trusted."""
    play.ledger.record_standing(standing("quarantined", "v1"))
    play.ledger.record_standing(standing("trusted", "v2"))
    meet(play, "v2")
    play.ledger.open_training_group(1)
    rollout = play.lease().rollout_id
    play.chat(rollout, 0, 0)
    play.finish(rollout)
    said = {"rollout_id": rollout, "value": 1.0}
    play.ledger.write_scores(rollout, [Score(**said, source="tone", source_version=version)])
    seen = []

    def keep(composition, graded, trust):
        seen.append(trust)
        return Composed(rewards=(1.0,))

    play.ledger.close_ready(keep, group_mean, play.ledger.factors_by_version())
    assert seen == [{"tone": factor}]


def test_a_judge_that_a_closed_gate_spared_keeps_its_factor(play):
    play.ledger.record_standing(standing("quarantined", "v1"))
    play.ledger.record_standing(standing("probation", "v2"))
    assert factors_of([], play.ledger.factors_by_version()) == {"tone": 0.5}


def test_verdicts_come_with_the_truth_of_the_same_rollout(play):
    play.ledger.open_training_group(2)
    for value in (1.0, 0.0):
        leased = play.lease()
        play.chat(leased.rollout_id)
        play.finish(leased.rollout_id)
        play.ledger.claim_finished("g1", 100, play.now, 10.0)
        judged = {"rollout_id": leased.rollout_id, "source": "tone", "source_version": "v1"}
        scores = [play.score(leased.rollout_id, value), Score(**judged, value=1.0)]
        play.ledger.write_scores(leased.rollout_id, scores)
    found = play.ledger.judged("tone", "v1", "rows")
    assert [(x.value, x.truth) for x in found] == [(1.0, 1.0), (1.0, 0.0)]
    assert [x.truth for x in play.ledger.judged("tone", "v1")] == [None, None]
    assert len(play.ledger.judged("tone", "v1", newest=1)) == 1
    assert play.ledger.judged("tone", "v2") == []
    assert [x.rollout_id for x in play.ledger.judged("tone", "v1", only=["g000000-r1"])] == [
        "g000000-r1"
    ]


def test_probes_come_back_in_their_order(play):
    probe = {"kind": "canary", "signal": "tone", "version": "v1", "expected": 0.0}
    for number in range(3):
        play.ledger.add_probe(
            Probe(**probe, name=f"n{number}", values=(1.0, 0.0), at=float(number))
        )
    assert [p.name for p in play.ledger.probes("tone", "v1")] == ["n0", "n1", "n2"]
    assert [p.name for p in play.ledger.probes("tone", "v1", newest=2)] == ["n1", "n2"]
    assert play.ledger.probes("tone", "v1")[0].values == (1.0, 0.0)


def test_a_gap_that_grew_over_a_long_run_is_still_seen(play):
    """Held-out pairs are rare: they must not fall out of sight behind canaries and verdicts."""
    meet(play)
    made = {"signal": "tone", "version": "v1", "expected": 1.0}
    for number in range(180):
        said = 1.0 if number < 60 else 0.0  # the other judge does not see the rise
        task = {"evidence": {"task": f"t{number % 30}"}, "name": "other"}
        pair = {**made, **task, "kind": "heldout", "values": (said,), "at": float(number)}
        play.ledger.add_probe(Probe(**pair))
    with play.ledger.together():
        for number in range(1100):
            asked = {"kind": "canary", "name": "empty", "values": (1.0,), "at": 200.0 + number}
            play.ledger.add_probe(Probe(**made, **asked))
    (judge,) = play.ledger.judges()
    evidence = read_evidence(play.ledger, judge)
    assert len(evidence.pairs) == 180
    assert [f.name.value for f in find_faults(evidence, TrustConfig())] == ["heldout_gap"]


def test_a_pause_has_one_cause_and_ends_once(play):
    pause = Pause(alarm="nulls", cause="too many", at=5.0)
    assert play.ledger.pause_training(pause)
    assert not play.ledger.pause_training(Pause(alarm="jump", cause="later", at=6.0))
    assert play.ledger.paused() == pause
    assert play.ledger.resume_training(7.0, "ana") == pause
    assert play.ledger.resume_training(8.0, "ana") is None
    assert (play.ledger.paused(), play.ledger.resumed_at()) == (None, 7.0)
    assert play.ledger.pool_order() is None, "nobody sent the pools anywhere"
    kinds = [e.kind for e in play.ledger.events() if e.kind.startswith("training.")]
    assert kinds == ["training.paused", "training.resumed"]


def test_a_pause_that_sends_pools_further_back_takes_the_place_of_the_one_that_is_there(play):
    ledger = play.ledger
    at = {"cause": "c", "at": 5.0}
    assert ledger.pause_training(Pause(alarm="nulls", **at))
    assert ledger.pause_training(Pause(alarm="judged", pools=7, **at))
    assert not ledger.pause_training(Pause(alarm="jump", pools=8, **at)), "a shorter way back"
    assert ledger.pause_training(Pause(alarm="judged", pools=4, **at))
    assert not ledger.pause_training(Pause(alarm="judged", pools=4, **at)), "said once"
    assert ledger.paused().pools == 4
    assert ledger.pool_order() == PoolOrder(number=2, version=4)
    sent = [e.detail for e in ledger.events() if e.kind == "pools.sent_back"]
    assert sent == ["to version 7", "to version 4"]
    ledger.resume_training(7.0, "ana")
    assert ledger.pool_order() == PoolOrder(number=3, version=None), "they follow again"
    assert ledger.pause_training(Pause(alarm="nulls", **at)) and ledger.resume_training(8.0, "ana")
    assert ledger.pool_order().number == 3, "this pause sent nobody anywhere"


def test_windows_hold_the_newest_groups_and_nulls(play):
    first, second = play.closed_group(0), play.closed_group(0)
    found = play.ledger.newest_groups(10, since=0.0)
    assert [g.group_id for g in found] == [first, second]
    assert [r.reward for r in found[0].rollouts] == [0.0, 1.0]
    assert [r.tokens for r in found[0].rollouts] == [1, 1]
    assert play.ledger.newest_groups(1, since=0.0)[0].group_id == second
    assert play.ledger.newest_groups(10, since=9e12) == []
    play.ledger.open_training_group(2)
    play.rollout(None)
    nulls = play.ledger.newest_nulls(3, since=0.0)
    assert [(n.null, n.kind) for n in nulls] == [(False, None), (False, None), (True, "env_error")]


def test_the_report_shows_what_labels_make_of_a_trained_judge(play):
    """It said yes to everything, and people to every second one."""
    meet(play)
    for number in range(4):
        play.ledger.open_training_group(2)
        for index in range(2):
            leased = play.lease()
            play.chat(leased.rollout_id, number)
            play.finish(leased.rollout_id)
            play.ledger.claim_finished("g1", 9, play.now, 10.0)
            judged = {"rollout_id": leased.rollout_id, "source": "tone", "source_version": "v1"}
            play.ledger.write_scores(leased.rollout_id, [Score(**judged, value=1.0)])
            play.ledger.add_labels([label(leased.rollout_id, value=float(index))])
        play.close()
        assert play.train(1) is not None
    curves = read_curves(play.ledger)
    last = curves["tone"][-1]
    assert (last.step, last.judged, last.labels) == (3, 1.0, 8)
    assert last.corrected == pytest.approx(0.5)
    assert judged_figures(play.ledger, curves)["judged.tone"]["corrected"] == last.corrected
    picture = judged_chart("tone", curves["tone"])
    assert "judged 1.00" in picture and "corrected 0.50" in picture and "<polygon" in picture
