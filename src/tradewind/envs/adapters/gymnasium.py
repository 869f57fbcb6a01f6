"""Gymnasium environments as conversations; the verifier replays the actions from the seed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tradewind.envs.adapters.optional import need
from tradewind.envs.adapters.stepwise import Seen, play_steps
from tradewind.envs.protocol import Policy
from tradewind.types.errors import UserError
from tradewind.types.outcome import Outcome, OutcomeStatus
from tradewind.types.record import Json
from tradewind.types.task import Split, Task


class GymnasiumEnv:
    """An environment with text on both sides.

    The worker's rewards are not believed: `score` plays the same actions again from the same seed
    in an environment of its own and adds up what that one gives. So it has to be deterministic.
    """

    version = "1"

    def __init__(
        self,
        env: str | Callable[[], Any],
        *,
        instructions: str,
        observe: Callable[[Any], str] = str,
        act: Callable[[str, Any], Any] | None = None,
        max_steps: int = 50,
    ) -> None:
        """Raises `UserError` if the package is missing or the environment cannot be made.

        Args:
            env: an id for `gymnasium.make`, or a function that makes one.
            instructions: open the conversation; say how an action is written.
            observe: an observation as text.
            act: a reply and the action space to an action, None if it holds none; the default
                reads the last whole number that a `Discrete` space contains.
            max_steps: replies of the policy, at most.
        """
        self._gym = need("gymnasium", "gymnasium")
        self._env, self._instructions, self._observe = env, instructions, observe
        self._act, self._max_steps = act or last_number, max_steps
        self.name = f"gymnasium:{env if isinstance(env, str) else getattr(env, '__name__', 'env')}"
        self._make().close()

    def check_env(self) -> None:
        """Run Gymnasium's own checker; raises `UserError` with what it says."""
        checker = need("gymnasium.utils.env_checker", "gymnasium")
        env = self._make()
        try:
            checker.check_env(env.unwrapped, skip_render_check=True)
        except Exception as error:  # boundary: the customer's environment
            raise UserError(
                f"the environment breaks Gymnasium's rules ({error})",
                value=self.name,
                fix="see gymnasium.utils.env_checker.check_env",
            ) from error
        finally:
            env.close()

    def tasks(self, seeds: Iterable[int], split: Split = Split.TRAIN) -> Iterator[Task]:
        """One task per seed of `reset`."""
        for seed in seeds:
            yield Task(
                task_id=f"{self.name}-{seed}",
                kind=self.name,
                split=split,
                input={"seed": seed},
                reference={"seed": seed},
            )

    async def rollout(self, task: Json, policy: Policy) -> Outcome:
        """Play one episode; AGENT_LIMIT if it is not over after `max_steps` replies."""
        env = await asyncio.to_thread(self._make)
        try:
            first, _ = await asyncio.to_thread(env.reset, seed=task["seed"])

            async def step(action: Any) -> Seen:
                seen, reward, terminated, truncated, _ = await asyncio.to_thread(
                    env.step, _typed(env, action)
                )
                done = bool(terminated or truncated)
                return Seen(self._observe(seen), float(reward), done)

            episode = await play_steps(
                policy,
                Seen(self._observe(first), None, done=False),
                self._instructions,
                lambda reply: self._act(reply, env.action_space),
                step,
                self._max_steps,
            )
        finally:
            await asyncio.to_thread(env.close)
        status = OutcomeStatus.COMPLETED if episode.done else OutcomeStatus.AGENT_LIMIT
        return Outcome(status=status, artefacts=episode.artefacts())

    def score(self, task: Json, outcome: Json) -> float:
        """The sum of rewards that these actions give, played again."""
        env = self._make()
        total = 0.0
        try:
            env.reset(seed=task["reference"]["seed"])
            for action in outcome["artefacts"].get("actions", [])[: self._max_steps]:
                if action is None or not env.action_space.contains(_typed(env, action)):
                    continue
                _, reward, terminated, truncated, _ = env.step(_typed(env, action))
                total += float(reward)
                if terminated or truncated:
                    break
        finally:
            env.close()
        return total

    def _make(self) -> Any:
        try:
            return self._gym.make(self._env) if isinstance(self._env, str) else self._env()
        except Exception as error:  # boundary: the customer's environment
            raise UserError(
                f"the environment cannot be made ({type(error).__name__}: {error})",
                value=self._env if isinstance(self._env, str) else None,
                fix="check its id and what it needs",
            ) from error


def last_number(reply: str, space: Any) -> int | None:
    """The last whole number in a reply that a `Discrete` space contains."""
    for found in reversed(re.findall(r"-?\d+", reply)):
        if space.contains(int(found)):
            return int(found)
    return None


def _typed(env: Any, action: Any) -> Any:
    """An action as it comes out of JSON, in the type that the space's checks want."""
    dtype = getattr(env.action_space, "dtype", None)
    return action if dtype is None else dtype.type(action) if _is_scalar(action) else action


def _is_scalar(action: Any) -> bool:
    return isinstance(action, int | float) and not isinstance(action, bool)
