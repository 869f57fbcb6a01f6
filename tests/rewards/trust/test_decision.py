"""A judge's life: what lets it climb, what makes it fall, and what it takes to come back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from trust_streams import (
    CONFIG,
    anchor,
    canary,
    good_evidence,
    labels,
    repeats,
    sound,
    standing,
)

from tradewind.rewards.trust.config import TrustConfig
from tradewind.rewards.trust.decision import begin, decide
from tradewind.rewards.trust.evidence import Evidence
from tradewind.types.trust import LabelSource, Sampling, TrustState

NEW, PROBATION = TrustState.UNCALIBRATED, TrustState.PROBATION
TRUSTED, QUARANTINED = TrustState.TRUSTED, TrustState.QUARANTINED


def state_of(evidence: Evidence, before: TrustState = NEW, config: TrustConfig = CONFIG):
    return decide(standing(before), evidence, config, now=1000.0).state


def test_a_new_judge_has_no_weight_and_says_what_is_missing():
    found = decide(begin("c", "1", 0.0), Evidence(), CONFIG, now=5.0)
    assert (found.state, found.factor, found.at) == (NEW, 0.0, 0.0)
    assert "40 labels with yes and 40 with no" in found.reasons[0]
    assert "0 of 20 items judged repeatedly" in found.reasons[1]
    assert "no canary" in found.reasons[2]


def test_bounds_by_a_verifier_let_it_climb_to_full_weight():
    found = decide(begin("c", "1", 0.0), good_evidence(), CONFIG, now=400.0)
    assert (found.state, found.factor, found.at) == (TRUSTED, 1.0, 400.0)
    assert found.measures["agreement"]["verifier"]["sensitivity_bound"] > 0.8
    assert found.thresholds["trusted_bound"] == 0.8


def test_it_stays_on_half_weight_between_the_two_bounds():
    found = decide(
        begin("c", "1", 0.0),
        Evidence(labels=labels(400, lambda t, f, number: float(number % 6 == 0)), probes=sound()),
        CONFIG,
        now=400.0,
    )
    assert (found.state, found.factor) == (PROBATION, 0.5)
    assert "0.80 is asked" in found.reasons[0]


@pytest.mark.parametrize("n", [60, 5000])
def test_labels_of_a_model_never_unlock_anything(n):
    """OpenTranscribe#518, mergeCraft#736: calibrated against another model, and circular."""
    model = labels(n, source=LabelSource.MODEL)
    found = decide(begin("c", "1", 0.0), Evidence(labels=model, probes=sound()), CONFIG, now=9.0)
    assert (found.state, found.factor) == (NEW, 0.0)
    assert "labels of models do not count" in found.reasons[0]
    assert found.measures["agreement"]["model"]["labels"] > 0, "shown, not counted"


@pytest.mark.parametrize(("base", "state"), [(0.5, TRUSTED), (0.2, TRUSTED), (0.04, PROBATION)])
def test_errors_that_drown_what_is_seldom_right_keep_a_judge_on_half_weight(base, state):
    """The same judge, 9 of 10 verdicts right on either side: what it leaves is the base rate's."""

    def nine_of_ten(truth, features, number):
        return 0.1

    found = decide(
        begin("c", "1", 0.0),
        Evidence(labels=labels(3000, nine_of_ten, base=base), probes=sound()),
        CONFIG,
        now=4e3,
    )
    assert found.state is state, found.reasons
    told = found.measures["agreement"]["verifier"]
    assert told["usable_bound"] < told["usable_signal"]
    assert min(told["sensitivity_bound"], told["specificity_bound"]) > 0.8
    if state is PROBATION:
        assert "of the signal, 15% is asked" in found.reasons[0]
        assert "kappa" in found.reasons[0] and "AC1 0.9" in found.reasons[0]


def test_labels_of_people_need_two_who_agree():
    alone = labels(300, source=LabelSource.PERSON)
    together = labels(300, source=LabelSource.PERSON, raters=("ana", "bo"))
    assert state_of(Evidence(labels=alone, probes=sound())) is PROBATION
    assert state_of(Evidence(labels=together, probes=sound())) is TRUSTED


def test_people_who_do_not_agree_send_the_criterion_back_to_its_authors():
    one = labels(300, source=LabelSource.PERSON)
    other = [
        replace(x, rater="bo", label=1 - x.label if i % 3 == 0 else x.label)
        for i, x in enumerate(one)
    ]
    found = decide(begin("c", "1", 0.0), Evidence([*one, *other], sound()), CONFIG, now=9.0)
    assert found.state is PROBATION
    assert any("goes back to its authors" in reason for reason in found.reasons)


def test_two_raters_of_one_item_are_one_label():
    both = labels(30, source=LabelSource.PERSON, raters=("ana", "bo", "cy"))
    found = decide(begin("c", "1", 0.0), Evidence(both, sound()), CONFIG, now=9.0)
    assert found.state is NEW
    assert found.measures["agreement"]["person"]["labels"] == 30


def test_a_disagreement_sample_estimates_nothing():
    picked = labels(300, sampling=Sampling.DISAGREEMENT)
    found = decide(begin("c", "1", 0.0), Evidence(picked, sound()), CONFIG, now=9.0)
    assert found.state is NEW
    assert found.measures["agreement"] == {}
    assert found.measures["disagreement_labels"] == 300


