"""`tradewind criteria`, as an expert uses it."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from common.scripted_judge import Fault, ScriptedJudge, reply
from typer.testing import CliRunner

from tradewind.rewards.config import Composition
from tradewind.rewards.registry import open_signal
from tradewind.run.cli import app
from tradewind.types import UserError

FILE = """
rubric = "desk"
version = "1"

[[criteria]]
id = "names-a-city"
question = "Does the answer name a city?"
good = ["It is Oslo.", "From Rome.", "Lisbon"]
bad = ["No city.", ""]

[[criteria]]
id = "apologises"
question = "Does the answer apologise?"
weight = -0.5
good = ["It is Oslo.", "From Rome."]
bad = ["Sorry, it is Oslo.", "Sorry!"]

[[criteria]]
id = "names-an-order"
question = "Does the answer name an order?"
kind = "must"
checker = "states:order"
good = ["Order 12", "It is order 7."]
bad = ["None.", "Many."]
"""
CITIES = ("Oslo", "Rome", "Lisbon")


def honest(criterion: str, artefact: str, number: int) -> str:
    wanted = CITIES if criterion == "names-a-city" else ("Sorry",)
    found = next((word for word in wanted if word in artefact), None)
    return reply("yes" if found else "no", found)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "desk.toml"
    path.write_text(FILE)
    return path


def run(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["criteria", *map(str, words)], catch_exceptions=True)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout


def try_judge(file: Path, script, *words: object) -> tuple[int, dict]:
    with ScriptedJudge(script) as judge:
        asked = ("--judge-url", judge.url, "--judge-model", "judge-1", "--json", *words)
        code, said = run("test", file, *asked)
    return code, json.loads(said)


def test_a_judge_that_reads_as_the_author_does(file: Path) -> None:
    code, said = try_judge(file, honest)
    assert code == 0 and said["agrees"]
    city, sorry, order = said["criteria"]
    assert (city["agreed"], city["examples"], city["constant"]) == (5, 5, 0.6)
    assert city["sensitivity"]["hits"] == 3 and 0.43 < city["sensitivity"]["low"] < 0.45
    assert sorry["sensitivity"]["hits"] == 2, "good is what the author wants: no apology"
    assert order["agreed"] == 4
    assert len(said["rows"]) == 13


def test_a_judge_that_says_yes_to_all_is_shown_beside_the_constant(file: Path) -> None:
    code, said = try_judge(
        file, lambda c, a, n: reply("yes", a.split()[0]), "--only", "names-a-city"
    )
    (city,) = said["criteria"]
    assert code == 1 and not said["agrees"]
    assert city["specificity"]["hits"] == 1, "the empty answer needs no judge"
    disagreed = [row for row in said["rows"] if not row["agrees"]]
    assert [row["excerpt"] for row in disagreed] == ["No city."]
    assert disagreed[0]["quotes"] == ["No"]


def test_a_null_is_no_agreement_and_in_no_share(file: Path) -> None:
    code, said = try_judge(file, lambda *_: Fault(status=400), "--only", "apologises")
    (sorry,) = said["criteria"]
    assert code == 1
    assert (sorry["nulls"], sorry["agreed"], sorry["sensitivity"]["n"]) == (4, 0, 0)
    assert all(row["cause"].startswith("judge_refused") for row in said["rows"])


def test_the_table_is_for_people(file: Path) -> None:
    with ScriptedJudge(lambda *_: reply("no")) as judge:
        code, said = run("test", file, "--judge-url", judge.url, "--judge-model", "j")
    assert code == 1
    assert "names-a-city" in said and "constant" in said and "2 of 2" in said


def test_checkers_alone_need_no_judge(file: Path) -> None:
    code, said = run("test", file, "--only", "names-an-order", "--json")
    assert code == 0 and json.loads(said)["criteria"][0]["agreed"] == 4


def test_verdicts_are_kept_in_the_store(file: Path, tmp_path: Path) -> None:
    with ScriptedJudge(honest) as judge:
        words = ("--judge-url", judge.url, "--judge-model", "j", "--store", tmp_path / "s.sqlite")
        run("test", file, *words)
        asked = judge.calls
        assert run("test", file, *words)[0] == 0
        assert judge.calls == asked == 8


def test_a_scale_is_right_at_the_level_that_its_author_gave(tmp_path: Path) -> None:
    file = tmp_path / "scale.toml"
    file.write_text(
        'rubric = "r"\nversion = "1"\n[[criteria]]\nid = "short"\nquestion = "How short?"\n'
        'levels = ["long", "middling", "short"]\n'
        'good = [{answer = "Twelve.", level = "middling"}]\n'
        'bad = ["It is twelve of them."]\n'
    )
    script = lambda c, a, n: reply("middling" if a == "Twelve." else "long", a)  # noqa: E731
    code, said = try_judge(file, script)
    assert code == 0 and said["criteria"][0]["sensitivity"]["hits"] == 1


def test_lint_says_what_and_how_to_mend_it(file: Path) -> None:
    assert run("lint", file) == (0, "nothing found\n")
    file.write_text(FILE.replace("name a city?", "name a city and a day?"))
    code, said = run("lint", file, "--json")
    (finding,) = json.loads(said)
    assert code == 1 and (finding["rule"], finding["criterion"]) == ("compound", "names-a-city")
    said = run("lint", file)[1]
    assert (
        "desk.toml: names-a-city: compound: it asks two things at once ('and'). Fix: make" in said
    )


def test_the_tables_for_a_recipe_open_as_signals(file: Path, tmp_path: Path) -> None:
    said = run("signals", file, "--judge-url", "http://127.0.0.1:1/v1", "--judge-model", "j")[1]
    tables = tomllib.loads(said.replace("{data}", str(tmp_path)))["grader"]["signals"]
    composition = Composition.model_validate({"signals": tables})
    assert [(s.name, s.use, s.role.value) for s in composition.signals] == [
        ("names-an-order", "checked", "gate"),
        ("names-a-city", "judge", "weighted"),
        ("apologises", "judge", "weighted"),
    ]
    for config in composition.signals:
        open_signal(config).close()
    hint = "".join(line.removeprefix("# ") for line in said.splitlines(True)[-2:])
    assert tomllib.loads(hint)["grader"]["probes"]["truth"].keys() == {"names-a-city"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--only", "nams-a-city"], "no such criterion"),
        ([], "need a judge"),
        (["--judge-url", "x"], "must begin with http"),
        (["--response-format", "yaml"], "'json_object', 'json_schema' or 'text'"),
        (
            ["--judge-url", "http://x/v1", "--judge-model", "m", "--judge-key-env", "NOT_SET"],
            "NOT_SET",
        ),
    ],
)
def test_words_that_cannot_work_are_a_sentence(file: Path, words: list[str], says: str) -> None:
    with pytest.raises(UserError, match=says):
        run("test", file, *words)
