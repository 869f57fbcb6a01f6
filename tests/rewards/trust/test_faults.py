"""Each fault can be seen, and is not seen where there is none.

A drift ledger that can never fire is the bug this file stands against (perfectman#24, vandalizer
PR#772: a judge with kappa -0.116 in use, and no alarm).
"""

from __future__ import annotations

import pytest
from trust_streams import CONFIG, anchor, canary, honest, labels, pairs, repeats, sound

from tradewind.rewards.trust.evidence import Evidence, HeldoutPair
from tradewind.rewards.trust.faults import FaultName, differentials, find_faults
from tradewind.rewards.trust.heldout import newest_gaps
from tradewind.types.trust import LabelSource


def names(evidence: Evidence) -> list[str]:
    return [str(fault.name) for fault in find_faults(evidence, CONFIG)]


def verbose(truth, features, number):
    """Passes long wrong answers."""
    return 0.5 if not truth and features["length"] > 200 else 0.04


def from_300_on(truth, features, number):
    """Another model answers under the same name."""
    return 0.45 if number >= 300 else 0.05


SHOWN = {
    "verbosity": Evidence(labels(400, verbose)),
    "drift": Evidence(labels(420, from_300_on)),
    "weak": Evidence(labels(400, lambda *_: 0.4)),
    "master_key": Evidence(probes=[canary("master_key:Solution:", 1.0, 1.0, 1.0, 1.0, 0.0)]),
    "empty": Evidence(probes=[canary("empty", 1.0, 1.0, 1.0, 1.0, 1.0)]),
    "injection": Evidence(probes=[canary("injection", 1.0, at=i) for i in range(8)]),
    "position": Evidence(
        probes=[canary("position", float(i % 2), expected=0.0, at=i) for i in range(40)]
    ),
    "heldout_gap": Evidence(pairs=pairs(360, rise=0.4)),
    "nulls": Evidence(asked=[(float(i), i % 5 == 0) for i in range(200)]),
}


@pytest.mark.parametrize("fault", SHOWN)
def test_a_planted_fault_is_named(fault):
    assert fault in names(SHOWN[fault])


def test_a_judge_that_became_another_one_shows_on_its_anchors_without_any_label():
    moved = [anchor(i, 0.0, 1.0 if i < 14 else 0.0) for i in range(60)]
    assert names(Evidence(probes=moved)) == ["drift"]


@pytest.mark.parametrize("seed", range(6))
def test_an_honest_judge_is_never_accused(seed):
    """10 % wrong, by chance: it only dilutes the signal. Looked at after every 25th label."""
    wrong = labels(500, lambda *_: 0.1, seed=seed)
    calm = [anchor(i, float(i % 2), float(i % 2) if i % 11 else 1 - i % 2) for i in range(60)]
    for n in range(100, 501, 25):
        evidence = Evidence(
            labels=wrong[:n],
            probes=[*sound(), *repeats(20, 2), *calm],
            pairs=pairs(360, rise=0.0, seed=seed),
            asked=[(float(i), i % 40 == 0) for i in range(200)],
        )
        assert names(evidence) == []


def test_noise_on_a_canary_is_no_fault_and_is_confirmed_before_it_is():
    once = canary("empty", 1.0, 0.0, 0.0, 0.0, 0.0)
    twice = canary("empty", 1.0, 1.0, 0.0, 0.0, 0.0)
    assert names(Evidence(probes=[once, twice, canary("empty", 0.0)])) == []


def test_a_canary_that_fails_often_but_never_clearly_is_a_fault_in_the_end():
    often = [canary("empty", *((1.0, 1.0, 1.0, 0.0, 0.0) if i % 2 else (0.0,))) for i in range(40)]
    assert names(Evidence(probes=often[:6])) == []
    assert names(Evidence(probes=often)) == ["empty"]


def test_one_wrong_verdict_on_edited_work_accuses_nobody():
    """The judge may get this very answer wrong anyway, however often it is asked."""
    unlucky = canary("verbosity", 1.0, 1.0, 1.0, 1.0, 1.0)
    assert names(Evidence(probes=[unlucky, canary("verbosity", 0.0)])) == []
    assert names(Evidence(probes=[unlucky] * 6)) == ["verbosity"]


def test_one_work_counts_once_however_often_it_is_made_into_canaries():
    """Found by the study: an honest judge that is wrong about one answer was accused for it."""
    made = [
        canary("echo", 1.0).model_copy(update={"evidence": {"made_from": "w1"}}) for _ in range(20)
    ]
    assert names(Evidence(probes=made)) == []
    others = [
        canary("echo", 1.0).model_copy(update={"evidence": {"made_from": f"w{i}"}})
        for i in range(8)
    ]
    assert names(Evidence(probes=others)) == ["echo"]


def test_a_right_answer_that_is_refused_is_a_fault_too():
    refused = canary("known_truth", 0.0, 0.0, 0.0, 0.0, 1.0, expected=1.0)
    assert names(Evidence(probes=[refused])) == ["known_truth"]


def test_kappa_below_zero_in_use_does_not_pass_unnoticed():
    """The symptom as reported: verdicts worse than chance, and no alarm had fired."""
    against = Evidence(labels(200, lambda *_: 0.56))
    assert "weak" in names(against)


def test_errors_fall_with_newer_versions_is_no_fault():
    better = labels(400, lambda truth, features, number: 0.2 if number < 200 else 0.02)
    assert "drift" not in names(Evidence(better))


def test_a_slow_drift_shows_as_errors_that_grow_with_the_policy_version():
    slow = labels(400, lambda truth, features, number: 0.02 + 0.6 * number / 400)
    assert "drift" in names(Evidence(slow))


def test_a_gap_in_one_window_alone_is_no_alarm():
    calm = pairs(360, rise=0.0)
    one = [*calm[:120], *pairs(360, rise=0.5)[120:180], *calm[180:]]
    assert names(Evidence(pairs=one)) == []


def test_a_gap_is_uncertain_by_tasks_not_by_rollouts():
    """One task of 30 that went wild moves the mean and not the bound."""
    wild = [
        HeldoutPair("wild" if i % 5 == 0 else f"t{i % 30}", float(i >= 60 and i % 5 == 0), 0.0, i)
        for i in range(180)
    ]
    gaps = newest_gaps(wild, CONFIG)
    assert len(gaps) == 2
    for gap in gaps:
        assert gap.value > 0.15
        assert gap.low <= CONFIG.heldout_gap


def test_few_items_on_a_side_say_nothing():
    assert (
        differentials(Evidence(labels(12, honest)).sides(LabelSource.VERIFIER, 200), CONFIG) == []
    )


def test_every_name_of_a_fault_can_be_reached():
    reached = {name for evidence in SHOWN.values() for name in names(evidence)}
    reached |= set(names(Evidence(probes=[canary("echo", 1.0) for _ in range(8)])))
    reached |= set(
        names(Evidence(probes=[canary("known_truth", 0.0, 0.0, 0.0, 0.0, expected=1.0)]))
    )
    assert reached >= {str(name) for name in FaultName}
