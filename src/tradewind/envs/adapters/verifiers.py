"""Tasksets of verifiers (0.4 and later) whose tasks are one question: its rewards score the answer.

Tasks that need a container or tools are played by verifiers' own harnesses; they are refused here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from tradewind.envs.adapters.optional import need
from tradewind.envs.chat import Chat, Message
from tradewind.envs.protocol import Policy
from tradewind.types.errors import UserError
from tradewind.types.outcome import Outcome, OutcomeStatus
from tradewind.types.record import Json
from tradewind.types.task import Split, Task


class VerifiersTaskset:
    """A `verifiers.v1.Taskset`, made on both sides: the reference only says which task it is."""

    version = "1"

    def __init__(self, taskset: Any, *, limit: int | None = None) -> None:
        """`limit`: how many tasks to take, needed if the taskset is infinite.

        Raises `UserError` if the package is missing, or a task needs more than a question.
        """
        self._trace = need("verifiers.v1.trace", "verifiers")
        self._graph = need("verifiers.v1.graph", "verifiers")
        self._messages = need("verifiers.v1.types", "verifiers")
        self._agent = need("verifiers.v1", "verifiers").AgentConfig
        self.name = f"verifiers:{type(taskset).__name__}"
        if limit is None and not taskset.bounded:
            raise UserError("the taskset never ends", value=self.name, fix="give limit=...")
        self._tasks = list(taskset if limit is None else taskset.take(limit))
        for task in self._tasks:
            _refuse_more_than_a_question(task)

    def tasks(self, split: Split = Split.TRAIN) -> Iterator[Task]:
        """One task per task; the input is what the agent is told."""
        for index, task in enumerate(self._tasks):
            data = task.data
            yield Task(
                task_id=f"{index}-{task.key[:12]}",
                kind=self.name,
                split=split,
                input={"system_prompt": data.system_prompt, "prompt": data.prompt_text},
                reference={"index": index, "key": task.key},
            )

    async def rollout(self, task: Json, policy: Policy) -> Outcome:
        """Ask once; the artefact is the whole answer."""
        messages = [Message(role="user", content=task["prompt"])]
        if task.get("system_prompt"):
            messages.insert(0, Message(role="system", content=task["system_prompt"]))
        async with Chat(policy) as chat:
            reply = await chat.ask(messages)
        return Outcome(status=OutcomeStatus.COMPLETED, artefacts={"answer": reply.text})

    def check(self, task: Json) -> str | None:
        """Why this is no task of the taskset, or None."""
        index = task["reference"].get("index")
        if not isinstance(index, int) or not 0 <= index < len(self._tasks):
            return f"there is no task {index} in a taskset of {len(self._tasks)}"
        if self._tasks[index].key != task["reference"].get("key"):
            return "the taskset holds another task in this place"
        return None

    def score(self, task: Json, outcome: Json) -> float:
        """The weighted sum of the task's rewards over the conversation."""
        ours = self._tasks[task["reference"]["index"]]
        trace = self._conversation(ours, outcome["artefacts"]["answer"])
        asyncio.run(ours.score(trace))
        return float(trace.reward)

    def _conversation(self, task: Any, answer: str) -> Any:
        """A trace of question and answer, as the task's rewards read it."""
        said = [self._messages.UserMessage(content=task.data.prompt_text)]
        if task.data.system_prompt:
            said.insert(0, self._messages.SystemMessage(content=task.data.system_prompt))
        nodes = [
            self._graph.MessageNode(parent=None if i == 0 else i - 1, message=message)
            for i, message in enumerate(said)
        ]
        reply = self._messages.AssistantMessage(content=answer)
        nodes.append(self._graph.MessageNode(parent=len(nodes) - 1, message=reply, sampled=True))
        return self._trace.Trace(
            task=self._trace.TraceTask(type=type(task).__name__, data=task.data),
            agent=self._trace.AgentInfo(config=self._agent()),
            nodes=nodes,
        )


def _refuse_more_than_a_question(task: Any) -> None:
    more = [
        what
        for what, needed in (
            ("a container", task.NEEDS_CONTAINER or task.data.image is not None),
            ("tools", bool(type(task).toolsets(task.config))),
            ("a user who speaks first", not task.data.prompt_text),
        )
        if needed
    ]
    if more:
        raise UserError(
            f"this task needs {' and '.join(more)}",
            value=task.data.name or type(task).__name__,
            fix="play it with verifiers' own harness; this adapter asks one question",
        )
