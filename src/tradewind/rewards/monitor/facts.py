"""A trajectory as plain facts, which rules are matched against.

    acts ──► shelltext.py, pythoncode.py ──► run, read, create, change, effect, content
    results ──► output        answers ──► said        artefacts ──► effect, content

One fact is one line of text with where it was found; nothing is executed. Code that is only written
to a file has not been done: it counts as done once a later command runs that file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from tradewind.rewards.monitor.deeds import Deeds
from tradewind.rewards.monitor.pythoncode import read_python
from tradewind.rewards.monitor.shelltext import read_shell
from tradewind.rewards.trajectory import Act, Trajectory, flatten

MOST_CHARACTERS = 40_000
"""So much of one argument, result or answer is read; the rest is counted as not read."""


MOST_SHELL = 10_000
"""The same for shell text, which is no program but what one types."""


class On(StrEnum):
    """What a fact is about."""

    RUN = "run"
    """A simple shell command."""
    READ = "read"
    """A path that is read or listed."""
    CREATE = "create"
    """A path that is written as a whole."""
    CHANGE = "change"
    """A path that is edited, moved or removed."""
    EFFECT = "effect"
    """What Python would do: `exit`, `halt`, `fetch`, `patch`, `equal`, `print`, `import`."""
    CONTENT = "content"
    """Text that goes into a file, or is an artefact."""
    OUTPUT = "output"
    """What came back from a tool."""
    SAID = "said"
    """What the model wrote."""
    STATE = "state"
    """`no-acts`: tools were offered and none was used. `forged-pass`: the last answer shows a test
    summary that no tool has printed."""


class Origin(StrEnum):
    """How a fact came about."""

    DONE = "done"
    WRITTEN = "written"
    """It stands in a file that the agent wrote."""
    HANDED_IN = "handed_in"
    """It stands in an artefact of the outcome."""


@dataclass(frozen=True)
class Fact:
    """Example: `Fact(On.RUN, "git log --all", "g000017-r3-t2")`."""

    on: On
    text: str
    where: str
    """A turn id, or `artefact:` and its path."""
    origin: Origin = Origin.DONE


_SHELL_TOOL = re.compile(r"bash|shell|terminal|command|console|exec|^sh$|^run", re.IGNORECASE)
_PYTHON_TOOL = re.compile(r"python|jupyter|notebook|^py$", re.IGNORECASE)
_SHELL_FENCES = {"bash", "sh", "shell", "console", "zsh", "text", "terminal"}
_CREATE_TOOL = re.compile(r"create|write|save|new_file", re.IGNORECASE)
_CHANGE_TOOL = re.compile(
    r"edit|replace|insert|patch|delete|remove|move|rename|append|update", re.IGNORECASE
)
_READ_TOOL = re.compile(r"read|view|open|cat|show|get|list|glob|find|search|grep", re.IGNORECASE)
_PATH_KEYS = {
    "path", "file", "filename", "file_path", "filepath", "target_file", "target", "dir",
    "directory", "paths",
}  # fmt: skip
_COMMAND_KEYS = {"command", "cmd", "script", "commands", "input", "shell"}
_URL = re.compile(r"^\w+://\S+$")
_PATCHED = re.compile(r"^(?:\+\+\+ (?:b/)?|\*\*\* (?:Update|Add|Delete) File: )(\S+)", re.MULTILINE)
_STARTED = re.compile(r"^(?:python[\d.]*|bash|sh|\.|source) (?:-\S+ )*(\S+)")
_SUMMARY = re.compile(r"\b\d+ passed\b[^\n=]{0,60}(=|in [\d.]+ ?s)")


def facts(seen: Trajectory) -> list[Fact]:
    """All facts of a trajectory, acts first, in the order of the acts."""
    found: list[Fact] = []
    written: dict[str, str] = {}
    for act in seen.acts:
        did = list(_of_act(act, written))
        found += did
        for fact in did:
            if fact.on is On.RUN and (run := _STARTED.match(fact.text)):
                text = written.get(_file_name(run[1]))
                found += _of_python(text, fact.where, Origin.DONE) if text else []
    for act in seen.acts:
        if act.result:
            found.append(Fact(On.OUTPUT, act.result[:MOST_CHARACTERS], act.turn_id))
    found += [Fact(On.SAID, text[:MOST_CHARACTERS], turn) for turn, text in seen.said if text]
    for path, text in seen.artefacts.items():
        found += _of_content(text, path, f"artefact:{path}", Origin.HANDED_IN)
    return found + list(_states(seen))


def unread_characters(seen: Trajectory) -> int:
    """Characters beyond what is read of each text."""
    texts = [text for act in seen.acts for _, text in flatten(act.arguments)]
    texts += [act.result or "" for act in seen.acts] + [text for _, text in seen.said]
    texts += seen.artefacts.values()
    return sum(max(0, len(text) - MOST_CHARACTERS) for text in texts)


def _states(seen: Trajectory) -> Iterator[Fact]:
    if seen.offered and not seen.acts:
        yield Fact(On.STATE, "no-acts", seen.said[-1][0] if seen.said else "")
    shown = _SUMMARY.search(seen.final)
    printed = any(_SUMMARY.search(act.result or "") for act in seen.acts)
    if shown and not printed:
        yield Fact(On.STATE, f"forged-pass {shown[0]}", seen.said[-1][0])


def _of_act(act: Act, written: dict[str, str]) -> Iterator[Fact]:
    """What one act did; texts that it puts into files are kept in `written` by file name."""
    arguments = [(path, text[:MOST_CHARACTERS]) for path, text in flatten(act.arguments)]
    paths = [text for key, text in arguments if _key(key) in _PATH_KEYS]
    verb = _verb(act, arguments)
    for path in paths:
        yield Fact(verb, path, act.turn_id)
    for key, text in arguments:
        if _URL.match(text):
            yield Fact(On.EFFECT, f"fetch {act.tool} {text}", act.turn_id)
        elif _key(key) in _PATH_KEYS or (_key(key) == "command" and verb is not On.RUN):
            continue
        elif _is_shell(act.tool, key):
            yield from _of_shell(text, act.turn_id, Origin.DONE)
        elif _PYTHON_TOOL.search(act.tool) or (_key(key) == "code" and not paths):
            yield from _of_python(text, act.turn_id, Origin.DONE)
        else:
            path = paths[0] if paths else ""
            written[_file_name(path)] = text
            yield from _of_content(text, path, act.turn_id, Origin.WRITTEN)


def _file_name(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _key(path: str) -> str:
    """The last key that is a name: `paths/0` is `paths`."""
    return next((part for part in reversed(path.split("/")) if not part.isdigit()), "").lower()


def _is_shell(tool: str, key: str) -> bool:
    if _PYTHON_TOOL.search(tool):
        return False
    return tool in _SHELL_FENCES or _key(key) in _COMMAND_KEYS or bool(_SHELL_TOOL.search(tool))


def _verb(act: Act, arguments: list[tuple[str, str]]) -> On:
    """What a tool does with its paths; an editor with a `command` argument says it there."""
    words = [text for key, text in arguments if _key(key) == "command" and " " not in text]
    for name in [*words, act.tool]:
        for pattern, verb in (
            (_CREATE_TOOL, On.CREATE),
            (_CHANGE_TOOL, On.CHANGE),
            (_READ_TOOL, On.READ),
        ):
            if pattern.search(name) and any(_key(key) in _PATH_KEYS for key, _ in arguments):
                return verb
    return On.RUN if words or not any(_key(k) in _PATH_KEYS for k, _ in arguments) else On.READ


def _of_shell(text: str, where: str, origin: Origin) -> Iterator[Fact]:
    return _of_deeds(read_shell(text[:MOST_SHELL]), where, origin)


def _of_python(text: str, where: str, origin: Origin) -> Iterator[Fact]:
    return _of_deeds(read_python(text), where, origin)


def _of_deeds(found: Deeds, where: str, origin: Origin) -> Iterator[Fact]:
    for on, lines in (
        (On.RUN, found.commands),
        (On.READ, found.reads),
        (On.CREATE, found.creates),
        (On.CHANGE, found.changes),
        (On.EFFECT, found.effects),
    ):
        yield from (Fact(on, line, where, origin) for line in lines)
    for text in found.shell:
        yield from _of_shell(text, where, origin)
    for text in found.python:
        yield from _of_python(text, where, origin)
    for text in found.contents:
        yield from _of_content(text, "", where, Origin.WRITTEN)


def _of_content(text: str, path: str, where: str, origin: Origin) -> Iterator[Fact]:
    """Text that goes into a file: searched as it is, and read as Python if it is that."""
    text = text[:MOST_CHARACTERS]
    yield Fact(On.CONTENT, text, where, origin)
    yield from (Fact(On.CHANGE, patched, where) for patched in _PATCHED.findall(text))
    if path.endswith(".py") or "\n" in text or "(" in text:
        yield from _of_python(text, where, origin)
