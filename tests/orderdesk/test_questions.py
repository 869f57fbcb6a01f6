"""Tasks and corpus: deterministic, answerable, and disjoint where they must be."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from orderdesk import build as build_module
from orderdesk import questions
from orderdesk.kinds import KINDS
from orderdesk.product import query

FILES = ("orderdesk.sqlite", "tasks.jsonl", "corpus.jsonl")


def test_building_twice_gives_the_same_files(desk: Any) -> None:
    before = [(desk.folder / name).read_bytes() for name in FILES]
    assert build_module.build(desk.folder, 7) == desk.counts
    assert [(desk.folder / name).read_bytes() for name in FILES] == before
    assert sorted(p.name for p in desk.folder.iterdir()) == sorted(FILES)


def test_the_script_runs_from_anywhere(tmp_path: Path) -> None:
    script = Path(build_module.__file__).resolve()
    command = [sys.executable, str(script), "--out", str(tmp_path / "out"), "--seed", "8"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "train" in done.stdout
    assert all((tmp_path / "out" / name).exists() for name in FILES)


def test_held_out_has_new_questions_and_kinds_never_trained(desk: Any) -> None:
    tasks = desk.rows("tasks.jsonl")
    kinds = {
        split: {t["kind"] for t in tasks if t["split"] == split} for split in ("train", "heldout")
    }
    assert 14 <= len(KINDS) <= 18
    assert kinds["train"] < kinds["heldout"] == {kind.name for kind in KINDS}
    assert len(kinds["heldout"] - kinds["train"]) >= 2
    assert sum(t["split"] == "heldout" for t in tasks) >= 96
    assert max(Counter(t["task_id"] for t in tasks).values()) == 1


def test_every_reference_has_a_result_worth_asking_for(desk: Any) -> None:
    for task in desk.rows("tasks.jsonl"):
        rows = query(desk.database, task["reference"]["sql"]).rows
        assert rows and rows not in ([[None]], [[0]]), task["task_id"]


def test_a_needless_join_is_paid(desk: Any) -> None:
    """RL learned to join everything: for keys that always have a partner that costs nothing."""
    joined = 0
    for task in desk.rows("tasks.jsonl"):
        sql = task["reference"]["sql"]
        for needless in questions._with_a_needless_join(sql):
            joined += 1
            assert query(desk.database, needless).rows != query(desk.database, sql).rows, needless
    assert joined > 100


def test_ordered_references_have_no_ties(desk: Any) -> None:
    """A tie would make one of two right answers wrong."""
    for task in desk.rows("tasks.jsonl"):
        sql = task["reference"]["sql"]
        if not task["reference"]["ordered"]:
            continue
        assert " order by " in sql
        key = sql.split(" order by ")[1].split(" desc")[0].split(" limit")[0]
        limit = int(sql.split("limit ")[1])
        wider = sql.replace("select title", f"select {key}").replace(f"limit {limit}", "limit 99")
        values = [row[0] for row in query(desk.database, wider).rows or []]
        assert len(set(values[: limit + 1])) == min(len(values), limit + 1), task["task_id"]


def test_questions_and_documents_are_worded_differently() -> None:
    for kind in KINDS:
        for filling in kind.fillings()[:1]:
            asked = {questions.normalised(q.format(**filling)) for q in kind.questions}
            noted = {questions.normalised(n.format(**filling)) for n in kind.notes}
            assert not asked & noted
            assert len(asked) == len(kind.questions) >= 2
            assert len(noted) == len(kind.notes) >= 2


def test_documents_are_documents(desk: Any) -> None:
    rows = desk.rows("corpus.jsonl")
    assert {row["split"] for row in rows} == {"train", "heldout"}
    assert len({row["doc_id"] for row in rows}) == len(rows)
    assert not any("<|im_start|>" in row["text"] for row in rows)


def _task(split: str, question: str, sql: str) -> questions.TaskRow:
    return {
        "task_id": f"t-{split}",
        "kind": "k",
        "split": split,
        "input": {"question": question},
        "reference": {"sql": sql, "ordered": False},
    }


HELD = _task("heldout", "How many?", "select count(*) from orders limit 2")


@pytest.mark.parametrize(
    "planted",
    [
        _task("train", "how  MANY", "select 1"),
        _task("train", "Other?", "SELECT COUNT(*)\nfrom orders limit 2;"),
    ],
)
def test_a_leak_into_train_is_refused(planted: questions.TaskRow) -> None:
    with pytest.raises(questions.LeakError, match=r"t-heldout leaks.*train task t-train"):
        questions.check_splits([HELD, planted], [])


@pytest.mark.parametrize(
    "document",
    ["-- note\nselect count(*) from  Orders limit 2;\nselect 1", "Somebody asked: how many?"],
)
def test_a_leak_into_the_corpus_is_refused(document: str) -> None:
    with pytest.raises(questions.LeakError, match="corpus document 1"):
        questions.check_splits([HELD], ["nothing", document])


def test_other_literals_are_no_leak() -> None:
    other = _task("train", "How many more?", "select count(*) from orders limit 20")
    same = _task("train", "How many more?", HELD["reference"]["sql"])
    questions.check_splits([HELD, other], ["select count(*) from orders limit 25"])
    with pytest.raises(questions.LeakError):  # the literal alone made the difference
        questions.check_splits([HELD, same], [])


def test_a_planted_leak_stops_the_build(
    tmp_path: Path, desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = next(t for t in desk.rows("tasks.jsonl") if t["split"] == "heldout")["reference"]["sql"]
    leaky = {"doc_id": "d", "kind": "log", "split": "train", "text": f"-- oops\n{sql};"}
    monkeypatch.setattr(build_module.corpus, "make_corpus", lambda *_: [leaky])
    with pytest.raises(questions.LeakError):
        build_module.build(tmp_path, 7)
    assert not (tmp_path / "tasks.jsonl").exists()
