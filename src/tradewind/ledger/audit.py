"""What must hold of a ledger, checked from outside the code that keeps it.

prompts     every draw is trained, in work or queued; none is skipped, none trained twice (R7)
rollouts    each ended one has an outcome and scores; credit is what the scores say (R4)
lineage     steps and versions follow each other, each step consumed groups
gradients   each trained token leads to its rollout, pool, version, environment and grader
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain

from sqlalchemy import Connection

from tradewind.ledger import audit_gradients, audit_lineage, audit_prompts, audit_rollouts
from tradewind.ledger.database import Database
from tradewind.ledger.groups import Compose
from tradewind.ledger.rows import read_meta
from tradewind.types.record import Record


class Check(Record):
    """One thing that must hold, and what was found."""

    name: str
    """As in `no group is trained twice`."""
    promise: str
    """Of the design, as in `R7`."""
    counted: str
    """What was looked at, in words: `96 groups in 12 steps`."""
    violations: tuple[str, ...]
    """A sentence for each; empty if it holds."""


class AuditReport(Record):
    """What an audit found. `sound` exactly if there is no violation."""

    run: str
    ledger: str
    """Its address, without a password."""
    checks: tuple[Check, ...]
    trained_by: dict[str, dict[str, int]]
    """Where the gradients came from, trained rollouts by name: `pools`, `versions`,
    `environments`, `graders`, `workers`."""

    @property
    def violations(self) -> tuple[str, ...]:
        """Of all checks."""
        return tuple(sentence for check in self.checks for sentence in check.violations)

    @property
    def sound(self) -> bool:
        """Whether everything holds."""
        return not self.violations


class Audit(Database):
    """Called by `tradewind ledger audit`, by tests and by whoever doubts a run."""

    def audit_report(self, compose: Compose | None = None) -> AuditReport:
        """Look at everything, in one snapshot; reads every token of every trained rollout.

        With `compose`, every reward is computed again from its scores.
        """
        trained_by: dict[str, Counter[str]] = {}
        with self.read() as conn:
            name = read_meta(conn, "name") or read_meta(conn, "run_id") or ""
            checks = tuple(
                Check(name=what, promise=promise, counted=counted, violations=tuple(violations))
                for what, promise, counted, violations in (
                    *_of_the_database(conn, compose),
                    *audit_gradients.checks(conn, self.payloads, trained_by),
                )
            )
        return AuditReport(
            run=str(name),
            ledger=self.address,
            checks=checks,
            trained_by={key: dict(sorted(found.items())) for key, found in trained_by.items()},
        )

    def audit(self) -> list[str]:
        """A sentence for every violated invariant; empty if the ledger is sound."""
        return list(self.audit_report().violations)


def _of_the_database(
    conn: Connection, compose: Compose | None
) -> Iterator[tuple[str, str, str, Iterator[str]]]:
    yield (
        "every prompt is accounted for",
        "R7",
        audit_prompts.counted(conn),
        audit_prompts.accounted(conn),
    )
    yield (
        "no group is trained twice",
        "R7",
        audit_lineage.consumption_counted(conn),
        audit_lineage.trained_once(conn),
    )
    yield (
        "rollouts end with a cause, credit follows their scores",
        "R4",
        audit_rollouts.counted(conn),
        chain(audit_rollouts.ended(conn), audit_rollouts.recomposed(conn, compose))
        if compose
        else audit_rollouts.ended(conn),
    )
    yield (
        "versions and steps follow each other",
        "W2",
        audit_lineage.counted(conn),
        audit_lineage.unbroken(conn),
    )
