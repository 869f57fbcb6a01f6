"""Errors, drawn once.

    TradewindError
    ├── UserError          what a person wrote cannot work; shown as a sentence, never a traceback
    │   └── RefusedWeights a published version that a pool will not serve; the old one goes on
    ├── LedgerAway         the database of the ledger was lost in the middle of a transaction
    ├── Conflict           somebody else owns this (second trainer, finished rollout, taken version)
    └── Stalled            a wait reached its deadline; carries cause and owner

A bad rollout is data (`Outcome`, `Score.cause`), never an exception. A bad weight is a crash.
Invariants are `assert`ed, because no user can cause or fix them.
"""

from __future__ import annotations


class TradewindError(Exception):
    """Root of everything this package raises on purpose."""


class UserError(TradewindError):
    """What was wrong, the value, and the fix, as one readable sentence each.

    >>> str(UserError("the model folder does not exist", value="m/x", fix="check [model] path"))
    "the model folder does not exist: 'm/x'. Fix: check [model] path."
    """

    def __init__(self, what: str, *, value: object = None, fix: str) -> None:
        self.what, self.value, self.fix = what, value, fix
        shown = "" if value is None else f": {value!r}"
        said = f"{what}{shown}"
        super().__init__(f"{said}{'' if said.endswith('?') else '.'} Fix: {fix}.")


class RefusedWeights(UserError):
    """A manifest, frame or tensor that failed a check. Nothing of it has been applied."""


class Conflict(TradewindError):
    """The ledger or the bucket says that another owner or an earlier result already holds this."""


class ParentLost(Conflict):
    """A turn extends one whose tokens the ledger has not, or no longer: its chain is tainted."""


class LedgerAway(TradewindError):
    """The connection to the ledger's database broke in the middle of a transaction.

    What it wrote is there as a whole or not at all, and nobody here knows which: who writes must
    read again, as after a kill.
    """


class Stalled(TradewindError):
    """A wait passed its deadline. Names the cause and the process that owns it."""

    def __init__(self, waiting_for: str, *, owner: str, seconds: float) -> None:
        self.waiting_for, self.owner, self.seconds = waiting_for, owner, seconds
        super().__init__(f"waited {seconds:.0f} s for {waiting_for} (owner: {owner})")
