"""Tasks: questions with their references, split so that no examined question was ever practised.

The fillings of each kind are dealt out once: a few to the examination, the rest to training,
where RL takes its questions and the corpus its queries. `check_splits` proves it on the rows.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TypedDict

from orderdesk.kinds import KINDS, Kind
from orderdesk.product import query

HELDOUT_PER_KIND = 7
TRAIN_PER_KIND = 15


class Reference(TypedDict):
    """What the grader needs; the agent never sees it."""

    sql: str
    ordered: bool


class TaskRow(TypedDict):
    """One line of tasks.jsonl."""

    task_id: str
    kind: str
    split: str
    input: dict[str, str]
    reference: Reference


class LeakError(ValueError):
    """A held-out question or its reference stands where training can see it."""


def fillings_of(kind: Kind, database: Path, seed: int) -> tuple[list[dict[str, str]], ...]:
    """Usable fillings of a kind as (held-out, other); deterministic in the seed."""
    rng = random.Random(f"fillings {seed} {kind.name}")
    fillings = kind.fillings()
    rng.shuffle(fillings)
    usable = [f for f in fillings if _worth_asking(database, kind.sql.format(**f))]
    if len(usable) <= HELDOUT_PER_KIND:
        raise ValueError(
            f"kind {kind.name} has {len(usable)} fillings with a result, too few for"
            f" {HELDOUT_PER_KIND} held-out ones and some to train on; give it more values"
        )
    return usable[:HELDOUT_PER_KIND], usable[HELDOUT_PER_KIND:]


def make_tasks(database: Path, seed: int) -> list[TaskRow]:
    """All tasks, held-out and train, in a fixed order."""
    return [task for kind in KINDS for task in _tasks_of(kind, database, seed)]


def _tasks_of(kind: Kind, database: Path, seed: int) -> list[TaskRow]:
    heldout, others = fillings_of(kind, database, seed)
    rng = random.Random(f"wording {seed} {kind.name}")
    tasks = [_task(kind, "heldout", n, filling, rng) for n, filling in enumerate(heldout)]
    if not kind.heldout_only:
        chosen = others[:TRAIN_PER_KIND]
        tasks += [_task(kind, "train", n, filling, rng) for n, filling in enumerate(chosen)]
    return tasks


def _task(
    kind: Kind, split: str, number: int, filling: dict[str, str], rng: random.Random
) -> TaskRow:
    return {
        "task_id": f"{kind.name}-{split}-{number:02}",
        "kind": kind.name,
        "split": split,
        "input": {"question": rng.choice(kind.questions).format(**filling)},
        "reference": {"sql": kind.sql.format(**filling), "ordered": kind.ordered},
    }


def _worth_asking(database: Path, sql: str) -> bool:
    """Whether the result is more than nothing, and takes the whole question to find.

    No rows, a lone null or a lone 0 can be guessed. A condition that changes nothing need not be
    read, and a join that changes nothing need not be left out: an agent that does so would be paid
    for it, and learn to do so where it is wrong.
    """
    rows = query(database, sql).rows
    if not rows or rows in ([[None]], [[0]]):
        return False
    others = [*_without_a_condition(sql), *_with_a_needless_join(sql)]
    return all(query(database, other).rows != rows for other in others)


def _without_a_condition(sql: str) -> list[str]:
    """`sql` without one of the conditions that `and` joins at its end, each in turn."""
    head, _, tail = sql.rpartition(" where ")
    conditions = tail.split(" and ")
    if len(conditions) < 2 or re.search(r"\b(between|group|order|limit)\b|\)", tail):
        return []
    others = (conditions[:n] + conditions[n + 1 :] for n in range(len(conditions)))
    return [f"{head} where {' and '.join(kept)}" for kept in others]


def _with_a_needless_join(sql: str) -> list[str]:
    """`sql` with one more table, if it would find partners there."""
    head, where, tail = sql.partition(" where ")
    read = head.partition(" from ")[2].split(" natural join ")
    return [
        f"{head} natural join {more}{where}{tail}"
        for table, more in (("orders", "customers"), ("products", "suppliers"))
        if table in read and more not in read
    ]


def normalised(text: str) -> str:
    """`text` without what does not change its meaning: case, spacing, closing punctuation."""
    return re.sub(r"\s+", " ", text).strip().rstrip(";.?! ").lower()


def check_splits(tasks: Iterable[TaskRow], documents: Iterable[str]) -> None:
    """Raise `LeakError` if a held-out question or reference stands in train or in the corpus."""
    rows = list(tasks)
    seen: dict[str, str] = {}
    for task in rows:
        if task["split"] == "train":
            seen[normalised(task["input"]["question"])] = f"train task {task['task_id']}"
            seen[normalised(task["reference"]["sql"])] = f"train task {task['task_id']}"
    corpus = [normalised(document) for document in documents]
    for task in rows:
        if task["split"] != "heldout":
            continue
        for text in (task["input"]["question"], task["reference"]["sql"]):
            where = seen.get(normalised(text)) or _document_with(normalised(text), corpus)
            if where:
                raise LeakError(
                    f"held-out task {task['task_id']} leaks: {text!r} stands in {where};"
                    " leave that filling out of training or out of the examination"
                )


def _document_with(text: str, corpus: list[str]) -> str | None:
    # A whole query must match: `limit 2` is not a leak of `limit 20`.
    whole = re.compile(re.escape(text) + r"(?![\w%'])")
    for number, document in enumerate(corpus):
        if text in document and whole.search(document):
            return f"corpus document {number}"
    return None
