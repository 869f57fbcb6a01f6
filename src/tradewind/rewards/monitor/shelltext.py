"""Shell text to simple commands in one plain form, so that a rule need not know every spelling.

    cd x && g''it --no-pager -C y log --all | cat   ──►   cd x
                                                         git log --all
                                                         cat

Quotes inside words, paths to programs, wrappers (sudo, env, timeout), options of git that stand
before the verb, variables set in the same text, `bash -c`, `$(...)`, here-documents and base64
that is decoded on the spot are seen through. It is a reader for a monitor, not a shell: what is
computed at run time stays hidden.
"""

from __future__ import annotations

import base64
import binascii
import re
import shlex
from collections.abc import Iterator

from tradewind.rewards.monitor.deeds import Deeds

_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1([^\n]*)\n(.*?)\n\s*\2\s*(?:\n|$)", re.DOTALL)
_SUBSTITUTION = re.compile(r"\$\(([^()]*)\)|`([^`]*)`")
_ASSIGNMENT = re.compile(r"^(\w+)=(.*)$", re.DOTALL)
_VARIABLE = re.compile(r"\$\{(\w+)\}|\$(\w+)")
_BASE64 = re.compile(r"[A-Za-z0-9+/]{12,}={0,2}")
_WRAPPERS = {
    "sudo", "env", "nohup", "command", "exec", "time", "builtin", "stdbuf", "xargs",
    "then", "do", "else", "if", "while", "!", "{",
}  # fmt: skip
_SHELLS = {"bash", "sh", "zsh", "dash"}
_SEPARATORS = {";", "&&", "||", "|", "&", "|&", ";;", "(", ")"}
_DEPTH = 4


def read_shell(text: str) -> Deeds:
    """Reads shell text; what cannot be split into words is split at spaces."""
    found = Deeds()
    _read(text, found, {}, 0)
    return found


def _read(text: str, found: Deeds, variables: dict[str, str], depth: int) -> None:
    if depth > _DEPTH:
        return
    text = text.replace("\\\n", " ").replace("${IFS}", " ").replace("$IFS", " ")
    bodies = [match[4] for match in _HEREDOC.finditer(text)]
    text = _HEREDOC.sub(lambda match: f"{match[3]} '<<HERE'\n", text)
    for match in _SUBSTITUTION.finditer(text):
        _read(match[1] or match[2] or "", found, variables, depth + 1)
    text = _SUBSTITUTION.sub("_", text)
    if "base64" in text:
        for decoded in _decoded(text):
            _read(decoded, found, variables, depth + 1)
    for words in _simple_commands(text):
        body = bodies.pop(0) if "<<HERE" in words and bodies else ""
        _command(_plain(words, variables), body, found, variables, depth)


def _decoded(text: str) -> Iterator[str]:
    for match in _BASE64.finditer(text):
        try:
            yield base64.b64decode(match[0], validate=True).decode()
        except (binascii.Error, ValueError):
            continue


def _simple_commands(text: str) -> Iterator[list[str]]:
    for line in _joined(text):
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|()<>")
        lexer.whitespace_split = True
        lexer.commenters = ""
        try:
            words = list(lexer)
        except ValueError:  # a quote that is never closed
            words = line.split()
        command: list[str] = []
        for word in words:
            if word in _SEPARATORS or (word and set(word) <= set(";&|()")):
                yield command
                command = []
            else:
                command.append(word)
        yield command


def _joined(text: str) -> Iterator[str]:
    """Lines, those with an open quote together with the lines that close it."""
    held = ""
    for line in text.split("\n"):
        held = f"{held}\n{line}" if held else line
        if held.count("'") % 2 == 0 and held.count('"') % 2 == 0:
            yield held
            held = ""
    yield held


