"""Verifier `pytest`: do the task's tests pass on the repository that the agent changed?

    task.reference   {"files": {path: text},      the repository as it was, without tests
                      "tests": {path: text},      tests, conftest and helpers, never near the agent
                      "expected": [node id],      all of these must pass
                      "artefacts": [pattern],     which files the agent may have changed
                      "roots": ["src"]}           folders to import from, [""] by default
                     and, if it is known, {"solution": {path: text}}
    outcome          artefacts["files"]: {path: text}, what the agent changed

    box "product" (new)                    here                        box "tests" (new)
    clean checkout, declared files ◄────── relays plain data ◄──────── pytest, the tests, the report
                                   ──────► and counts        ────────►

Tests import the product over a wire: no line of it runs where pytest runs. So it can neither patch
pytest nor write a report, and what it returns is compared as plain data. The price: tests hand
over plain data and the product's own objects only (no callbacks, no open files, no `tmp_path`).
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, Self

from pydantic import model_validator

from tradewind.rewards.boxed import Ask, Boxed
from tradewind.rewards.options import BoxOptions
from tradewind.rewards.reference import Reference
from tradewind.rewards.sandbox.level import Level
from tradewind.rewards.sandbox.process import NoAnswer
from tradewind.rewards.sandbox.view import installed_packages
from tradewind.rewards.signal import Kind, Verdict
from tradewind.rewards.verifier import NothingReported, Verifier
from tradewind.types.errors import UserError
from tradewind.types.record import Json

DROPPED = (
    "conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", "tox.ini", "setup.cfg", "setup.py",
    "pyproject.toml", "sitecustomize.py", "usercustomize.py", "*.pth", "*.pyc", "*.so",
)  # fmt: skip
"""Never taken from an agent, whatever is declared: they configure whoever runs tests."""

_CONTROL = "def test_control():\n    import control\n    assert control.one() == 1\n"


class RepositoryOptions(BoxOptions):
    """What `pytest` takes."""

    artefact: str = "files"
    """Under which name the changed files are reported."""
    deadline_s: float = 60.0
    """Wall-clock limit of one verdict, in seconds."""


class RepositoryReference(Reference):
    """What `pytest` reads of a task's reference."""

    files: dict[str, str]
    tests: dict[str, str]
    expected: tuple[str, ...]
    artefacts: tuple[str, ...]
    roots: tuple[str, ...] = ("",)
    solution: dict[str, str] | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        for name in ("tests", "expected", "artefacts"):
            if not getattr(self, name):
                raise ValueError(f"its reference has no {name!r}")
        for node in self.expected:
            if node.partition("::")[0] not in self.tests or "::" not in node:
                raise ValueError(f"the expected test {node!r} is in none of its tests' files")
        for path in (*self.files, *self.tests, *self.roots):
            if not _inside(path):
                raise ValueError(f"the path {path!r} leads out of the repository")
        return self


class Repository(Verifier[RepositoryReference]):
    """Runs the task's tests in one box and the changed repository in another."""

    takes = RepositoryOptions
    kind = Kind.EXECUTABLE
    reads = RepositoryReference

    def __init__(self, options: RepositoryOptions, level: Level | None = None) -> None:
        """Raises `UserError` if this machine cannot isolate as well as asked, or has no pytest."""
        try:
            import pytest
        except ModuleNotFoundError as error:
            raise UserError(
                "verifier 'pytest' needs a package that is not installed",
                value="pytest",
                fix="pip install pytest",
            ) from error
        self.version = f"2-pytest-{pytest.__version__}"
        self._product = Boxed("pytest", options, "product.py", level)
        self._tests = Boxed(
            "pytest", options, "pytest_run.py", level, packages=installed_packages()
        )
        super().__init__(options.artefact, self._product, self._tests)

    def reported(self, answer: Any) -> Any:
        """Files by their path."""
        if not isinstance(answer, dict):
            raise NothingReported(f"no {self.artefact!r} were reported")
        return answer

    def decide(self, answer: Json, reference: RepositoryReference) -> Verdict:
        """1.0 if every expected test passes, else 0.0. That they can, the oracle shows."""
        taken, ignored = declared(answer, reference)
        outcomes, why = self._run({**reference.files, **taken}, reference)
        return _verdict(reference.expected, outcomes, why, ignored)

    def _run(
        self, files: dict[str, str], reference: RepositoryReference
    ) -> tuple[dict[str, str], dict[str, str]]:
        def attempt(product: Ask, tests: Ask) -> tuple[dict[str, str], dict[str, str]]:
            return _tested(product, tests, files, reference)

        return self._product.fairly(
            lambda product: self._tests.beside(lambda tests: attempt(product, tests)),
            lambda product: self._tests.beside(lambda tests: _control(product, tests)),
        )


