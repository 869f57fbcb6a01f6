"""Small behaviour signals."""

from __future__ import annotations

import pytest
from acting import BASH, acting, call, episode, turn

from tradewind.rewards.config import SignalConfig
from tradewind.rewards.registry import open_signal
from tradewind.rewards.trajectory import trajectory
from tradewind.types import UserError


def value(use: str, of, **options):
    return open_signal(SignalConfig(use=use, options=options)).score(of)


@pytest.mark.parametrize(
    "result",
    [
        "Error: no such file",
        "bash: x: line 1: nope\nexit code: 127",
        "Traceback (most recent call last):\n  ...",
        "KeyError: 'sku'",
        '{"is_error": true, "text": "x"}',
        "fatal: not a git repository",
    ],
)
def test_a_call_failed_if_what_came_back_says_so(result):
    found = value("tool-errors", acting([(call(1), "12 rows"), (call(2), result)]))
    assert (found.value, found.evidence["failed"]) == (0.5, 1)


@pytest.mark.parametrize("result", ["errors.py", "0 errors", "exit code: 0", "no error found", ""])
def test_a_result_that_only_speaks_of_errors_is_none(result):
    assert value("tool-errors", acting([(call(1), result)])).value == 0.0


def test_a_call_that_nobody_can_read_is_a_failed_call_and_no_way_out():
    broken = acting([(call(1), "fine")], final='<tool_call>{"name": "bash", "arg')
    assert value("tool-errors", broken).value == 0.5
    assert value("tool-errors", acting()).value == 0.0


def test_only_a_call_that_brings_nothing_new_is_a_repetition():
    same = [(call(1, command="pytest"), "1 failed")]
    again = [(call(2, command="pytest"), "1 failed")]
    better = [(call(3, command="pytest"), "2 passed")]
    assert value("repeats", acting(same, again, better)).value == pytest.approx(1 / 3)
    assert value("repeats", acting(same, better)).value == 0.0


def test_the_last_answer_has_the_wanted_form_or_not():
    ended = acting(final="The answer is \\boxed{4}")
    assert value("format", ended, pattern=r"\\boxed\{.*\}\Z").value == 1.0
    wrong = value("format", ended, pattern=r"\A4\Z")
    assert wrong.value == 0.0
    assert "does not match" in wrong.cause
    assert value("format", episode()).value == 0.0


@pytest.mark.parametrize(
    ("tokens", "expected"), [(10, 0.0), (80, 0.0), (90, 0.5), (100, 1), (999, 1)]
)
def test_length_rises_in_the_zone_before_the_limit(tokens, expected):
    long = episode(turn(0, 10, tokens))
    assert value("length", long, limit=100, zone=20).value == pytest.approx(expected)


@pytest.mark.parametrize(
    ("use", "options", "said"),
    [
        ("format", {"pattern": "("}, "is no regular expression"),
        ("length", {"zone": 10, "limit": 5}, "zone must not be greater"),
        ("effort", {"thinkng": 1.0}, "known keys are k, q, thinking"),
        ("repeats", {"n": 1}, "options of signal 'repeats' do not work"),
        ("exploits", {"allow": ["netwrok"]}, "no rule knows.*netwrok"),
    ],
)
def test_an_option_that_does_not_work_is_a_sentence(use, options, said):
    with pytest.raises(UserError, match=said):
        open_signal(SignalConfig(use=use, options=options))


def test_agents_without_tools_act_in_fenced_blocks():
    asked = {"role": "user", "content": "how many?"}
    said = "I look.\n```sql\nselect 1\n```"
    first = turn(0, 10, 5, text=said, tools=(), messages=(asked,))
    answered = (asked, {"role": "assistant", "content": said}, {"role": "user", "content": "1 row"})
    second = turn(1, 25, 5, text="One.", tools=(), messages=answered)
    (act,) = trajectory(episode(first, second)).acts
    assert (act.tool, act.arguments, act.result) == ("sql", {"code": "select 1\n"}, "1 row")


def test_history_that_a_fork_repeats_is_read_once():
    ran = acting([(call(1, command="ls"), "a.py")])
    forked = ran.turns[1].model_copy(
        update={"turn_id": "r-t2", "index": 2, "parent": None, "kind": "rewritten"}
    )
    seen = trajectory(episode(*ran.turns, forked))
    assert [(act.arguments["command"], act.result) for act in seen.acts] == [("ls", "a.py")]
    assert seen.offered is bool(BASH)
