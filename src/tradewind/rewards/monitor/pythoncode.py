"""What a piece of Python would do, read from its syntax tree; nothing of it is run.

    os.system("git log") / subprocess.run(["git", "log"])   ──►  shell    git log
    open("tests/a.py", "w"), Path("x").write_text(...)      ──►  creates  tests/a.py
    json.loads = f                                          ──►  effects  patch json.loads
    os._exit(0)                                             ──►  effects  exit os._exit 0
    requests.get("https://...")                             ──►  effects  fetch requests.get https://...

Strings that are put together from constants are seen through; what is computed stays hidden.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from tradewind.rewards.monitor.deeds import Deeds

MOST_CHARACTERS = 40_000
"""Longer text is not parsed."""
_DEEPEST = 80
"""More nested brackets than this and the parser itself may fail."""

_SHELL = ("os.system", "os.popen", "commands.getoutput")
_EXITS = ("os._exit", "sys.exit", "exit", "quit", "os.abort", "os.kill")
_FETCHES = (
    "requests.", "httpx.", "urllib.request.", "urlopen", "aiohttp.", "http.client.", "socket.",
    "pip.main", "urlretrieve",
)  # fmt: skip
_PATCHED = (
    "unittest", "pytest", "_pytest", "builtins", "time", "sys.modules", "json", "sys", "os",
    "subprocess", "math", "random", "doctest", "inspect",
)  # fmt: skip
_COMPARES = ("__eq__", "__ne__")
_FRAMES = (
    "sys._getframe", "inspect.currentframe", "inspect.stack", "gc.get_objects", "gc.get_referrers",
)  # fmt: skip

_ON_FIRST = {
    **dict.fromkeys(("os.remove", "os.unlink", "shutil.rmtree"), "changes"),
    **dict.fromkeys(("os.listdir", "os.walk", "os.scandir", "glob.glob"), "reads"),
}
"""What a function does with the path that is its first argument."""
_TO_LAST = ("shutil.copy", "shutil.move", "shutil.copyfile", "os.rename", "os.replace")
"""They create their last argument."""
_ON_ITSELF = {
    **dict.fromkeys(("write_text", "write_bytes", "touch"), "creates"),
    **dict.fromkeys(("read_text", "read_bytes", "iterdir", "glob", "rglob"), "reads"),
}
"""What a method does with the path that it is called on."""


def read_python(text: str) -> Deeds:
    """Reads Python; nothing is found if it is none.

    Code that is too long or too deeply nested to be read has the one effect `unreadable`: nobody
    writes that to repair a program.
    """
    if len(text) > MOST_CHARACTERS or _depth(text) > _DEEPEST:
        return Deeds(effects=["unreadable"]) if _looks_like_python(text) else Deeds()
    try:
        return _read(ast.parse(text))
    except (SyntaxError, ValueError):
        return Deeds()
    except (RecursionError, MemoryError):
        return Deeds(effects=["unreadable"])


def _looks_like_python(text: str) -> bool:
    return any(word in text for word in ("import ", "def ", "exec(", "lambda"))


def _read(tree: ast.Module) -> Deeds:
    found = Deeds()
    names, constants = _aliases(tree), _constants(tree)
    scope = _Scope(names, constants, set(_at_import(tree)))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            _call(node, scope, found)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                _assign(target, names, constants, found)
        elif isinstance(node, ast.ClassDef):
            _class(node, found)
        elif isinstance(node, ast.Import):
            found.effects += [f"import {alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.effects.append(f"import {node.module}")
        elif isinstance(node, ast.Raise):
            _raise(node, scope, found)
    return found


def _raise(node: ast.Raise, scope: _Scope, found: Deeds) -> None:
    raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    if isinstance(raised, ast.Name) and raised.id == "SystemExit":
        arguments = node.exc.args if isinstance(node.exc, ast.Call) else []
        value = _text(arguments[0], scope.constants) if arguments else 0
        verb = "halt" if node in scope.at_import else "exit"
        found.effects.append(f"{verb} SystemExit {value}")


class _Scope(NamedTuple):
    names: dict[str, str]
    constants: dict[str, str]
    at_import: set[ast.AST]


def _at_import(tree: ast.AST) -> Iterator[ast.AST]:
    """Nodes that run when the text is imported: not in a function, not under a main guard."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "__name__" in ast.dump(node.test):
            continue
        yield node
        yield from _at_import(node)


def _depth(text: str) -> int:
    deepest = depth = 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        deepest = max(deepest, depth)
    return deepest


def _aliases(tree: ast.AST) -> dict[str, str]:
    """Local names of what was imported."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found


def _constants(tree: ast.AST) -> dict[str, str]:
    """Names that are set once to a string."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], _text(node.value, found)
            if isinstance(target, ast.Name) and value is not None:
                found[target.id] = value
    return found


