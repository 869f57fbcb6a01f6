"""Small errors in a SQL query: the ones that people and models make."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

_TOKEN = re.compile(
    r"""(?P<text>'(?:[^']|'')*')|(?P<name>"[^"]*"|[A-Za-z_]\w*)|(?P<number>\d+(?:\.\d+)?)"""
    r"""|(?P<compare><=|>=|<>|!=|<|>|=)|(?P<other>\s+|.)""",
    re.DOTALL,
)
_COMPARE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "<>", "<>": "=", "!=": "="}
_AGGREGATE = {"count": "max", "sum": "avg", "avg": "sum", "max": "min", "min": "max"}
_WORDS = {"and": "or", "or": "and", "asc": "desc", "desc": "asc", "like": "not like"}
_DROPPED = ("distinct", "desc", "not")


def sql_mutants(sql: str) -> Iterator[tuple[str, str]]:
    """What was done, and the query with that one error; operator by operator, in a fixed order.

    Names inside texts are left alone, keywords inside them are no keywords.
    """
    tokens = [(match.lastgroup or "other", match.group()) for match in _TOKEN.finditer(sql)]
    for rule in (_literal, _comparison, _aggregate, _word, _dropped, _arithmetic):
        yield from _each(tokens, rule)
    yield from _without_condition(sql)


_Tokens = list[tuple[str, str]]
_Rule = Callable[[_Tokens, int], tuple[str, str] | None]


def _each(tokens: _Tokens, rule: _Rule) -> Iterator[tuple[str, str]]:
    for at in range(len(tokens)):
        if (found := rule(tokens, at)) is not None:
            done, text = found
            parts = [token for _, token in tokens]
            yield done, "".join([*parts[:at], text, *parts[at + 1 :]])


def _literal(tokens: _Tokens, at: int) -> tuple[str, str] | None:
    kind, token = tokens[at]
    if kind == "number":
        if _previous_word(tokens, at) in ("by", "sqlite"):
            return None  # `order by 1` names a column
        more = str(int(token) + 1) if token.isdigit() else str(float(token) * 1.5)
        return f"{token} became {more}", more
    if kind == "text" and len(token) > 2:
        inner = token[1:-1]
        changed = _other_digits(inner) if any(c.isdigit() for c in inner) else inner[:-1]
        return f"{token} became '{changed}'", f"'{changed}'"
    return None


def _other_digits(text: str) -> str:
    """The last digit is another one."""
    at = max(index for index, letter in enumerate(text) if letter.isdigit())
    return text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :]


def _comparison(tokens: _Tokens, at: int) -> tuple[str, str] | None:
    kind, token = tokens[at]
    if kind != "compare":
        return None
    return f"{token} became {_COMPARE[token]}", _COMPARE[token]


def _aggregate(tokens: _Tokens, at: int) -> tuple[str, str] | None:
    kind, token = tokens[at]
    called = at + 1 < len(tokens) and tokens[at + 1][1] == "("
    other = _AGGREGATE.get(token.lower()) if kind == "name" and called else None
    if other == "max" and "".join(t for _, t in tokens[at + 1 : at + 4]) == "(*)":
        other = "1 + count"  # max(*) would be no query at all
    return None if other is None else (f"{token} became {other}", other)


def _word(tokens: _Tokens, at: int) -> tuple[str, str] | None:
    kind, token = tokens[at]
    other = _WORDS.get(token.lower()) if kind == "name" else None
    if token.lower() == "and" and "between" in (t.lower() for _, t in tokens[max(0, at - 8) : at]):
        return None
    return None if other is None else (f"{token} became {other}", other)


def _dropped(tokens: _Tokens, at: int) -> tuple[str, str] | None:
    kind, token = tokens[at]
    if kind != "name" or token.lower() not in _DROPPED:
        return None
    return f"{token} was left out", ""


def _arithmetic(tokens: _Tokens, at: int) -> tuple[str, str] | None:
    _, token = tokens[at]
    if token not in "*+-" or not token:
        return None
    left = "".join(t for _, t in tokens[:at]).rstrip()
    right = "".join(t for _, t in tokens[at + 1 :]).lstrip()
    if not left or not right or not (left[-1].isalnum() and right[0].isalnum()):
        return None  # `count(*)`, `select *`, a sign
    if left.rpartition(" ")[2].lower() in ("select", "distinct"):
        return None
    other = {"*": "+", "+": "-", "-": "+"}[token]
    return f"{token} became {other}", other


def _without_condition(sql: str) -> Iterator[tuple[str, str]]:
    """The query without its last condition, as far as that can be told without a parser."""
    cut = re.compile(
        r"\s(?:where|and)\s(?:(?!\b(?:where|and|group|order|limit|having|union|between)\b)[^()'])*"
        r"(?:'(?:[^']|'')*')?[^()'\w]*(?=$|\b(?:group|order|limit|having)\b)",
        re.IGNORECASE,
    )
    if (found := cut.search(sql)) is not None:
        yield "a condition was left out", sql[: found.start()] + " " + sql[found.end() :]
    if (limit := re.search(r"\slimit\s+\d+\s*;?\s*$", sql, re.IGNORECASE)) is not None:
        yield "the limit was left out", sql[: limit.start()]


def _previous_word(tokens: _Tokens, at: int) -> str:
    words = [token.lower() for kind, token in tokens[:at] if kind == "name"]
    return words[-1] if words else ""
