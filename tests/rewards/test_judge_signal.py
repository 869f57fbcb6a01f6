"""A judge as a signal: opened by name, shared by threads, shown what its criterion names."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from common.scripted_judge import ScriptedJudge, reply

from tradewind.rewards.config import SignalConfig
from tradewind.rewards.judges import shared
from tradewind.rewards.registry import open_signal
from tradewind.rewards.signal import Kind
from tradewind.types import Outcome, Task, Turn, UserError
from tradewind.types.episode import Episode

FILE = """
rubric = "desk"
version = "1"

[[criteria]]
id = "states-the-number"
question = "Does the answer state the number of the rows?"
evidence = ["answer:reply", "state:result.rows"]

[[criteria]]
id = "asks-politely"
question = "Does the conversation open with a greeting?"
evidence = "turns"

[[criteria]]
id = "used-the-tool"
question = "Does the log show a query?"
evidence = "tool_log"
checker = "states:select"
"""

TASK = Task(task_id="t", kind="k", split="train", input={"question": "How many?"}, reference={})


def make_turn(index: int, **fields: Any) -> Turn:
    completion = {
        "output_ids": (1,), "logprobs": (-0.1,), "spans": ({"version": 1, "count": 1},),
        "finish_reason": "stop", "pool": "p",
    }  # fmt: skip
    given = {"state": "done", "text": f"text {index}", "messages": (), **fields}
    return Turn(
        turn_id=f"r-t{index}", rollout_id="r", index=index, parent=None, prompt_ids=(1,),
        completion=completion, temperature=1.0, started_at=0.0, **given,
    )  # fmt: skip


def episode(artefacts: dict[str, Any] | None = None, turns: tuple[Turn, ...] = ()) -> Episode:
    outcome = Outcome(status="completed", artefacts=artefacts or {})
    return Episode(rollout_id="r", task=TASK, outcome=outcome, turns=turns)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "desk.toml"
    path.write_text(FILE)
    return path


def config(file: Path, criterion: str, **options: Any) -> SignalConfig:
    given = {"criteria": str(file), "criterion": criterion, "model": "judge-1", **options}
    return SignalConfig(name=criterion, use="judge", options=given)


def test_it_is_shown_the_artefacts_and_the_task(file: Path) -> None:
    with ScriptedJudge(lambda c, a, n: reply("yes", a[:9])) as server:
        signal = open_signal(config(file, "states-the-number", url=server.url))
        found = signal.score(episode({"reply": "12 orders", "result": {"rows": [[12]]}}))
        prompt = server.requests[0]["messages"][1]["content"]
        signal.close()
    assert found.value == 1.0 and signal.kind is Kind.JUDGED and not signal.needs_turns
    assert "\n12 orders\n" in prompt and "\n[[12]]\n" in prompt and "\nHow many?\n" in prompt
    assert found.evidence["quotes"] == [{"text": "12 orders", "found_in": "reply"}]


def test_an_outcome_without_the_artefact_is_graded_and_no_null(file: Path) -> None:
    with ScriptedJudge(lambda *_: reply("yes")) as server:
        signal = open_signal(config(file, "states-the-number", url=server.url))
        assert signal.score(episode()).value == 0.0
        assert server.calls == 0
        signal.close()


def test_artefacts_that_no_text_can_hold_are_graded_and_no_crash(file: Path) -> None:
    endless: list[Any] = []
    for _ in range(5000):
        endless = [endless]
    with ScriptedJudge(lambda c, a, n: reply("no")) as server:
        signal = open_signal(config(file, "states-the-number", url=server.url))
        for reported in ("\ud800 orders", endless, {"a": float("nan")}):
            assert signal.score(episode({"reply": reported})).value == 0.0
        prompts = [request["messages"][1]["content"] for request in server.requests]
        signal.close()
    assert len(prompts) == 2 and "? orders" in prompts[0]


def test_turns_are_shown_without_side_calls(file: Path) -> None:
    shown = []
    messages = ({"role": "system", "content": "rules"}, {"role": "user", "content": "Hello"})
    turns = (make_turn(0), make_turn(1, messages=messages), make_turn(2, auxiliary=True))
    with ScriptedJudge(lambda c, a, n: shown.append(a) or reply("no")) as server:
        signal = open_signal(config(file, "asks-politely", url=server.url))
        assert signal.needs_turns
        assert signal.score(episode(turns=turns)).value == 0.0
        signal.close()
    assert shown == ["[user] Hello\n[assistant] text 1"]


def test_a_criterion_with_a_checker_is_used_without_an_endpoint(file: Path) -> None:
    call = {"function": {"name": "sql", "arguments": '{"q": "select 1"}'}}
    messages = (
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "1"},
    )
    options = {"criteria": str(file), "criterion": "used-the-tool"}
    signal = open_signal(SignalConfig(name="used", use="checked", options=options))
    found = signal.score(episode(turns=(make_turn(0, messages=messages),)))
    assert found.value == 1.0 and signal.kind is Kind.CHECK and signal.needs_turns
    assert signal.score(episode()).value == 0.0
    signal.close()


def test_signals_of_one_endpoint_share_its_queue_and_its_store(file: Path) -> None:
    with ScriptedJudge(lambda c, a, n: reply("no")) as server:
        names = ["states-the-number", "asks-politely"] * 3
        signals = [open_signal(config(file, name, url=server.url)) for name in names]
        assert len(shared._open) == 1
        for signal in signals:
            signal.score(episode({"reply": "x 1"}, (make_turn(0),)))
        assert server.calls == 2, "one a criterion: equal evidence is judged once"
        for signal in signals:
            signal.close()
            signal.close()
    assert not shared._open


def test_the_version_follows_judge_and_criterion(file: Path) -> None:
    def version(**options: Any) -> str:
        given = {"url": "http://127.0.0.1:1/v1", **options}
        signal = open_signal(config(file, "states-the-number", **given))
        signal.close()
        return signal.version

    first = version()
    assert first == version(parallel=3, max_calls=5)
    file.write_text(FILE.replace("state the number", "name the number"))
    assert first != version()
    file.write_text(FILE)
    assert len({first, version(model="judge-2"), version(repeats=1), version(max_chars=9)}) == 4


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"criteria": "/nowhere.toml"}, "cannot be read"),
        ({"criterion": "state-the-number"}, "did you mean 'states-the-number'"),
        ({"url": "ftp://x"}, "must begin with http"),
        ({"url": "https://me:secret@x/v1"}, "name the key's variable in key_env"),
        ({"modle": "x"}, "modle"),
        ({"max_usd": 1}, "usd_per_mtok_in"),
        ({"criterion": "used-the-tool"}, 'write use = "checked"'),
        ({}, "a judge has no url"),
    ],
)
def test_options_that_cannot_work_are_a_sentence(file: Path, options, says) -> None:
    given = {"criteria": str(file), "criterion": "states-the-number", "model": "m", **options}
    with pytest.raises(UserError, match=says):
        open_signal(SignalConfig(name="c", use="judge", options=given))
