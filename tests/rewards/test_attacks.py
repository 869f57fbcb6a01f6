"""Every known attack on a verifier, tried on it: none of them earns anything."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from boxes import need
from graded import a_task, opened, verdict

from tradewind.rewards.attacks.catalogue import CATALOGUE
from tradewind.rewards.sandbox.level import Level

PACKAGES = os.environ.get("TRADEWIND_ENVS_PACKAGES")
FULL = os.environ.get("TRADEWIND_FULL") == "1"

TASKS = {
    "python": [
        a_task(
            {
                "entry": "f",
                "cases": [{"args": [1, 2], "expected": 3}, {"args": [2, 2], "expected": 4}],
                "abs_tol": 1e-6,
                "solution": "def f(a, b): return a + b",
            }
        ),
        a_task(
            {
                "entry": "Solution.pairs",
                "test": "def check(candidate):\n"
                "    assert candidate([2, 1]) == {'low': 1, 'all': (1, 2)}\n"
                "    assert candidate([5]) == {'low': 5, 'all': (5,)}\n",
                "solution": "class Solution:\n"
                "    def pairs(self, xs): return {'low': min(xs), 'all': tuple(sorted(xs))}\n",
            }
        ),
    ],
    "stdio": [
        a_task(
            {
                "cases": [{"stdin": "1", "stdout": "2"}, {"stdin": "2", "stdout": "3\n"}],
                "solution": "print(int(input()) + 1)",
            }
        )
    ],
    "pytest": [
        a_task(
            {
                "files": {"shop/__init__.py": "", "shop/bank.py": "def total(prices): ..."},
                "tests": {
                    "tests/helpers.py": "PRICES = [1, 2, 3]",
                    "tests/test_bank.py": "from helpers import PRICES\n"
                    "from shop.bank import total\n"
                    "def test_total(): assert total(PRICES) == 6\n"
                    "def test_none(): assert total([]) == 0\n",
                },
                "expected": ["tests/test_bank.py::test_total", "tests/test_bank.py::test_none"],
                "artefacts": ["*.py"],
                "solution": {"shop/bank.py": "def total(prices): return sum(prices)"},
            }
        )
    ],
    "exact": [a_task({"answer": "Lisbon"}, question="What is the capital of Portugal?")],
    "numeric": [a_task({"answer": 42.5, "rel_tol": 1e-3}, question="What is 85 / 2?")],
    "math": [a_task({"answer": "\\frac{17}{3}"}, question="What is 34 / 6?")],
    "json-schema": [
        a_task(
            {
                "schema": {
                    "type": "object",
                    "required": ["city", "orders"],
                    "properties": {"city": {"type": "string"}, "orders": {"type": "integer"}},
                },
                "solution": {"city": "Porto", "orders": 7},
            },
            question="How many orders came from Porto?",
        )
    ],
    "reasoning-gym": [a_task({"dataset": "chain_sum", "seed": 7, "index": 3})],
    "resultset": [a_task({"sql": "select city, sum(price) from orders group by city"})],
}
_ROOMY = {"deadline_s": 5.0, "memory_mb": 256}
OPTIONS = {"python": _ROOMY, "stdio": _ROOMY, "pytest": _ROOMY | {"deadline_s": 20.0}}
SHORT = {"python": 0.3, "stdio": 0.3, "pytest": 0.5, "math": 0.3}
BOXED = ("python", "stdio", "pytest")


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
    for attack in CATALOGUE:
        marks = [need(Level.L2)] if attack.use in BOXED else []
        if attack.use == "reasoning-gym":
            reason = "make test names the folder of the real packages"
            marks.append(pytest.mark.skipif(not PACKAGES, reason=reason))
        yield pytest.param(attack, marks=marks, id=f"{attack.use}: {attack.name}")


@pytest.mark.parametrize("attack", list(cases()))
def test_it_earns_nothing(signals, attack):
    signal = signals.of(attack.use, slow=attack.slow)
    for task in TASKS[attack.use]:
        said = verdict(signal, task, **attack.artefacts(task))
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
