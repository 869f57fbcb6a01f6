"""All known attacks, by the verifier they are made against."""

from __future__ import annotations

from tradewind.rewards.attacks.answers import ANSWERS
from tradewind.rewards.attacks.attack import Attack
from tradewind.rewards.attacks.functions import FUNCTIONS
from tradewind.rewards.attacks.programs import PROGRAMS
from tradewind.rewards.attacks.queries import QUERIES
from tradewind.rewards.attacks.repositories import REPOSITORIES

CATALOGUE: tuple[Attack, ...] = (
    *FUNCTIONS,
    *PROGRAMS,
    *REPOSITORIES,
    *QUERIES,
    *ANSWERS,
)


def known_attacks(use: str) -> tuple[Attack, ...]:
    """Those made against the verifier called `use`; none for a verifier of somebody's own."""
    return tuple(attack for attack in CATALOGUE if attack.use == use)
