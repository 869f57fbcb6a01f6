"""Losses by name, for configs."""

from __future__ import annotations

import inspect
from functools import partial

from tradewind.algo.losses.dppo import dppo
from tradewind.algo.losses.reinforce import reinforce
from tradewind.algo.losses.terms import Floats, Loss
from tradewind.types import UserError

LOSSES: dict[str, Loss] = {"dppo": dppo, "reinforce": reinforce}


def loss_named(name: str, floats: Floats) -> Loss:
    """The loss with its floats bound; `loss(terms)` remains to be called.

    Raises:
        UserError: the name is unknown, or a float is not one of the loss's keywords.
    """
    if name not in LOSSES:
        raise UserError(
            "there is no loss of this name", value=name, fix=f"choose one of {sorted(LOSSES)}"
        )
    known = [
        p.name
        for p in inspect.signature(LOSSES[name]).parameters.values()
        if p.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    unknown = sorted(set(floats) - set(known))
    if unknown:
        raise UserError(f"the loss {name} has no such value", value=unknown, fix=f"it has {known}")
    return partial(LOSSES[name], **floats)
