"""Small tasks of every verifier that runs or compares something, for attacks to be tried on."""

from __future__ import annotations

from typing import Any

from tradewind.types import Task


def a_task(reference: dict[str, Any], **task_input: Any) -> Task:
    return Task(task_id="t-0001", kind="k", split="train", input=task_input, reference=reference)


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
"""By the `use` of the verifier. `resultset` has a table `orders` with `city` and `price`."""
