"""Verifier `json-schema`: is the agent's answer JSON of the shape that the task asks for?

task.reference   {"schema": {...}}        and, if it is known, {"solution": JSON value}
outcome          artefacts["answer"]: a JSON value, or a text that is one
"""

from __future__ import annotations

import json
from typing import Any

from tradewind.rewards.library import Library
from tradewind.rewards.options import ProcessOptions
from tradewind.rewards.reference import BadReference, Reference
from tradewind.rewards.sandbox.fair import PolicysFault
from tradewind.rewards.signal import Kind, Verdict, VerifierFailed
from tradewind.rewards.strictjson import read_json
from tradewind.types.episode import Episode
from tradewind.types.record import Json
from tradewind.types.task import Task

_CONTROL: Json = {"schema": {"type": "integer"}, "instance": 1}


class SchemaOptions(ProcessOptions):
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


class JsonSchema:
    """Implements `Signal`."""

    kind = Kind.CHECK
    needs_turns = False

    def __init__(self, options: SchemaOptions) -> None:
        """Raises `UserError` if jsonschema is not installed."""
        self._options = options
        self._library = Library(
            "json-schema", options, "schema_check.py", "jsonschema", "'tradewind[verify]'"
        )
        self.version = f"2-jsonschema-{self._library.version}"

    def score(self, episode: Episode) -> Verdict:
        """1.0 if the answer fits the schema, else 0.0 with the first thing that does not."""
        answer = episode.outcome.artefacts.get(self._options.artefact)
        if answer is None:
            return Verdict(value=0.0, cause=f"no {self._options.artefact!r} was reported")
        try:
            instance = read_json(answer if isinstance(answer, str) else json.dumps(answer))
        except (ValueError, RecursionError) as error:
            return Verdict(value=0.0, cause=f"it is not JSON ({error})"[:300])
        try:
            schema = SchemaReference.of(episode.task).schema_
            said = self._library.ask({"schema": schema, "instance": instance}, _CONTROL)
        except BadReference as error:
            raise VerifierFailed(str(error)) from error
        except PolicysFault as error:
            return Verdict(value=0.0, cause=str(error))
        if "schema" in said:
            raise VerifierFailed(f"the task's schema is wrong: {said['schema']}")
        return Verdict(value=float(said["fault"] is None), cause=said["fault"])

    def check(self, task: Task) -> str | None:
        """Whether there is a schema, and it is one, and refuses something."""
        try:
            schema = SchemaReference.of(task).schema_
            said = self._library.ask({"schema": schema}, _CONTROL)
        except BadReference as error:
            return str(error)
        except PolicysFault as error:
            return f"its schema takes too long to read ({error})"
        return f"its schema is wrong ({said['schema']})" if "schema" in said else None

    def oracle(self, task: Task) -> Json | None:
        """The reference's solution, if there is one."""
        solution = task.reference.get("solution")
        return None if solution is None else {self._options.artefact: solution}

    def close(self) -> None:
        """End the child."""
        self._library.close()
