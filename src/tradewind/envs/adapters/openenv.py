"""OpenEnv servers as conversations, over their WebSocket: one session per rollout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tradewind.envs.adapters.optional import need
from tradewind.envs.adapters.stepwise import Seen, play_steps
from tradewind.envs.protocol import Policy
from tradewind.types.outcome import Outcome, OutcomeStatus
from tradewind.types.record import Json
from tradewind.types.task import Split, Task


class OpenEnv:
    """A running OpenEnv server.

    Its rewards are computed in the customer's product and are believed, as the server belongs to
    whoever owns the run; an episode without any reward is GRADER_ERROR, never zero.
    """

    version = "1"

    def __init__(
        self,
        url: str,
        *,
        instructions: str,
        observe: Callable[[Json], str],
        act: Callable[[str], Json | None],
        max_steps: int = 50,
    ) -> None:
        """Raises `UserError` if the package is missing.

        Args:
            url: of the server; its `/ws` is used, since its HTTP routes keep no session.
            instructions: open the conversation; say how an action is written.
            observe: an observation's fields as text.
            act: a reply to an action's fields, None if it holds none.
            max_steps: replies of the policy, at most.
        """
        self._client = need("openenv.core.generic_client", "openenv").GenericEnvClient
        self._url, self._instructions, self._max_steps = url, instructions, max_steps
        self._observe, self._act = observe, act
        self.name = "openenv"

    def tasks(self, seeds: Iterable[int], split: Split = Split.TRAIN) -> Iterator[Task]:
        """One task per seed of `reset`."""
        for seed in seeds:
            yield Task(
                task_id=f"openenv-{seed}",
                kind="openenv",
                split=split,
                input={"reset": {"seed": seed}},
                reference={},
            )

    async def rollout(self, task: Json, policy: Policy) -> Outcome:
        """Play one episode in a session of its own, which is closed whatever happens."""
        client = self._client(base_url=self._url)
        try:
            await client.connect()
            first = await client.reset(**task.get("reset", {}))

            async def step(action: Any) -> Seen:
                return self._seen(await client.step(action))

            episode = await play_steps(
                policy, self._seen(first), self._instructions, self._act, step, self._max_steps
            )
        finally:
            await client.close()
        artefacts = episode.artefacts()
        if episode.done and artefacts["return"] is None:
            return Outcome(
                status=OutcomeStatus.GRADER_ERROR,
                artefacts=artefacts,
                detail="the episode is over and the environment gave no reward",
            )
        status = OutcomeStatus.COMPLETED if episode.done else OutcomeStatus.AGENT_LIMIT
        return Outcome(status=status, artefacts=artefacts)

    def score(self, task: Json, outcome: Json) -> float:
        """The sum of the rewards that the server gave; 0.0 for an episode that earned none."""
        return float(outcome["artefacts"].get("return") or 0.0)

    def _seen(self, result: Any) -> Seen:
        reward = None if result.reward is None else float(result.reward)
        return Seen(self._observe(result.observation), reward, bool(result.done))
