"""Runs somebody's verifier in a process of its own; started by its path, standard library only.

launch.py ... foreign_child.py FILE OBJECT
stdin   {"ask": "about"} | {"ask": "check", "task"} | {"ask": "oracle", "task"}
        {"ask": "score", "task", "outcome"}
stdout  {...} | {"error": str}        one line per question
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any


def load(file: str, attribute: str) -> Any:
    """The object called `attribute` in a Python file."""
    path = Path(file)
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None, file
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, attribute)


def answer(verifier: Any, question: dict[str, Any]) -> dict[str, Any]:
    """What the verifier says."""
    if question["ask"] == "about":
        return {"version": getattr(verifier, "version", None)}
    if question["ask"] == "check":
        check = getattr(verifier, "check", None)
        return {"cause": check(question["task"]) if check else None}
    if question["ask"] == "oracle":
        oracle = getattr(verifier, "oracle", None)
        return {"artefacts": oracle(question["task"]) if oracle else None}
    score = getattr(verifier, "score", verifier)
    verdict = score(question["task"], question["outcome"])
    if isinstance(verdict, dict):
        return verdict
    if verdict is None:
        return {"value": None, "cause": "the verifier gave no value"}
    try:
        return {"value": float(verdict), "cause": None}
    except (TypeError, ValueError):
        raise ValueError(f"it returned {verdict!r:.80}, which is no number") from None


def main() -> None:
    """Answer until the parent closes the pipe."""
    # What the verifier prints must not be taken for an answer.
    channel = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        verifier, fault = load(*sys.argv[1:3]), None
    except Exception as error:  # noqa: BLE001  # boundary: somebody else's module
        verifier, fault = None, f"{type(error).__name__}: {error}"
    for line in sys.stdin.buffer:
        try:
            said = {"error": fault} if fault else answer(verifier, json.loads(line))
        except Exception as error:  # noqa: BLE001  # boundary: somebody else's code
            said = {"error": f"{type(error).__name__}: {error}"}
        channel.write(json.dumps(said).encode() + b"\n")
        channel.flush()


if __name__ == "__main__":
    main()
