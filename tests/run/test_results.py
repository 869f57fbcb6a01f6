from __future__ import annotations

import json
from pathlib import Path

import pytest
from synthetic import MB, T0, make_ledger

from tradewind.ledger.ledger import Ledger
from tradewind.run.readings import mixed_share, quantile, read_steps
from tradewind.run.results import control_figures, main_figures, nested, results_document

DESIGN_KEYS = {
    "heldout.base",
    "heldout.rl",
    "seconds.total",
    "seconds.midtrain",
    "seconds.rl",
    "staleness.max",
    "weights.bytes_shipped",
    "weights.bytes_full",
    "weights.pause_ms_p99",
    "users.ttft_ms_p50",
    "users.ttft_ms_p99",
    "rollouts.total",
    "rollouts.trained",
    "tokens.delivered_share",
}


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return make_ledger(tmp_path / "ledger.sqlite")


def test_every_figure_of_the_design_is_there_under_its_name(ledger: Ledger) -> None:
    figures = main_figures(ledger, {"midtrain": 100.0, "rl": 200.0, "total": 400.0})
    assert set(figures) >= DESIGN_KEYS
    assert set(figures["heldout.base"]) == {"pass_rate", "n", "low", "high"}


def test_heldout_is_counted_apart_for_kinds_that_training_has_not(ledger: Ledger) -> None:
    figures = main_figures(ledger, {})
    assert figures["heldout.rl"]["pass_rate"] == 0.75
    assert figures["heldout.rl.seen"] == {**figures["heldout.rl.seen"], "pass_rate": 1.0, "n": 2}
    assert figures["heldout.rl.unseen"]["pass_rate"] == 0.5
    assert "heldout.midtrained" not in figures, "an evaluation that did not run has no figure"


def test_staleness_counts_from_the_oldest_token_to_the_weights_trained(ledger: Ledger) -> None:
    with ledger.read() as conn:
        steps = read_steps(conn)
    assert [sorted(s.staleness) for s in steps] == [[0] * 4, [1] * 4]
    assert main_figures(ledger, {})["staleness.max"] == 1
    assert main_figures(ledger, {})["staleness.tokens"] == {"0": 40, "1": 40}


def test_mixed_groups_and_rewards_come_from_the_rows(ledger: Ledger) -> None:
    with ledger.read() as conn:
        assert mixed_share(conn) == (0.5, 4)
        assert [(s.reward, s.mixed) for s in read_steps(conn)] == [(0.75, 0.5), (0.75, 0.5)]


def test_bytes_pauses_users_and_tokens_add_up(ledger: Ledger) -> None:
    figures = main_figures(ledger, {})
    assert figures["weights.bytes_shipped"] == (1 + 2 + 3) * MB
    assert figures["weights.bytes_full"] == 300 * MB
    assert figures["weights.pause_ms_p99"] == 4.0, "opening version 0 is no swap"
    assert figures["users.ttft_ms_p50"] == pytest.approx(250.0)
    assert (figures["users.chats"], figures["users.errors"]) == (5, 1)
    assert figures["rollouts.total"] == 16
    assert figures["rollouts.trained"] == 8
    assert figures["tokens.delivered_share"] == 0.75


def test_the_control_has_names_of_its_own(ledger: Ledger) -> None:
    figures = control_figures(ledger, {"rl": 5.0, "eval-control": 2.0})
    assert figures["seconds.control"] == 7.0
    assert figures["control.mixed_share"] == 0.5


def test_results_can_be_read_by_name_and_by_path(ledger: Ledger) -> None:
    document = results_document(main_figures(ledger, {"total": 1.0}))
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["heldout"]["rl"]["pass_rate"] == document["heldout.rl"]["pass_rate"] == 0.75
    assert document["heldout"]["rl"]["unseen"]["n"] == 2
    assert document["seconds"]["total"] == 1.0


def test_nested_refuses_a_name_below_a_plain_figure() -> None:
    with pytest.raises(AssertionError, match=r"a\.b lies below"):
        nested({"a": 1, "a.b": 2})


def test_quantile_agrees_with_numpy() -> None:
    import numpy as np

    values = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0]
    for q in (0.0, 0.5, 0.9, 0.99, 1.0):
        assert quantile(values, q) == pytest.approx(float(np.quantile(values, q)))
    assert quantile([], 0.5) is None


def test_the_ledger_of_these_tests_is_what_it_says(ledger: Ledger) -> None:
    assert ledger.eval_result("rl").finished
    assert ledger.user_chats()[0].started_at == T0
