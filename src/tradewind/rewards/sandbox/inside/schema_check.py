"""Is a JSON value what a schema says? In a child, since patterns may take forever.

stdin   {"schema": {...}, "instance": ...} | {"schema": {...}}
stdout  {"fault": str | null}       what is wrong with the value, or with the schema itself
"""

from __future__ import annotations

from typing import Any

from channel import open_channel  # type: ignore[import-not-found]  # beside this script
from jsonschema import validators
from jsonschema.exceptions import SchemaError, best_match
from referencing import Registry
from referencing.exceptions import Unresolvable


def fault(question: dict[str, Any]) -> dict[str, Any]:
    """One question's answer; a reference to anywhere outside the schema is an error of its own."""
    schema = question["schema"]
    kind = validators.validator_for(schema, default=validators.validator_for({}))
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        return {"schema": f"{error.json_path}: {error.message}"[:500]}
    if "instance" not in question:
        return {"fault": None}
    validator = kind(schema, registry=Registry(), format_checker=kind.FORMAT_CHECKER)
    try:
        found = best_match(validator.iter_errors(question["instance"]))
    except Unresolvable as error:
        return {"schema": f"it refers to what is not in it ({error})"[:500]}
    return {"fault": None if found is None else f"{found.json_path}: {found.message}"[:500]}


def main() -> None:
    """Answer until the parent closes the pipe."""
    questions, answer = open_channel()
    for question in questions:
        answer(fault(question))


if __name__ == "__main__":
    main()
