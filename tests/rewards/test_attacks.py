"""Every known attack on a verifier, tried on it: none of them earns anything."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from boxes import need
from common.attacked import TASKS
from graded import opened, verdict

from tradewind.rewards.attacks.catalogue import CATALOGUE
from tradewind.rewards.attacks.sources import BEFORE, BESIDES
from tradewind.rewards.sandbox.level import Level
from tradewind.rewards.signal import VerifierFailed

PACKAGES = os.environ.get("TRADEWIND_ENVS_PACKAGES")
FULL = os.environ.get("TRADEWIND_FULL") == "1"

_ROOMY = {"deadline_s": 5.0, "memory_mb": 256}
OPTIONS = {"python": _ROOMY, "stdio": _ROOMY, "pytest": _ROOMY | {"deadline_s": 20.0}}
SHORT = {"python": 0.3, "stdio": 0.3, "pytest": 0.5, "math": 0.3}
BOXED = ("python", "stdio", "pytest")


ELSEWHERE = {
    "pytest": {*BEFORE, *BESIDES} - {"hard exit", "forged answers", "frame walk", "spin"},
    "stdio": {"endless output", "spin"},
    "python": {"sleep, when called"},
}
"""Each costs a second with `pytest`, and each one that is late costs one anywhere."""


@pytest.fixture(scope="module")
def signals(tmp_path_factory):
    """One of each, opened when first asked for; slow attacks meet one with a short deadline."""
    with pytest.MonkeyPatch.context() as patch:
        if PACKAGES:
            patch.setattr(sys, "path", [*sys.path, str(Path(PACKAGES).resolve())])
        yield (held := Signals(tmp_path_factory.mktemp("data") / "shop.sqlite"))
        held.close()


class Signals:
    def __init__(self, database: Path) -> None:
        self._database, self._open = database, {}

    def of(self, use: str, *, slow: bool = False):
        options = dict(OPTIONS.get(use, {}))
        if slow:
            options["deadline_s"] = SHORT[use]
        if use == "resultset":
            make_shop(self._database)
            options |= {"database": str(self._database), "max_steps": 100_000}
        if (use, slow) not in self._open:
            self._open[use, slow] = opened(use, **options)
        return self._open[use, slow]

    def close(self) -> None:
        for signal in self._open.values():
            signal.close()


def settled(signal, task, artefacts):
    """As a grader asks: again where a busy machine could not even run what is known to work."""
    for _ in range(10):
        try:
            return verdict(signal, task, **artefacts)
        except VerifierFailed as error:
            why = error
    raise AssertionError(why)


def make_shop(path: Path) -> None:
    import sqlite3
    from contextlib import closing

    if path.exists():
        return
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table orders (city text, price real)")
        connection.execute("insert into orders values ('Oslo', 1.5), ('Rome', 2.5)")
        connection.commit()


def cases():
    """All of them in full size; else what any code may do is tried where it is cheapest."""
    for attack in CATALOGUE:
        if not FULL and attack.name in ELSEWHERE.get(attack.use, ()):
            continue
        marks = [need(Level.L2)] if attack.use in BOXED else []
        if attack.use == "reasoning-gym":
            reason = "make test names the folder of the real packages"
            marks.append(pytest.mark.skipif(not PACKAGES, reason=reason))
        yield pytest.param(attack, marks=marks, id=f"{attack.use}: {attack.name}")


def tasks_of(attack):
    """With cases and with a test of its own, in turn for what does the same to both."""
    tasks = TASKS[attack.use]
    general = attack.slow or attack.name.removesuffix(", when called") in {*BEFORE, *BESIDES}
    if FULL or not general:
        return tasks
    at = sum(map(ord, attack.name)) % len(tasks)
    return tasks[at : at + 1]


@pytest.mark.parametrize("attack", list(cases()))
def test_it_earns_nothing(signals, attack):
    signal = signals.of(attack.use, slow=attack.slow)
    for task in tasks_of(attack):
        said = settled(signal, task, attack.artefacts(task))
        assert said.value == 0.0, said
        assert said.cause, "and one can read why"


@pytest.mark.parametrize("use", [use for use in TASKS if use not in ("resultset", "reasoning-gym")])
def test_the_same_verifiers_believe_what_is_right(signals, use):
    signal = signals.of(use)
    for task in TASKS[use]:
        assert signal.check(task) is None
        assert verdict(signal, task, **signal.oracle(task)).value == 1.0


def test_names_are_unique_and_every_attack_says_what_it_hopes_for():
    names = [(attack.use, attack.name) for attack in CATALOGUE]
    assert len(names) == len(set(names))
    assert all(attack.why for attack in CATALOGUE)
