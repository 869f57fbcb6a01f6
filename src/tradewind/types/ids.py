"""One way to name things, used as ledger key, request id, routing key and log prefix.

    g000017            the 18th group of the run
    g000017-r3         its fourth rollout (a refill after a null takes the next number)
    g000017-r3-t1      the second turn of that rollout

Ids sort in the order of creation.
"""

from __future__ import annotations

GroupId = str
RolloutId = str
TurnId = str


def group_id(number: int) -> GroupId:
    """The id of group `number` (0-based)."""
    return f"g{number:06d}"


def rollout_id(group: GroupId, index: int) -> RolloutId:
    """The id of rollout `index` (0-based, refills go on counting) of `group`."""
    return f"{group}-r{index}"


def turn_id(rollout: RolloutId, index: int) -> TurnId:
    """The id of turn `index` (0-based, in the order of arrival at the gateway) of `rollout`."""
    return f"{rollout}-t{index}"


def group_of(rollout_or_turn: str) -> GroupId:
    """The group to which a rollout id or turn id belongs."""
    return rollout_or_turn.split("-", 1)[0]


def rollout_of(turn: TurnId) -> RolloutId:
    """The rollout to which a turn id belongs."""
    return turn.rsplit("-", 1)[0]