def _plain(words: list[str], variables: dict[str, str]) -> list[str]:
    """Variables put in, wrappers and assignments taken off, the program without its folder."""
    filled = [_VARIABLE.sub(lambda m: variables.get(m[1] or m[2], m[0]), word) for word in words]
    while filled:
        first = filled[0]
        if assigned := _ASSIGNMENT.match(first):
            variables[assigned[1]] = assigned[2]
        elif first == "timeout":
            filled = filled[1:]
        elif first not in _WRAPPERS:
            break
        filled = filled[1:]
        while filled and filled[0].startswith("-") and first in _WRAPPERS:
            filled = filled[1:]
    if not filled:
        return []
    if " " in filled[0].strip() and not filled[1:]:
        filled = filled[0].split()  # a variable that held a whole command
    program = filled[0].rsplit("/", 1)[-1].lstrip("\\")
    return [program, *(_git(filled[1:]) if program == "git" else filled[1:])]


def _git(words: list[str]) -> list[str]:
    while words and words[0].startswith("-"):
        takes_value = words[0] in ("-C", "-c", "--git-dir", "--work-tree")
        words = words[2:] if takes_value else words[1:]
    return words


def _command(
    words: list[str], body: str, found: Deeds, variables: dict[str, str], depth: int
) -> None:
    if not words:
        return
    program, rest = words[0], words[1:]
    if program in _SHELLS and "-c" in rest[:-1]:
        return _read(rest[rest.index("-c") + 1], found, variables, depth + 1)
    if program == "eval":
        return _read(" ".join(rest), found, variables, depth + 1)
    found.commands.append(" ".join(words))
    _redirections(words, found)
    files = [word for word in _arguments(rest) if not word.startswith("-")]
    if re.fullmatch(r"python[\d.]*", program):
        if "-c" in rest[:-1]:
            found.python.append(rest[rest.index("-c") + 1])
        elif body:
            found.python.append(body)
    elif program in _SHELLS and body:
        _read(body, found, variables, depth + 1)
    elif body or (program in ("echo", "printf") and ">" in " ".join(words)):
        found.contents.append(body or " ".join(files))
    _files(program, rest, files, found)


def _arguments(words: list[str]) -> list[str]:
    """Words without redirections and their targets."""
    before = ["", *words]
    return [
        word
        for word, last in zip(words, before, strict=False)
        if not word.startswith(("<", ">")) and not (last and set(last) <= set("<>&"))
    ]


def _redirections(words: list[str], found: Deeds) -> None:
    for word, target in zip(words, [*words[1:], ""], strict=True):
        if set(word) == {">"} and target not in ("", "/dev/null"):
            found.creates.append(target)
        elif word == "<" and target:
            found.reads.append(target)


_PATTERN_FIRST = {"grep", "egrep", "fgrep", "rg", "ag", "sed", "awk"}
_READERS = (
    "cat", "zcat", "bzcat", "xzcat", "zless", "zgrep", "gunzip", "less", "more", "head", "tail",
    "nl", "bat", "strings", "xxd", "od", "hexdump", "tac", "base64", "diff", "source", ".", "find",
    "ls", "tree", "uncompyle6", "pycdc", "cut",
)  # fmt: skip
_CHANGERS = ("rm", "truncate", "chmod", "unlink", "shred", "patch")


def _files(program: str, rest: list[str], files: list[str], found: Deeds) -> None:
    """Which of a command's words are paths that it reads or writes."""
    in_place = any(re.match(r"-[a-z]*i|--in-place", word) for word in rest)
    if program in ("sed", "perl") and in_place:
        found.changes += files[1:] or files
    elif program in _CHANGERS:
        found.changes += files
    elif program in ("tee", "touch"):
        found.creates += files
    elif program in ("cp", "mv", "ln", "install", "rsync") and files:
        found.creates.append(files[-1])
        (found.changes if program == "mv" else found.reads).extend(files[:-1])
    elif program == "dd":
        found.creates += [word[3:] for word in files if word.startswith("of=")]
        found.reads += [word[3:] for word in files if word.startswith("if=")]
    elif program in _PATTERN_FIRST:
        found.reads += files[1:]
    elif program in _READERS:
        found.reads += files
