"""What a policy may try, and what it gets for it."""

from __future__ import annotations

import hashlib
import os
import signal

import pytest

from tradewind.rewards.config import SignalConfig
from tradewind.rewards.registry import check_tasks, open_signal
from tradewind.rewards.resultset import ResultSet, ResultSetOptions
from tradewind.rewards.sandbox.process import NoAnswer
from tradewind.rewards.signal import VerifierFailed
from tradewind.types import Episode, Outcome, Task, UserError


def make_task(sql: object, *, ordered: bool = False, number: int = 0) -> Task:
    reference = {"ordered": ordered} if sql is None else {"sql": sql, "ordered": ordered}
    return Task(
        task_id=f"t-{number:04d}",
        kind="k",
        split="train",
        input={"question": "?"},
        reference=reference,
    )


def episode(sql: object, task: Task | None = None, **artefacts: object) -> Episode:
    outcome = Outcome(status="completed", artefacts={"sql": sql, **artefacts})
    return Episode(rollout_id="g000000-r0", task=task or make_task(BY_CITY), outcome=outcome)


BY_CITY = "select city, sum(price) from orders group by city"
ENDLESS = "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n"


def value(reward, sql, reference=BY_CITY, **kwargs):
    return reward.score(episode(sql, make_task(reference, **kwargs))).value


def test_the_same_rows_pass_whatever_the_query_looks_like(reward):
    assert value(reward, "select city as c, total(price) from orders group by 1 order by 2;") == 1.0
    assert value(reward, "-- why\nwith x as (select * from orders) " + BY_CITY + " -- done") == 1.0


def test_order_counts_only_where_the_task_says_so(reward):
    up, down = "select price from orders order by 1", "select price from orders order by 1 desc"
    assert value(reward, down, up) == 1.0
    assert value(reward, down, up, ordered=True) == 0.0


@pytest.mark.parametrize(
    "sql",
    [
        None,
        "",
        "  ",
        7,
        ["select 1"],
        "selec",
        "select city from orders",
        BY_CITY + "; " + BY_CITY,
        "select 1 where 0",
        "select \x00",
        "explain " + BY_CITY,
        "vacuum",
        "select load_extension('x')",
        "select zeroblob(900000000)",
        "select * from orders a, orders b, orders c, orders d, orders e, orders f, orders g",
        "select printf('%.900000c', 'x') from orders, orders, orders",
    ],
)
def test_what_the_policy_can_cause_is_graded_zero_with_a_cause(reward, sql):
    verdict = reward.score(episode(sql))
    assert verdict.value == 0.0
    assert verdict.cause


def test_an_endless_query_is_graded_zero_by_its_steps_not_by_the_clock(database):
    reward = ResultSet(ResultSetOptions(database=database, max_steps=1_000_000, deadline_s=60.0))
    verdict = reward.score(episode(ENDLESS))
    assert (verdict.value, verdict.cause) == (0.0, "too slow")
    assert value(reward, BY_CITY) == 1.0
    assert reward._process.starts == 1, "nothing had to be killed"
    reward.close()


def test_a_query_that_outlives_the_deadline_twice_is_graded_zero_and_the_next_one_is_fine(database):
    reward = ResultSet(ResultSetOptions(database=database, max_steps=10**12, deadline_s=0.2))
    verdict = reward.score(episode(ENDLESS))
    assert verdict.value == 0.0 and "no answer within" in verdict.cause
    assert value(reward, BY_CITY) == 1.0
    reward.close()


def test_a_verifier_that_cannot_work_fails_instead_of_blaming_the_policy(database, monkeypatch):
    reward = ResultSet(ResultSetOptions(database=database))
    assert value(reward, BY_CITY) == 1.0

    def broken(*_args):
        raise NoAnswer("the machine is out of memory")

    monkeypatch.setattr(reward._process, "ask", broken)
    with pytest.raises(VerifierFailed, match="out of memory"):
        reward.score(episode("select 1"))
    reward.close()


def test_a_killed_child_is_replaced(reward):
    assert value(reward, BY_CITY) == 1.0
    os.kill(reward._process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, reward._process.pid, os.WEXITED | os.WNOWAIT)
    assert value(reward, BY_CITY) == 1.0
    assert reward._process.starts == 2


@pytest.mark.parametrize(
    "sql",
    [
        "delete from orders",
        "update orders set price = 0 returning price",
        "insert into orders values (9, 'x', 1)",
        "create table x (a)",
        "create temp table x (a)",
        "drop table orders",
        "attach '{beside}' as x",
        "pragma user_version = 3",
        "pragma table_info(orders)",
        "with x as (select 1) delete from orders",
    ],
)
def test_nothing_but_reading_is_possible(reward, database, tmp_path, sql):
    before = hashlib.sha256(database.read_bytes()).hexdigest()
    beside = tmp_path / "beside.sqlite"
    verdict = reward.score(episode(sql.format(beside=beside)))
    assert verdict.value == 0.0
    assert "not authorized" in verdict.cause or "readonly" in verdict.cause, verdict.cause
    assert hashlib.sha256(database.read_bytes()).hexdigest() == before
    assert not beside.exists()
    assert value(reward, BY_CITY) == 1.0


def test_nulls_and_blobs_are_values(reward):
    assert value(reward, "select b, t from odd", "select b, t from odd") == 1.0
    assert value(reward, "select '00ff', t from odd", "select b, t from odd") == 0.0


def test_rows_that_the_agent_reports_are_not_believed(reward):
    claimed = episode("select 1", rows=[["Oslo", 5.5], ["Rome", 2.5]])
    assert reward.score(claimed).value == 0.0


@pytest.mark.parametrize(
    "sql,says",
    [
        (None, 'no "sql"'),
        ("select absent", "no such column"),
        ("select 1 where 0", "returns no rows"),
        ("delete from orders", "not authorized"),
    ],
)
def test_a_task_that_cannot_be_scored_is_named_before_anything_runs(reward, sql, says):
    tasks = [make_task(BY_CITY, number=1), make_task(sql, number=2), make_task(sql, number=3)]
    with pytest.raises(UserError, match=f"t-0002.*{says}.*1 more"):
        check_tasks(reward, tasks)
    check_tasks(reward, tasks[:1])


def test_a_missing_database_or_verifier_is_a_sentence(tmp_path):
    def opened(use: str = "resultset", **options: object) -> None:
        open_signal(SignalConfig(use=use, options=options))

    with pytest.raises(UserError, match=r"set options\.database"):
        opened()
    with pytest.raises(UserError, match=r"cannot be read.*gone\.sqlite"):
        opened(database=str(tmp_path / "gone.sqlite"))
    (tmp_path / "text.sqlite").write_text("text " * 1000)
    with pytest.raises(UserError, match="cannot be read"):
        opened(database=str(tmp_path / "text.sqlite"))
    with pytest.raises(UserError, match=r"does not exist: 'rowset'.*use one of"):
        opened("rowset")
    with pytest.raises(UserError, match=r"databse.*known keys are.*database"):
        opened(databse="x")