@pytest.mark.parametrize(
    ("probes", "missing"),
    [
        ([p for p in sound() if p.kind == "canary"], "0 of 20 items"),
        (repeats(), "no canary"),
        ([*sound()[:3], *repeats(20, flipped=9)], "agrees with itself in 70%"),
    ],
)
def test_labels_alone_are_not_enough(probes, missing):
    found = decide(begin("c", "1", 0.0), Evidence(labels(300), probes), CONFIG, now=9.0)
    assert found.state is NEW
    assert any(missing in reason for reason in found.reasons)


def test_a_fault_takes_all_weight_from_any_state():
    failed = [*sound(), canary("master_key:Solution:", 1.0, 1.0, 1.0, 1.0, 0.0)]
    for before in (NEW, PROBATION, TRUSTED):
        found = decide(standing(before), Evidence(labels(300), failed), CONFIG, now=50.0)
        assert (found.state, found.factor, found.faults) == (QUARANTINED, 0.0, ("master_key",))
        assert (found.quarantines, found.at) == (1, 50.0)
        assert "4 of 5 verdicts on the canary" in found.reasons[0]


def test_a_state_is_kept_a_little_below_what_it_took():
    between = Evidence(labels(600, lambda *_: 0.17), sound())  # bounds near 0.78
    assert state_of(between, NEW) is PROBATION
    assert state_of(between, PROBATION) is PROBATION
    assert state_of(between, TRUSTED) is TRUSTED
    lower = Evidence(labels(600, lambda *_: 0.25), sound())  # bounds near 0.69
    assert state_of(lower, NEW) is NEW
    assert state_of(lower, TRUSTED) is PROBATION


def test_quarantine_ends_only_with_a_fresh_labelled_sample():
    before = standing(QUARANTINED, at=500.0, quarantines=1)
    reused = decide(before, Evidence(labels(400), sound()), CONFIG, now=501.0)
    assert (reused.state, reused.at) == (QUARANTINED, 500.0), "all of it is older"
    assert "none" in reused.reasons[0]
    fresh = Evidence(labels(300, start=500.5), sound(at=501.0))
    freed = decide(before, fresh, CONFIG, now=900.0)
    assert (freed.state, freed.factor) == (PROBATION, 0.5), "never straight to full weight"
    assert (freed.quarantines, freed.at) == (1, 900.0)


def test_each_quarantine_takes_a_larger_fresh_sample_to_leave():
    fresh = Evidence(labels(200, start=500.5), sound(at=501.0))
    once = decide(standing(QUARANTINED, at=500.0, quarantines=1), fresh, CONFIG, now=900.0)
    thrice = decide(standing(QUARANTINED, at=500.0, quarantines=3), fresh, CONFIG, now=900.0)
    assert (once.state, thrice.state) == (PROBATION, QUARANTINED)
    assert "160 labels with yes" in thrice.reasons[0]


def test_faults_that_were_named_stay_named_while_it_is_quarantined():
    failed = Evidence(labels(300), [*sound(), *[canary("injection", 1.0) for _ in range(8)]])
    fell = decide(standing(TRUSTED), failed, CONFIG, now=500.0)
    later = decide(fell, failed, CONFIG, now=600.0)
    assert (later.state, later.faults, later.at) == (QUARANTINED, ("injection",), 500.0)


def test_a_change_is_named_although_a_canary_was_quicker():
    """In the study a judge that had drifted was called gullible only: quarantine had cut off what
    it was compared with.
    """
    sound_once = labels(200)
    failed = [*sound(at=200.0), canary("master_key:Solution:", 1.0, 1.0, 1.0, 1.0, 1.0, at=200.0)]
    fell = decide(standing(TRUSTED), Evidence(sound_once, failed), CONFIG, now=201.0)
    assert fell.faults == ("master_key",)
    then = labels(110, lambda *_: 0.6, seed=2, start=202.0)
    for n, named in ((60, False), (110, True)):
        found = decide(fell, Evidence([*sound_once, *then[:n]], failed), CONFIG, now=320.0)
        assert ("drift" in found.faults) == named, "the newest 40 of one side must be since then"
    same = labels(110, seed=2, start=202.0)
    calm = decide(fell, Evidence([*sound_once, *same], failed), CONFIG, now=320.0)
    assert calm.faults == ("master_key",)


def test_a_policy_that_gets_better_does_not_cost_its_judge_the_trust():
    """With 97 % right there are few labels with no among the newest; the older ones still count."""
    early, late = labels(200), labels(900, base=0.97, seed=2, start=300.0)
    assert state_of(Evidence([*early, *late], sound()), TRUSTED) is TRUSTED


def test_anchors_that_moved_put_it_back_on_probation():
    moved = [anchor(i, i % 2, 1 - i % 2 if i < 16 else i % 2) for i in range(60)]
    found = decide(standing(TRUSTED), Evidence(labels(300), [*sound(), *moved]), CONFIG, now=9.0)
    assert found.state is PROBATION
    assert "16 of 60 anchors got another verdict" in found.reasons[0]


def test_a_nonsense_threshold_is_refused():
    with pytest.raises(ValueError, match="must not be below"):
        TrustConfig(trusted_bound=0.6)
