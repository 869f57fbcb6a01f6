"""Verifier `json-schema`: is the agent's answer JSON of the shape that the task asks for?

task.reference   {"schema": {...}}        and, if it is known, {"solution": JSON value}
outcome          artefacts["answer"]: a JSON value, or a text that is one
"""

from __future__ import annotations

import json
from typing import Any

from tradewind.rewards.library import Library
from tradewind.rewards.options import ReaderOptions
from tradewind.rewards.reference import BadReference, Reference
from tradewind.rewards.signal import Kind, Verdict
from tradewind.rewards.strictjson import read_json
from tradewind.rewards.verifier import NothingReported, Verifier
from tradewind.types.record import Json
from tradewind.types.task import Task

_CONTROL: Json = {"schema": {"type": "integer"}, "instance": 1}


class SchemaOptions(ReaderOptions):
    """What `json-schema` takes."""

    artefact: str = "answer"
    """Under which name the answer is reported."""


class SchemaReference(Reference):
    """What `json-schema` reads of a task's reference."""

    schema_: dict[str, Any]

    @classmethod
    def of(cls, task: Task) -> SchemaReference:
        """The schema; raises `BadReference`."""
        schema = task.reference.get("schema")
        if not isinstance(schema, dict) or not schema:
            raise BadReference('its reference has no "schema"')
        return cls(schema_=schema)


class JsonSchema(Verifier[SchemaReference]):
    """Checks the answer's shape, in a child that lives on."""

    takes = SchemaOptions
    kind = Kind.CHECK
    reads = SchemaReference

    def __init__(self, options: SchemaOptions) -> None:
        """Raises `UserError` if jsonschema is not installed."""
        self._library = Library(
            "json-schema", options, "schema_check.py", "jsonschema", "'tradewind[verify]'"
        )
        super().__init__(options.artefact, self._library)
        self.version = f"2-jsonschema-{self._library.version}"

    def reported(self, answer: Any) -> Any:
        """Its value as JSON, whether it is one or a text of one."""
        if answer is None:
            raise NothingReported(f"no {self.artefact!r} was reported")
        try:
            return read_json(answer if isinstance(answer, str) else json.dumps(answer))
        except (ValueError, RecursionError) as error:
            raise NothingReported(f"it is not JSON ({error})"[:300]) from error

    def decide(self, answer: Any, reference: SchemaReference) -> Verdict:
        """1.0 if the answer fits the schema, else 0.0 with the first thing that does not."""
        said = self._library.ask({"schema": reference.schema_, "instance": answer}, _CONTROL)
        if "schema" in said:
            raise BadReference(f"the task's schema is wrong: {said['schema']}")
        return Verdict(value=float(said["fault"] is None), cause=said["fault"])

    def doubt(self, reference: SchemaReference) -> str | None:
        """Whether it is a schema that refuses something."""
        said = self._library.ask({"schema": reference.schema_}, _CONTROL)
        return f"its schema is wrong ({said['schema']})" if "schema" in said else None
