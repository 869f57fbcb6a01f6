"""Puzzles of reasoning-gym: the question goes to the policy, its own checker scores the answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tradewind.envs.adapters.optional import need
from tradewind.envs.chat import Chat, Message
from tradewind.envs.protocol import Policy
from tradewind.types.errors import UserError
from tradewind.types.outcome import Outcome, OutcomeStatus
from tradewind.types.record import Json
from tradewind.types.task import Split, Task

INSTRUCTION = "Give the final answer between <answer> and </answer>."


class ReasoningGym:
    """One dataset of reasoning-gym, generated from a seed on both sides: no answer is stored."""

    version = "1"

    def __init__(
        self,
        dataset: str,
        *,
        seed: int = 0,
        size: int = 100,
        max_tokens: int | None = None,
        **config: Any,
    ) -> None:
        """`config` are the dataset's own options, as in `reasoning_gym.create_dataset`.

        Raises `UserError` if the package is missing or refuses the dataset.
        """
        package = need("reasoning_gym", "reasoning-gym")
        self.name = f"reasoning_gym:{dataset}"
        self._dataset, self._seed, self._max_tokens = dataset, seed, max_tokens
        self._extract = need("reasoning_gym.utils", "reasoning-gym").extract_answer
        try:
            self._data = package.create_dataset(dataset, seed=seed, size=size, **config)
        except (ValueError, TypeError, AssertionError) as error:
            raise UserError(
                f"reasoning-gym cannot make this dataset ({error})",
                value=dataset,
                fix="see reasoning_gym.factory.DATASETS for names and their options",
            ) from error

    def tasks(self, split: Split = Split.TRAIN) -> Iterator[Task]:
        """One task per puzzle; the reference only says which puzzle it is."""
        for index in range(len(self._data)):
            yield Task(
                task_id=f"{self._dataset}-{self._seed}-{index}",
                kind=self._dataset,
                split=split,
                input={"question": self._data[index]["question"]},
                reference={"dataset": self._dataset, "seed": self._seed, "index": index},
            )

    async def rollout(self, task: Json, policy: Policy) -> Outcome:
        """Ask once; the artefact is the text between the answer tags, None if there are none."""
        messages = [
            Message(role="system", content=INSTRUCTION),
            Message(role="user", content=task["question"]),
        ]
        async with Chat(policy) as chat:
            reply = await chat.ask(messages, self._max_tokens)
        return Outcome(
            status=OutcomeStatus.COMPLETED, artefacts={"answer": self._extract(reply.text)}
        )

    def check(self, task: Json) -> str | None:
        """Why this task is not one of this dataset and seed, or None."""
        reference = task["reference"]
        index = reference.get("index")
        if (reference.get("dataset"), reference.get("seed")) != (self._dataset, self._seed):
            return f"it was made with another dataset or seed than {self._dataset}, {self._seed}"
        if not isinstance(index, int) or not 0 <= index < len(self._data):
            return f"there is no puzzle {index} in a dataset of {len(self._data)}"
        if task["input"].get("question") != self._data[index]["question"]:
            return "this version of reasoning-gym makes another question from the same seed"
        return None

    def score(self, task: Json, outcome: Json) -> float:
        """What the dataset's own checker says, in [0, 1]; 0.0 without an answer."""
        answer = outcome["artefacts"].get("answer")
        if not isinstance(answer, str):
            return 0.0
        entry = self._data[task["reference"]["index"]]
        return float(self._data.score_answer(answer, entry))
