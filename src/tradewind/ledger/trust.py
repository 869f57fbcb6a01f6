"""What is known of judges: who they are, labels, probes, and where each stands since when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from sqlalchemy import Connection, Select, func, insert, select, update

from tradewind.ledger.database import AnyRow, Database
from tradewind.ledger.events import event_of, note
from tradewind.ledger.rows import insert_new, put
from tradewind.ledger.tables import (
    events,
    groups,
    judges,
    labels,
    probes,
    rollouts,
    scores,
    standings,
)
from tradewind.types.beat import Event
from tradewind.types.errors import UserError
from tradewind.types.ids import RolloutId
from tradewind.types.record import Json, Record
from tradewind.types.score import Score
from tradewind.types.trust import Label, Probe, ProbeKind, Standing, TrustState

JUDGE_AWAY, JUDGE_BACK = "judge.away", "judge.back"
"""Events of a signal: its judge does not answer and is left alone; it is asked again."""


class Judge(Record):
    """A judged signal as graders use it now."""

    signal: str
    version: str
    minimum: TrustState
    """The criterion has no weight below this state."""
    truth: str | None = None
    """Signal whose verdicts on the same rollouts are the truth."""
    about: Json
    """For people: judge, prompt, criterion, rubric."""


@dataclass(frozen=True)
class JudgedRollout:
    """A verdict of a judge, with what a verifier said of the same rollout if one did."""

    rollout_id: RolloutId
    task_id: str
    version: int
    """Newest committed policy version when its group was opened."""
    value: float | None
    evidence: Json
    truth: float | None
    at: float
    """When it was graded, in Unix seconds."""


class Trust(Database):
    """Graders register judges and write probes; the controller decides; people label."""

    def meet_judge(self, judge: Judge) -> None:
        """This is who judges from here on; its state is that of (signal, version), or none yet."""
        values = judge.model_dump(mode="json", exclude={"signal"})
        with self.write() as conn:
            put(conn, judges, {"signal": judge.signal}, values)

    def judges(self) -> list[Judge]:
        """The judges that graders ask now, by signal."""
        with self.read() as conn:
            rows = conn.execute(select(judges).order_by(judges.c.signal)).mappings()
            return [Judge.model_validate(dict(row)) for row in rows]

    def judges_away(self) -> dict[str, Event]:
        """The last word on each judge that is left alone now, by signal."""
        newest = (
            select(func.max(events.c.event))
            .where(events.c.kind.in_((JUDGE_AWAY, JUDGE_BACK)))
            .group_by(events.c.subject)
        )
        query = select(events).where(events.c.event.in_(newest), events.c.kind == JUDGE_AWAY)
        with self.read() as conn:
            rows = conn.execute(query).mappings().all()
        return {row["subject"]: event_of(row) for row in rows}

    def factors_by_version(self) -> dict[tuple[str, str], float]:
        """The factor of every judge that anything was decided about, also of those that only older
        groups keep; the latest decided last.
        """
        newest = select(func.max(standings.c.number)).group_by(
            standings.c.signal, standings.c.version
        )
        query = (
            select(standings.c.signal, standings.c.version, standings.c.now)
            .where(standings.c.number.in_(newest))
            .order_by(standings.c.number)
        )
        with self.read() as conn:
            rows = conn.execute(query).all()
        return {(row.signal, row.version): float(row.now["factor"]) for row in rows}

    def standing(self, signal: str, version: str) -> Standing | None:
        """Where a judge stands, with the evidence as last seen; None if nothing was decided."""
        with self.read() as conn:
            return _newest(conn, signal, version)

    def standings(self, signal: str | None = None) -> list[Standing]:
        """The history, oldest first: each state with the evidence that it was decided on."""
        query = select(standings.c.data).order_by(standings.c.number)
        if signal is not None:
            query = query.where(standings.c.signal == signal)
        with self.read() as conn:
            return [Standing.model_validate(data) for data in conn.execute(query).scalars()]

    def record_standing(self, standing: Standing) -> bool:
        """Append a standing if its state is another than before, with an event; whether it is.

        While the state stays the same only what was last seen of it is kept beside it.
        """
        values = standing.model_dump(mode="json")
        with self.write() as conn:
            row = _newest_row(conn, standing.signal, standing.version)
            if row is not None and row.state == standing.state.value:
                conn.execute(
                    update(standings).where(standings.c.number == row.number).values(now=values)
                )
                return False
            conn.execute(
                insert(standings).values(
                    signal=standing.signal,
                    version=standing.version,
                    state=standing.state.value,
                    data=values,
                    now=values,
                )
            )
            if row is not None or standing.state is not TrustState.UNCALIBRATED:
                why = "; ".join(standing.reasons)
                note(conn, f"judge.{standing.state}", standing.signal, why)
        return True

    def add_labels(self, new: Iterable[Label]) -> int:
        """Add labels; how many were new. A rater's first label on a rollout stands.

        Raises `UserError` if a rollout is unknown.
        """
        added = 0
        with self.write(durable=True) as conn:
            for label in new:
                known = select(rollouts.c.rollout_id).where(
                    rollouts.c.rollout_id == label.rollout_id
                )
                if conn.execute(known).first() is None:
                    raise UserError(
                        "a label is of a rollout that this run does not have",
                        value=label.rollout_id,
                        fix="take the ids from the run's own export",
                    )
                added += insert_new(conn, labels, label.model_dump(mode="json"))
        return added

    def labels(self, signal: str) -> list[Label]:
        """All labels for one signal, oldest first."""
        query = select(labels).where(labels.c.signal == signal).order_by(labels.c.at)
        with self.read() as conn:
            rows = conn.execute(query).mappings()
            return [Label.model_validate(dict(row)) for row in rows]

    def add_probe(self, probe: Probe) -> None:
        """Append what came of asking a judge."""
        with self.write() as conn:
            conn.execute(insert(probes).values(probe.model_dump(mode="json")))

    def probes(self, signal: str, version: str, newest: int = 1000) -> list[Probe]:
        """The newest probes of one judge, so many of each kind, oldest first."""
        query = select(probes).where(probes.c.signal == signal, probes.c.version == version)
        newer = query.order_by(probes.c.number.desc()).limit(newest)
        with self.read() as conn:
            rows = [
                row
                for kind in ProbeKind
                for row in conn.execute(newer.where(probes.c.kind == kind.value)).mappings()
            ]
        rows.sort(key=lambda row: int(row["number"]))
        return [
            Probe.model_validate({k: v for k, v in row.items() if k != "number"}) for row in rows
        ]

    def judged(
        self,
        signal: str,
        version: str,
        truth: str | None = None,
        *,
        newest: int = 1500,
        only: Sequence[RolloutId] | None = None,
    ) -> list[JudgedRollout]:
        """The newest verdicts of one judge, oldest first; `truth` names a deterministic signal.

        With `only`, all of these rollouts, whatever their age.
        """
        query = _judged(signal, version, truth)
        if only is not None:
            query = query.where(scores.c.rollout_id.in_(only))
        with self.read() as conn:
            rows = conn.execute(query.limit(newest if only is None else None)).all()
        return [
            JudgedRollout(
                rollout_id=row.rollout_id,
                task_id=row.task_id,
                version=row.opened_version,
                value=row.value,
                evidence=row.evidence,
                truth=row.truth,
                at=row.at,
            )
            for row in reversed(rows)
        ]

    def first_judged(self, signal: str, version: str, n: int) -> list[tuple[RolloutId, float]]:
        """The first `n` rollouts to which one judge gave a verdict, and the verdict."""
        query = (
            select(scores.c.rollout_id, scores.c.value)
            .where(scores.c.source == signal, scores.c.source_version == version)
            .where(scores.c.value.is_not(None))
            .order_by(scores.c.at, scores.c.rollout_id)
            .limit(n)
        )
        with self.read() as conn:
            return [(row.rollout_id, row.value) for row in conn.execute(query)]


def factors_of(
    graded: Iterable[Sequence[Score]], factors: Mapping[tuple[str, str], float]
) -> dict[str, float]:
    """The factor of each signal in a group: that of the judge who gave its verdicts, whoever judges
    now; the least one if there were several, 0 for one that nothing is known of. A judge that was
    asked nothing has the factor that was decided last under its name.
    """
    asked: dict[str, float] = {}
    for score in chain.from_iterable(graded):
        own = factors.get((score.source, score.source_version), 0.0)
        asked[score.source] = min(own, asked.get(score.source, own))
    return {**{signal: factor for (signal, _), factor in factors.items()}, **asked}


def _judged(signal: str, version: str, truth: str | None) -> Select[*tuple[object, ...]]:
    said = scores.alias("said")
    on = (said.c.rollout_id == scores.c.rollout_id) & (said.c.source == (truth or ""))
    return (
        select(
            scores.c.rollout_id,
            scores.c.value,
            scores.c.evidence,
            scores.c.at,
            said.c.value.label("truth"),
            groups.c.task_id,
            groups.c.opened_version,
        )
        .join(rollouts, rollouts.c.rollout_id == scores.c.rollout_id)
        .join(groups, groups.c.group_id == rollouts.c.group_id)
        .outerjoin(said, on)
        .where(scores.c.source == signal, scores.c.source_version == version)
        .order_by(scores.c.at.desc(), rollouts.c.number.desc(), rollouts.c.idx.desc())
    )


def _newest_row(conn: Connection, signal: str, version: str) -> AnyRow | None:
    return conn.execute(
        select(standings)
        .where(standings.c.signal == signal, standings.c.version == version)
        .order_by(standings.c.number.desc())
        .limit(1)
    ).one_or_none()


def _newest(conn: Connection, signal: str, version: str) -> Standing | None:
    row = _newest_row(conn, signal, version)
    return None if row is None else Standing.model_validate(row.now)
