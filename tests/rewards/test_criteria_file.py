"""A criteria file, and the sentence for whoever mistypes one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tradewind.rewards.criteria.criterion import Criterion, Rubric
from tradewind.rewards.criteria.file import read_criterion, read_rubric
from tradewind.types import UserError

HEAD = 'rubric = "desk"\nversion = "1"\n'
GOOD = """
[[criteria]]
id = "states-the-number"
question = "Does the answer state the number of the rows?"
kind = "must"
weight = 2
evidence = ["answer", "state:rows"]
guidance = "Words count as numbers."
minimum_trust = "trusted"
allow = ["few-examples"]
good = [
  { answer = "12 are open.", rows = "[[12]]", note = "plain" },
]

[[criteria.bad]]
answer = "Several are open."
rows = "[[12]]"
task = "How many are open?"

[[criteria]]
id = "short"
question = "How short is it?"
levels = ["long", "middling", "short"]
good = ["12", { answer = "Twelve.", level = "middling" }]
"""


def read(tmp_path: Path, text: str) -> Rubric:
    path = tmp_path / "desk.toml"
    path.write_text(text)
    return read_rubric(path)


def test_all_that_a_file_may_say(tmp_path: Path) -> None:
    rubric = read(tmp_path, HEAD + 'author = "Ana"\n' + GOOD)
    number, short = rubric.criteria
    assert (rubric.name, rubric.version, rubric.author) == ("desk", "1", "Ana")
    assert [piece.name for piece in number.evidence] == ["answer", "rows"]
    assert number.gate and number.weight == 2 and number.minimum_trust == "trusted"
    good, bad = number.examples
    assert good.good and good.shown == {"answer": "12 are open.", "rows": "[[12]]"}
    assert not bad.good and bad.task == "How many are open?"
    assert [e.shown for e in short.examples] == [{"answer": "12"}, {"answer": "Twelve."}]
    assert short.examples[1].level == "middling"


def test_a_criterion_is_found_by_its_id_or_by_being_alone(tmp_path: Path) -> None:
    path = tmp_path / "one.toml"
    path.write_text(HEAD + GOOD)
    assert read_criterion(path, "short")[1].id == "short"
    with pytest.raises(UserError, match="no criterion of that name: ''"):
        read_criterion(path, "")
    path.write_text(HEAD + '[[criteria]]\nid = "a"\nquestion = "Is it?"\n')
    rubric, alone = read_criterion(path, "")
    assert isinstance(alone, Criterion) and rubric.criteria == (alone,)


MISTAKES = {
    "unknown key": ('[[criteria]]\nid="a"\nquestion="Is it?"\nwieght = 2',
                    "line 6: a has an unknown key 'wieght'", "did you mean 'weight'?"),
    "unknown key of the file": ('titel = "x"\n[[criteria]]\nid="a"\nquestion="Is it?"',
                                "line 3: the file has an unknown key 'titel'", "known: rubric"),
    "unknown kind": ('[[criteria]]\nid="a"\nquestion="Is it?"\nkind = "musst"',
                     "line 6: a: kind = 'musst' is no kind", "did you mean 'must'?"),
    "unknown trust": ('[[criteria]]\nid="a"\nquestion="Is it?"\nminimum_trust = "trustd"',
                      "is no minimum_trust", "did you mean 'trusted'?"),
    "unknown scope": ('[[criteria]]\nid="a"\nquestion="Is it?"\nevidence = ["anser"]',
                      "evidence 'anser' begins with no known scope", "did you mean 'answer'?"),
    "state without a name": ('[[criteria]]\nid="a"\nquestion="Is it?"\nevidence = ["state"]',
                             "name the artefact that holds it", "correct"),
    "unknown checker": ('[[criteria]]\nid="a"\nquestion="Is it?"\nchecker = "stats:x"',
                        "there is no checker 'stats'", "did you mean 'states'?"),
    "no question": ('[[criteria]]\nid="a"', "a has no 'question'", "correct question"),
    "weight is a text": ('[[criteria]]\nid="a"\nquestion="Is it?"\nweight = "two"',
                         "line 6: a: weight = 'two'", "correct weight"),
    "weight is nan": ('[[criteria]]\nid="a"\nquestion="Is it?"\nweight = nan',
                      "finite", "correct weight"),
    "example of another shape": ('[[criteria]]\nid="a"\nquestion="Is it?"\ngood = [{anwser = "x"}]',
                                 "line 6: a, good has an unknown key 'anwser'",
                                 "did you mean 'answer'?"),
    "example that lacks evidence": ('[[criteria]]\nid="a"\nquestion="Is it?"\n'
                                    'evidence = ["answer", "state:rows"]\ngood = [{answer = "x"}]',
                                    "an example lacks 'rows'", "an empty text will do"),
    "example is a number": ('[[criteria]]\nid="a"\nquestion="Is it?"\ngood = [7]',
                            "no table of texts", "write { answer = ... }"),
    "twice the same id": ('[[criteria]]\nid="a"\nquestion="Is it?"\n' * 2,
                          "two criteria are called 'a'", "an id of its own"),
    "no criteria": ("", "no [[criteria]] table", "write at least one"),
    "criteria is a text": ('criteria = "x"', "no [[criteria]] table", "write at least one"),
    "must-not without polarity": ('[[criteria]]\nid="a"\nquestion="Is it?"\nkind="must-not"',
                                  'write polarity = "negative"', ""),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_a_sentence_with_place_and_fix(tmp_path: Path, mistake: str) -> None:
    text, says, fix = MISTAKES[mistake]
    with pytest.raises(UserError) as refused:
        read(tmp_path, HEAD + text)
    assert says in str(refused.value)
    assert fix in refused.value.fix


def test_all_mistakes_are_said_at_once(tmp_path: Path) -> None:
    text = '[[criteria]]\nid = "a"\nquestion = "Is it?"\n' + "".join(
        f"key{number} = 1\n" for number in range(9)
    )
    with pytest.raises(UserError, match=r"unknown key 'key0'; .* and 4 more"):
        read(tmp_path, 'version = "1"\n' + text)


def test_a_file_that_is_no_toml_or_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no TOML .*line 2"):
        read(tmp_path, "rubric = 'desk'\nversion =\n")
    with pytest.raises(UserError, match="No such file"):
        read_rubric(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b'rubric = "caf\xe9"')
    with pytest.raises(UserError, match="not UTF-8"):
        read_rubric(tmp_path / "latin.toml")
