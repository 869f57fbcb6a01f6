"""Runs a task's tests with pytest, against a product that lives in another process.

stdin   {"tests": {path: text}, "modules": {name: is_package}, "nodes": [id]}      once
        what product.py answers                                                    to each question
stdout  {"op": ...}                                       a question for product.py
        {"done": {node id: "passed" | "failed" | "skipped"}, "why": {node id: text}}

No line of the product runs here: neither pytest, nor the report, nor this channel is in its reach.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from channel import open_channel  # type: ignore[import-not-found]  # beside this script
from remote import Link, Product  # type: ignore[import-not-found]

_QUIET = ("-p", "no:cacheprovider", "-p", "no:terminal", "-c", os.devnull)


class Report:
    """What came of each test: passed only if setup, call and teardown all did."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}
        self.why: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called by pytest for each phase of a test."""
        before = self.outcomes.get(report.nodeid, "passed")
        if report.outcome != "passed":
            self.outcomes[report.nodeid] = report.outcome if before == "passed" else before
            self.why.setdefault(report.nodeid, str(report.longrepr)[-500:])
        elif report.when == "call":
            self.outcomes.setdefault(report.nodeid, "passed")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Called by pytest for each file."""
        if report.failed:
            self.why[report.nodeid] = str(report.longrepr)[-500:]


def main() -> None:
    """Run them once."""
    questions, answer = open_channel()
    told: dict[str, Any] = next(questions)
    for path, text in told["tests"].items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text)

    def ask(question: dict[str, Any]) -> dict[str, Any]:
        answer(question)
        return dict(next(questions))

    Product(Link(ask), told["modules"]).install()
    sys.path.insert(0, str(Path.cwd()))
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    report = Report()
    here = str(Path.cwd())
    where = ("--rootdir", here, "--confcutdir", here)
    pytest.main([*_QUIET, *where, *told["nodes"]], plugins=[report])
    answer({"done": report.outcomes, "why": report.why})


if __name__ == "__main__":
    main()
