"""Does the agent see what it should find out? The task's input against its reference."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator

from tradewind.rewards.admission.leaves import leaves
from tradewind.types.record import Json
from tradewind.types.task import Task

_TEST = re.compile(r"\b(test_\w+|\w+_test)\b")
_WORD = re.compile(r"\w+|[^\w\s]")
_FEW = 6
"""Fewer words, signs among them, have no parts worth the name."""
_NAME = re.compile(r"[A-Za-z_]+(\.[A-Za-z_]+)*\d?")


def leaks(task: Task, oracle: Json | None, shortest: int, share: float = 1.0) -> list[str]:
    """A sentence for each text of the oracle or the reference that stands in the input.

    Texts are compared without case, spacing and closing punctuation, as whole words. Those with
    fewer than `shortest` characters prove nothing (a year, a city), nor does a name that is no
    answer (the function that has to be written); a name of a hidden test does. Of the oracle's
    texts, `share` of their words in one piece is enough.
    """
    seen = normalised(" \n ".join(_texts(task.input)))
    found = []
    answers = list(_texts(oracle or {}))
    for text in dict.fromkeys((*answers, *_texts(task.reference))):
        told = _NAME.fullmatch(text) is not None and text not in answers
        if not told and len(normalised(text)) >= shortest and _within(normalised(text), seen):
            found.append(f"the input holds {_short(text)!r}, which is in the reference")
        elif text in answers and (part := _piece(text, seen, shortest, share)) is not None:
            found.append(f"the input holds {_short(part)!r}, most of a right answer")
        for name in sorted(set(_TEST.findall(text))):
            if _within(name.lower(), seen):
                found.append(f"the input names the hidden test {name!r}")
    return list(dict.fromkeys(found))


def _piece(text: str, seen: str, shortest: int, share: float) -> str | None:
    """`share` of a text's words as they follow each other in `seen`, or None."""
    words = _WORD.findall(_work(text).lower())
    size = math.ceil(share * len(words))
    if len(words) < _FEW or share == 1:
        return None
    told = f" {' '.join(_WORD.findall(seen))} "
    pieces = (" ".join(words[at : at + size]) for at in range(len(words) - size + 1))
    return next((p for p in pieces if len(p) >= shortest and f" {p} " in told), None)


def _work(text: str) -> str:
    """Of a program what its functions do: signatures and docstrings are the question's."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return text
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    lines = [
        ast.unparse(statement)
        for function in functions
        for statement in function.body[ast.get_docstring(function) is not None :]
    ]
    return "\n".join(lines) if functions else text


def normalised(text: str) -> str:
    """Without what does not change the meaning: case, spacing, closing punctuation."""
    return re.sub(r"\s+", " ", text).strip().rstrip(";.?! ").lower()


def _within(text: str, seen: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(text)}(?!\w)", seen) is not None


def _texts(value: Json) -> Iterator[str]:
    """Every text and every key that is a file's name."""
    for path, leaf in leaves(value):
        if isinstance(leaf, str):
            yield leaf
        yield from (str(key) for key in path if isinstance(key, str) and "." in key)


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."
