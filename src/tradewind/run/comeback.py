"""`tradewind trust return`: give the trainer its order, and see it carried out."""

from __future__ import annotations

import getpass
import time

from tradewind.ledger.ledger import Ledger
from tradewind.types import Beat, Stalled, UserError
from tradewind.types.returned import Return, ReturnOrder

LOOK_S = 0.2
"""Between two looks, in seconds."""


def go_back(ledger: Ledger, version: int | None, why: str, wait_s: float) -> Return:
    """The trainer's return to `version`; None: to where an alarm has sent the pools.

    Raises UserError if there is no such version, nothing is left to train, or the trainer refuses;
    Stalled with what the trainer does if it has not gone back within `wait_s` seconds.
    """
    order = ReturnOrder(
        back_to=_goal(ledger, version), who=getpass.getuser(), why=why, at=time.time()
    )
    _require_steps_to_come(ledger)
    before = len(ledger.returns())
    ledger.ask_return(order)
    deadline = time.monotonic() + wait_s
    while ledger.return_order() == order:
        if time.monotonic() > deadline:
            what = f"the trainer, which {_doing(ledger.beats())}; the order stands"
            raise Stalled(what, owner="trainer", seconds=wait_s)
        time.sleep(LOOK_S)
    for made in ledger.returns()[before:]:
        if (made.back_to, made.at) == (order.back_to, order.at):
            return made
    raise _not_done(ledger, order)


def _goal(ledger: Ledger, version: int | None) -> int:
    if version is not None:
        return version
    pause = ledger.paused()
    if pause is None or pause.pools is None:
        raise UserError(
            "to which version?", fix="give one: `tradewind status RUN` names the newest"
        )
    return pause.pools


def _require_steps_to_come(ledger: Ledger) -> None:
    planned, last = ledger.meta("training_steps"), ledger.last_step()
    if planned is not None and last is not None and last.step + 1 >= planned:
        raise UserError(
            "all steps of this run are done, its trainer has nothing more to do",
            value=planned,
            fix="tradewind weights export writes a version as a folder that a new run begins from",
        )


def _doing(beats: list[Beat]) -> str:
    for beat in beats:
        if beat.process == "trainer":
            waits = f", waits for {beat.waiting_for}" if beat.waiting_for else ""
            return f"said {time.time() - beat.at:.0f} s ago: {beat.doing}{waits}"
    return "has never been heard of"


def _not_done(ledger: Ledger, order: ReturnOrder) -> UserError:
    refused = [e.detail for e in ledger.events(order.at) if e.kind == "return.refused"]
    return UserError(
        "the trainer did not go back",
        value=refused[-1] if refused else "another order took the place of this one",
        fix="go back to another version",
    )
