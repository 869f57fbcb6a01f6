"""Reads a criteria file, and says what is wrong with one so that its author can mend it.

    rubric = "order-desk"
    version = "1"
    author = "Ana"

    [[criteria]]
    id = "states-the-number"
    question = "Does the answer state the number that the query returned?"
    evidence = ["answer", "state:rows"]
    good = [{ answer = "12 orders are open.", rows = "[[12]]" }]
    bad = [{ answer = "Several orders are open.", rows = "[[12]]" }]

An example of a criterion with one piece of evidence may be a plain text. Every fault is a sentence:
the place, the key, the nearest known one, the fix; all of them at once.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tradewind.rewards.criteria.checkers import CHECKERS, fault_of
from tradewind.rewards.criteria.criterion import (
    MINIMUM,
    Criterion,
    Evidence,
    Example,
    Kind,
    Rubric,
    Scope,
)
from tradewind.types.errors import UserError

RUBRIC_KEYS = ("rubric", "version", "author", "criteria")
CRITERION_KEYS = (*(name for name in Criterion.model_fields if name != "examples"), "good", "bad")
EXAMPLE_KEYS = ("task", "level", "note")
SHOWN_FAULTS = 6

_CHOICES: dict[str, tuple[str, ...]] = {
    "kind": tuple(Kind),
    "polarity": ("positive", "negative"),
    "quotes": ("found", "always"),
    "minimum_trust": MINIMUM,
}


def read_rubric(path: Path) -> Rubric:
    """The criteria of a file; raises `UserError` that names every fault."""
    text = _text_of(path)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(
            f"the criteria file is no TOML ({error})", value=str(path), fix="correct that line"
        ) from error
    reader = _Reader(text)
    rubric = reader.rubric(data)
    if rubric is None or reader.faults:
        shown = reader.faults[:SHOWN_FAULTS]
        more = len(reader.faults) - len(shown)
        sentence = "; ".join(str(fault) for fault in shown) + (f"; and {more} more" if more else "")
        raise UserError(
            f"the criteria file does not work ({sentence})", value=str(path), fix=shown[0].fix
        )
    return rubric


def read_criterion(path: Path, criterion_id: str) -> tuple[Rubric, Criterion]:
    """One criterion of a file, and its rubric; an empty id will do for a file with only one."""
    rubric = read_rubric(path)
    known = [criterion.id for criterion in rubric.criteria]
    if not criterion_id and len(known) == 1:
        return rubric, rubric.criteria[0]
    if criterion_id not in known:
        raise UserError(
            f"{path} has no criterion of that name",
            value=criterion_id,
            fix=_nearest(criterion_id, known, "write one of"),
        )
    return rubric, rubric[criterion_id]


@dataclass(frozen=True)
class Fault:
    """What is wrong, and where."""

    where: str
    what: str
    fix: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


class _Reader:
    """Goes through the data and notes faults; what it returns counts only without any."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines()
        self.faults: list[Fault] = []
        self._noted: set[tuple[int | None, str]] = set()

    def rubric(self, data: dict[str, Any]) -> Rubric | None:
        for key in [key for key in data if key not in RUBRIC_KEYS]:
            self._unknown(None, "the file", key, RUBRIC_KEYS)
        tables = data.get("criteria")
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            tables = []
        if not tables:
            self._note(None, "criteria", "the file has no [[criteria]] table", "write at least one")
            return None
        criteria = [self._criterion(number, table) for number, table in enumerate(tables)]
        ids = [criterion.id for criterion in criteria if criterion is not None]
        for twice in sorted({name for name in ids if ids.count(name) > 1}):
            what = f"two criteria are called {twice!r}"
            self._note(None, "id", what, "give each an id of its own")
        for key in ("rubric", "version"):
            if not data.get(key):
                self._note(None, key, f"the file has no {key}", f'write {key} = "..." at its top')
        try:
            return Rubric(
                name=data.get("rubric", ""),
                version=data.get("version", ""),
                author=data.get("author"),
                criteria=tuple(found for found in criteria if found is not None),
            )
        except ValidationError as error:
            self._invalid(None, "the file", error)
            return None

    def _criterion(self, number: int, table: dict[str, Any]) -> Criterion | None:
        name = str(table.get("id", f"criterion {number + 1}"))
        for key in [key for key in table if key not in CRITERION_KEYS]:
            self._unknown(number, name, key, CRITERION_KEYS)
        fields = {k: v for k, v in table.items() if k in Criterion.model_fields and k != "examples"}
        for key in [key for key in fields if key in _CHOICES]:
            self._choice(number, name, key, fields[key])
        fields["evidence"] = tuple(self._evidence(number, name, table.get("evidence", ["answer"])))
        for key in ("levels", "allow"):
            if isinstance(fields.get(key), list):
                fields[key] = tuple(fields[key])
        fault = fault_of(str(table["checker"])) if "checker" in table else None
        if fault:
            nearest = _nearest(str(table["checker"]), list(CHECKERS), "use one of")
            self._note(number, "checker", f"{name}: {fault}", nearest)
        before = len(self.faults)
        fields["examples"] = tuple(self._examples(number, name, table, fields["evidence"]))
        if len(self.faults) > before:
            fields["examples"] = ()
        try:
            return Criterion.model_validate(fields)
        except ValidationError as error:
            self._invalid(number, name, error)
            return None

    def _evidence(self, number: int, name: str, said: Any) -> Iterator[Evidence]:
        for one in [said] if isinstance(said, str) else said if isinstance(said, list) else [None]:
            scope, colon, artefact = str(one).partition(":")
            if scope not in tuple(Scope):
                what = f"{name}: evidence {one!r} begins with no known scope"
                self._note(number, "evidence", what, _nearest(scope, list(Scope), "write one of"))
                continue
            try:
                yield Evidence(scope=Scope(scope), artefact=artefact if colon else None)
            except ValidationError as error:
                self._invalid(number, name, error)

    def _examples(
        self, number: int, name: str, table: dict[str, Any], evidence: tuple[Evidence, ...]
    ) -> Iterator[Example]:
        names = [piece.name for piece in evidence]
        for kind in ("good", "bad"):
            said = table.get(kind, [])
            for one in said if isinstance(said, list) else [said]:
                if isinstance(one, str) and len(names) == 1:
                    one = {names[0]: one}
                if not isinstance(one, dict):
                    what = f"{name}: an example in {kind} is no table of texts"
                    fix = f"write {{ {', '.join(f'{key} = ...' for key in names)} }}"
                    self._note(number, kind, what, fix)
                    continue
                yield from self._example(number, f"{name}, {kind}", kind, one, names)

    def _example(
        self, number: int, name: str, kind: str, table: dict[str, Any], names: list[str]
    ) -> Iterator[Example]:
        for key in [key for key in table if key not in (*names, *EXAMPLE_KEYS)]:
            self._unknown(number, name, key, (*names, *EXAMPLE_KEYS))
        missing = [key for key in names if key not in table]
        if missing:
            fix = f'write {missing[0]} = "..." in it; an empty text will do'
            self._note(number, kind, f"{name}: an example lacks {missing[0]!r}", fix)
        shown = {key: table[key] for key in names if key in table}
        about = {key: table[key] for key in EXAMPLE_KEYS if key in table}
        try:
            yield Example(good=kind == "good", shown=shown, **about)
        except ValidationError as error:
            self._invalid(number, name, error)

    def _choice(self, number: int, name: str, key: str, said: Any) -> None:
        if said not in _CHOICES[key]:
            nearest = _nearest(str(said), _CHOICES[key], "write one of")
            self._note(number, key, f"{name}: {key} = {said!r} is no {key}", nearest)

    def _unknown(self, number: int | None, name: str, key: str, known: Collection[str]) -> None:
        self._note(number, key, f"{name} has an unknown key {key!r}", _nearest(key, known, "known"))

    def _invalid(self, number: int | None, name: str, error: ValidationError) -> None:
        for fault in error.errors():
            key = str(fault["loc"][0]) if fault["loc"] else ""
            if key == "criteria" or (number, "rubric" if key == "name" else key) in self._noted:
                continue  # said before, and better
            said = fault["msg"].removeprefix("Value error, ")
            what = f"{name}: {key} = {fault['input']!r}: {said}" if key else f"{name}: {said}"
            if fault["type"] == "missing":
                what = f"{name} has no {key!r}"
            self._note(number, key, what, f"correct {key or name}")

    def _note(self, number: int | None, key: str, what: str, fix: str) -> None:
        line = self._line(number, key)
        self._noted.add((number, key))
        self.faults.append(Fault("the file" if line is None else f"line {line}", what, fix))

    def _line(self, number: int | None, key: str) -> int | None:
        """The line of a key in criterion `number` (from 0), or of the criterion itself."""
        table, begins = -1, None
        wanted = re.compile(rf'[\[{{,\s]*(?:criteria\.)?"?{re.escape(key)}"?\s*(?:=|\]\])')
        inside = re.compile(rf'[{{,]\s*"?{re.escape(key)}"?\s*=')
        for at, line in enumerate(self._lines, 1):
            if re.match(r"\s*\[\[\s*criteria\s*\]\]", line):
                table += 1
                begins = at if table == number else begins
            here = table == (-1 if number is None else number) and bool(key)
            if here and (wanted.match(line) or inside.search(line)):
                return at
        return begins


def _nearest(said: str, known: Collection[str], otherwise: str) -> str:
    near = difflib.get_close_matches(said, known, n=1, cutoff=0.6)
    return f"did you mean {str(near[0])!r}?" if near else f"{otherwise}: {', '.join(known)}"


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"the criteria file cannot be read ({error.strerror})",
            value=str(path),
            fix=f"check the path; a relative one begins in {Path.cwd()}",
        ) from error
    except UnicodeDecodeError as error:
        raise UserError(
            "the criteria file is not UTF-8", value=str(path), fix="save it as UTF-8"
        ) from error