def declared(
    changed: Mapping[str, Any], reference: RepositoryReference
) -> tuple[dict[str, str], list[str]]:
    """The agent's files that the task asks for, and the names of those that it does not."""
    taken, ignored = {}, []
    for path, text in changed.items():
        name = PurePosixPath(path).name.lower()
        if (
            isinstance(text, str)
            and _inside(path)
            and path not in reference.tests
            and _matches(path, reference.artefacts)
            and not _matches(name, DROPPED)
        ):
            taken[path] = text
        else:
            ignored.append(path)
    return taken, sorted(ignored)


def _matches(path: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


def modules_of(files: Mapping[str, str], roots: tuple[str, ...]) -> dict[str, bool]:
    """Names under which a repository's files can be imported; True for packages.

    A folder without `__init__.py` is a package, too, if it holds modules.
    """
    found: dict[str, bool] = {}
    for path in files:
        for root in roots:
            if not path.endswith(".py") or not PurePosixPath(path).is_relative_to(root):
                continue
            parts = PurePosixPath(path).relative_to(root).with_suffix("").parts
            package = parts[-1] == "__init__"
            parts = parts[:-1] if package else parts
            if parts:
                found[".".join(parts)] = package or found.get(".".join(parts), False)
            for end in range(1, len(parts)):
                found[".".join(parts[:end])] = True
    return found


def _tested(
    product: Ask, tests: Ask, files: dict[str, str], reference: RepositoryReference
) -> tuple[dict[str, str], dict[str, str]]:
    """Outcomes of the tests by node id, and why some did not pass."""
    if product({"files": files, "roots": list(reference.roots)}) != {"ok": True}:
        raise NoAnswer("the repository could not be checked out")
    modules = modules_of(files, reference.roots)
    nodes = list(dict.fromkeys(node.partition("::")[0] for node in reference.expected))
    said = tests({"tests": reference.tests, "modules": modules, "nodes": nodes})
    while "op" in said:
        said = tests(product(said))
    return said["done"], said["why"]


def _control(product: Ask, tests: Ask) -> None:
    """A repository and a test that are known to work; raises `NoAnswer` if they do not."""
    reference = RepositoryReference(
        files={"control.py": "def one():\n    return 1\n"},
        tests={"test_control.py": _CONTROL},
        expected=("test_control.py::test_control",),
        artefacts=("control.py",),
    )
    outcomes, _ = _tested(product, tests, reference.files, reference)
    if outcomes != {"test_control.py::test_control": "passed"}:
        raise NoAnswer("a test of a function that returns 1 does not pass")


def _verdict(
    expected: tuple[str, ...],
    outcomes: Mapping[str, str],
    why: Mapping[str, str],
    ignored: list[str],
) -> Verdict:
    passed = [node for node in expected if outcomes.get(node) == "passed"]
    evidence: Json = {"tests": len(expected), "passed": len(passed), "ignored_files": ignored}
    if len(passed) == len(expected):
        return Verdict(value=1.0, evidence=evidence)
    first = next(node for node in expected if outcomes.get(node) != "passed")
    what = outcomes.get(first, "did not run")
    reason = why.get(first) or why.get(first.partition("::")[0]) or ""
    cause = f"{len(passed)} of {len(expected)} tests pass; {first} {what}: {reason[-200:].strip()}"
    return Verdict(value=0.0, cause=cause, evidence=evidence)


def _inside(path: str) -> bool:
    pure = PurePosixPath(path)
    return not pure.is_absolute() and ".." not in pure.parts and "\0" not in path
