"""One lease to one outcome."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable

from tradewind.envs.play import play as play_once
from tradewind.envs.protocol import Env, Policy
from tradewind.types.lease import Lease
from tradewind.types.outcome import Outcome

Player = Callable[[Lease], Awaitable[Outcome]]
"""Plays one lease; raises only `CancelledError`."""


def player(env: Env) -> Player:
    """Plays leases with a customer's function."""
    return functools.partial(play, env)


async def play(env: Env, lease: Lease) -> Outcome:
    """The outcome of a rollout; see `envs.play` for what a failure counts as."""
    policy = Policy(
        base_url=lease.base_url,
        api_key=lease.model_key,
        model=lease.model,
        deadline=lease.deadline,
    )
    return await play_once(env, lease.input, policy)
