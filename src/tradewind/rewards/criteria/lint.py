"""The linter: what makes a criterion hard to judge, or easy to satisfy without doing the work.

It reads words, not meanings: a finding is a question to the author, who answers it with a better
sentence or with `allow = ["rule"]`. Rules are those of docs/rewards.md, "Criteria and judges".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations

from tradewind.rewards.criteria.checkers import run_checker
from tradewind.rewards.criteria.criterion import Criterion, Kind, Rubric
from tradewind.rewards.criteria.exhibit import Exhibit, exhibit_of_example
from tradewind.types.record import Record

FEW = 2
"""Examples of each kind that a criterion needs at least."""
LONG_WORDS = 40
SAME_SHARE = 0.8
"""Two questions with so many words in common ask the same."""

VAGUE = frozenset(
    """adequately appropriate appropriately clearly correctly decently effectively enough fairly
    generally good great helpful helpfully high-quality largely mostly nicely overall proper
    properly quite rather reasonable reasonably relatively satisfactorily somewhat sufficient
    sufficiently suitable suitably thoroughly truly very well""".split()  # noqa: SIM905
)
UNOBSERVABLE = frozenset(
    """aware believe believes care cares feel feels honest honestly intend intends know knows mean
    means realise realises realize realizes think thinks try tries understand understands want
    wants""".split()  # noqa: SIM905
)
_JOINED = re.compile(r"\b(and|or|as well as|and/or)\b|;", re.IGNORECASE)
_REFERENCE = re.compile(
    r"\b(reference|gold(?:en)?|expected|correct|model|ideal) (answer|solution|output|response)\b",
    re.IGNORECASE,
)
_ECHO = re.compile(
    r"\b(mention|mentions|refer|refers|restate|restates|repeat|repeats|address|addresses)\b"
    r".*\b(question|task|request|topic|subject|prompt)\b",
    re.IGNORECASE,
)
_YES_NO = re.compile(
    r"^(is|are|was|were|does|do|did|has|have|had|can|could|will|would|should|must|may)\b", re.I
)


class Finding(Record):
    """One doubt about a criterion, or about the whole file if that is None."""

    rule: str
    criterion: str | None
    what: str
    fix: str


def lint(rubric: Rubric) -> list[Finding]:
    """All findings that their authors have not allowed, criterion by criterion.

    What is said of the whole file is allowed by any of its criteria.
    """
    found = [finding for criterion in rubric.criteria for finding in _criterion(criterion)]
    found += _whole(rubric)
    allowed = {criterion.id: criterion.allow for criterion in rubric.criteria}
    by_any = {rule for rules in allowed.values() for rule in rules}
    return [
        finding
        for finding in found
        if finding.rule not in (allowed[finding.criterion] if finding.criterion else by_any)
    ]


def _criterion(criterion: Criterion) -> Iterator[Finding]:
    for look in (_question, _words, _examples, _free):
        for name, what, fix in look(criterion):
            yield Finding(rule=name, criterion=criterion.id, what=what, fix=fix)
    for rule in criterion.allow:
        if rule not in RULES:
            what = f"allow names {rule!r}, and there is no such rule"
            yield Finding(
                rule="allow", criterion=criterion.id, what=what, fix=f"known: {', '.join(RULES)}"
            )


Doubt = tuple[str, str, str]


def _question(criterion: Criterion) -> Iterator[Doubt]:
    question = criterion.question
    joined = _JOINED.search(question)
    if joined or question.count("?") > 1:
        found = joined[0] if joined else "two question marks"
        yield "compound", f"it asks two things at once ({found!r})", "make two criteria of it"
    if not question.rstrip().endswith("?"):
        yield "no-question", "it does not end in a question mark", "ask a question"
    elif criterion.levels == ("no", "yes") and not _YES_NO.match(question):
        yield "no-question", "it cannot be answered by yes or no", 'begin with "Does", "Is", ...'
    if len(question.split()) > LONG_WORDS:
        fix = "put what the judge must know into guidance"
        yield "long", f"it has {len(question.split())} words", fix


def _words(criterion: Criterion) -> Iterator[Doubt]:
    words = re.findall(r"[a-z][a-z-]*", criterion.question.lower())
    vague = next((word for word in words if word in VAGUE), None)
    if vague:
        yield "vague", f"{vague!r} means something else to everybody", "say what can be seen"
    hidden = next((word for word in words if word in UNOBSERVABLE), None)
    if hidden:
        fix = "ask for what is said or done"
        yield "unobservable", f"nobody can see whether the agent {hidden!r}", fix
    reference = _REFERENCE.search(criterion.question)
    if reference:
        fix = "name what must be there, or compare by a deterministic signal"
        yield "reference-only", f"a judge does not see the {reference[0]!r}", fix


def _examples(criterion: Criterion) -> Iterator[Doubt]:
    good = [example for example in criterion.examples if example.good]
    bad = [example for example in criterion.examples if not example.good]
    if len(good) < FEW or len(bad) < FEW:
        fix = f"write at least {FEW} of each; borderline ones say most"
        yield "few-examples", f"{len(good)} good and {len(bad)} bad examples", fix
    if criterion.examples and not (good and bad):
        kind = "good" if good else "bad"
        what = f"all of its examples are {kind}: a constant answer would pass"
        yield "constant", what, "write examples of the other kind"
    if any(one.shown == other.shown and one.task == other.task for one in good for other in bad):
        yield "contradiction", "the same example is good and bad", "decide which it is"
    for example in criterion.examples:
        yield from _example(criterion, exhibit_of_example(criterion, example), example.good)
        if example.level is not None and example.level not in criterion.levels:
            what = f"an example has the level {example.level!r}"
            yield "level", what, f"levels are {', '.join(criterion.levels)}"


def _example(criterion: Criterion, shown: Exhibit, good: bool) -> Iterator[Doubt]:
    if good and not shown.work.strip():
        yield "empty", "an empty answer is a good example", "nothing is never good"
    if good and shown.task is not None and shown.work.strip() == shown.task.strip():
        yield "echo", "a good example only repeats its task", "ask for what the task does not hold"
    if criterion.checker is not None:
        level, why = run_checker(criterion, shown)
        if criterion.is_good(level) is not good:
            kind = "good" if good else "bad"
            what = f"its checker says {level} to a {kind} example ({why})"
            yield "checker", what, "correct the example or the checker"


def _free(criterion: Criterion) -> Iterator[Doubt]:
    """What can be had without doing the work."""
    if criterion.checker is not None:
        blank = Exhibit(shown={piece.name: "" for piece in criterion.evidence})
        if criterion.good_is_high and criterion.is_good(run_checker(criterion, blank)[0]):
            what = "its checker is content with an empty answer"
            yield "empty", what, "choose a check that an empty answer fails"
    if criterion.good_is_high and _ECHO.search(criterion.question):
        fix = "ask for what the task does not hold"
        yield "echo", "an answer that repeats the task would pass", fix


def _whole(rubric: Rubric) -> Iterator[Finding]:
    for one, other in combinations(rubric.criteria, 2):
        if _alike(one, other):
            what = f"it asks the same as {one.id!r}"
            yield Finding(rule="duplicate", criterion=other.id, what=what, fix="keep one of them")
    if all(criterion.good_is_high for criterion in rubric.criteria):
        yield Finding(
            rule="all-positive",
            criterion=None,
            what="every criterion wants more of something, so the longest answer wins",
            fix="add one that wants less: a must-not, or a negative weight",
        )
    for criterion in rubric.criteria:
        if not criterion.good_is_high and not _needs_work(rubric, criterion):
            yield Finding(
                rule="empty",
                criterion=criterion.id,
                what="saying nothing satisfies it, and no must asks for the same evidence",
                fix=f"add a must about {criterion.evidence[0].name!r}",
            )


def _needs_work(rubric: Rubric, criterion: Criterion) -> bool:
    """Whether an empty answer would fail another criterion."""
    work = criterion.evidence[0].name
    return any(
        other.good_is_high and other.evidence[0].name == work and other.kind is not Kind.BONUS
        for other in rubric.criteria
    )


def _alike(one: Criterion, other: Criterion) -> bool:
    a, b = (set(re.findall(r"\w+", c.question.lower())) for c in (one, other))
    if one.evidence != other.evidence or one.good_is_high is not other.good_is_high:
        return False
    return len(a & b) >= SAME_SHARE * len(a | b)


RULES = {
    "compound": "asks two things at once",
    "no-question": "is not a question that its levels answer",
    "long": "is too long to keep in mind",
    "vague": "has a word that everybody reads differently",
    "unobservable": "asks for what nobody can see",
    "reference-only": "compares with an answer that the judge does not see",
    "few-examples": "has too few examples to be tested",
    "constant": "has examples of one kind only",
    "contradiction": "has the same example twice, good and bad",
    "level": "has an example with an unknown level",
    "checker": "has a checker that disagrees with an example",
    "empty": "is satisfied by an empty answer",
    "echo": "is satisfied by repeating the task",
    "duplicate": "asks the same as another one",
    "all-positive": "no criterion of the file wants less of something",
}
"""Every rule, and what a criterion does that it finds."""