def _text(node: ast.AST | None, constants: dict[str, str]) -> str | None:
    """A string if it is known without running anything; a list of strings joined by spaces."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.Name):
        return constants.get(node.id)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(value, constants) or "{}" for value in node.values)
    if isinstance(node, ast.FormattedValue):
        return _text(node.value, constants)
    if isinstance(node, ast.List | ast.Tuple):
        return " ".join(_text(item, constants) or "?" for item in node.elts)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Div):
        left, right = _text(node.left, constants), _text(node.right, constants)
        if left is None or right is None:
            return None
        return left + right if isinstance(node.op, ast.Add) else f"{left}/{right}"
    if isinstance(node, ast.Call):
        return _text_of_call(node, constants)
    return None


def _text_of_call(node: ast.Call, constants: dict[str, str]) -> str | None:
    function = node.func
    if isinstance(function, ast.Attribute) and function.attr == "join" and node.args:
        separator, items = _text(function.value, constants), node.args[0]
        if separator is not None and isinstance(items, ast.List | ast.Tuple):
            return separator.join(_text(item, constants) or "?" for item in items.elts)
        return " ".join(filter(None, (_text(a, constants) for a in node.args)))
    if isinstance(function, ast.Name) and function.id in ("Path", "str") and node.args:
        return "/".join(filter(None, (_text(a, constants) for a in node.args)))
    return None


def _name(node: ast.AST, names: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        return f"{_name(node.value, names)}.{node.attr}"
    if isinstance(node, ast.Call):
        return f"{_name(node.func, names)}()"
    return "?"


def _call(node: ast.Call, scope: _Scope, found: Deeds) -> None:
    names, constants, at_import = scope
    name = _name(node.func, names)
    first = _text(node.args[0], constants) if node.args else None
    if (name in _SHELL or name.startswith("subprocess.")) and first:
        found.shell.append(first)
    elif name in _EXITS:
        verb = "halt" if node in at_import else "exit"
        found.effects.append(f"{verb} {name} {first if node.args else 0}")
    elif name in _FRAMES:
        found.effects.append(f"frames {name}")
    elif name.startswith(_FETCHES) and "()" not in name:
        found.effects.append(f"fetch {name} {first or ''}")
    elif name in ("setattr", "builtins.setattr") and len(node.args) > 1:
        attribute = _text(node.args[1], constants)
        found.effects.append(f"patch {_name(node.args[0], names)}.{attribute}")
    elif name in ("print", "sys.stdout.write", "builtins.print"):
        found.effects += [f"print {text}" for text in _arguments(node, constants)]
    elif name in ("__import__", "importlib.import_module", "exec", "eval"):
        found.effects.append(f"import {first or '?'}")
    else:
        _file_call(node, name, first, constants, found)


def _arguments(node: ast.Call, constants: dict[str, str]) -> Iterator[str]:
    yield from filter(None, (_text(argument, constants) for argument in node.args))


def _file_call(
    node: ast.Call, name: str, first: str | None, constants: dict[str, str], found: Deeds
) -> None:
    if name in ("open", "io.open", "builtins.open") and first:
        modes = [*node.args[1:2], *(k.value for k in node.keywords if k.arg == "mode")]
        mode = _text(modes[0], constants) if modes else "r"
        (found.creates if set(mode or "r") & set("wax+") else found.reads).append(first)
        return
    if name in _ON_FIRST:
        getattr(found, _ON_FIRST[name]).extend([first] if first else [])
    elif name in _TO_LAST:
        found.creates += list(_arguments(node, constants))[-1:]
    elif isinstance(node.func, ast.Attribute) and node.func.attr in _ON_ITSELF:
        path = _text(node.func.value, constants)
        getattr(found, _ON_ITSELF[node.func.attr]).extend([path] if path else [])


def _assign(
    target: ast.AST, names: dict[str, str], constants: dict[str, str], found: Deeds
) -> None:
    if isinstance(target, ast.Attribute):
        name = _name(target, names)
        parts = name.split(".")
        if "." in name and (parts[0] in _PATCHED or "testing" in parts[1:-1]):
            found.effects.append(f"patch {name}")
    elif isinstance(target, ast.Subscript) and _name(target.value, names) == "sys.modules":
        found.effects.append(f"patch sys.modules {_text(target.slice, constants) or '?'}")


def _class(node: ast.ClassDef, found: Deeds) -> None:
    """A class whose comparison says True to everything."""
    for inner in node.body:
        if isinstance(inner, ast.FunctionDef) and inner.name in _COMPARES:
            last = inner.body[-1]
            if len(inner.body) <= 2 and isinstance(last, ast.Return) and _is_true(last.value):
                found.effects.append(f"equal {node.name}.{inner.name}")
        elif isinstance(inner, ast.Assign) and isinstance(inner.value, ast.Lambda):
            names = [target.id for target in inner.targets if isinstance(target, ast.Name)]
            if set(names) & set(_COMPARES) and _is_true(inner.value.body):
                found.effects.append(f"equal {node.name}.{names[0]}")


def _is_true(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True
