"""Judged rewards in the report: what judges said and what labels make of it, step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, select

from tradewind.grader.config import GraderConfig
from tradewind.ledger.ledger import Ledger
from tradewind.ledger.tables import consumption, credits, rollouts, scores
from tradewind.ledger.trust import Judge
from tradewind.rewards.compose import nothing_left
from tradewind.rewards.config import Role
from tradewind.rewards.trust.curve import CurvePoint, SteppedVerdict, corrected_curve
from tradewind.run.svg import Plot, tag
from tradewind.types.trust import LabelSource, Sampling

Curves = dict[str, list[CurvePoint]]
"""By judged signal."""


def judge_notes(grader: GraderConfig) -> list[str]:
    """What to know of each judge before a run begins: it has no weight until it earns it."""
    composition, truth = grader.composition, grader.probes.truth
    gates = {signal.name for signal in composition.with_role(Role.GATE)}
    notes = []
    for signal in composition.signals:
        if not signal.judged or signal.role is Role.MONITOR:
            continue
        known = truth.get(signal.name)
        if known is None:
            how = "labels by people (`tradewind trust label`), for [grader.probes] truth names none"
        else:
            how = f"the verdicts of {known}"
        note = f"{signal.name} is judged: weight 0 at first, which grows by {how}"
        if known in gates:
            note += f"; a closed gate asks no judge, so give {known} another role, or none says no"
        notes.append(note)
    if notes and nothing_left(composition, {}):
        notes.append("nothing but judges is rewarded, so no group is trained before one is trusted")
    return notes


def read_curves(ledger: Ledger) -> Curves:
    """The curve of every judge whose verdicts were trained."""
    curves = {judge.signal: _curve(ledger, judge) for judge in ledger.judges()}
    return {signal: curve for signal, curve in curves.items() if curve}


def judged_figures(ledger: Ledger, curves: Mapping[str, Sequence[CurvePoint]]) -> dict[str, Any]:
    """`judged.<signal>`: the last point of its curve, and where its judge stands."""
    figures: dict[str, Any] = {}
    for judge in ledger.judges():
        standing = ledger.standing(judge.signal, judge.version)
        about: dict[str, Any] = {
            "state": "unknown" if standing is None else standing.state.value,
            "factor": 0.0 if standing is None else standing.factor,
            "faults": [] if standing is None else list(standing.faults),
        }
        if curve := curves.get(judge.signal):
            last = curve[-1]
            about |= {"judged": last.judged, "corrected": last.corrected}
            about |= {"low": last.low, "high": last.high, "labels": last.labels}
        figures[f"judged.{judge.signal}"] = about
    return figures


def judged_chart(signal: str, curve: Sequence[CurvePoint]) -> str:
    """The judged mean, and the corrected one with its band."""
    plot = Plot((0, max(1, curve[-1].step)), (0, 1), "RL step", "mean", right=130, whole_x=True)
    known = [(float(p.step), p.corrected) for p in curve if p.corrected is not None]
    band = [p for p in curve if p.low is not None and p.high is not None]
    if band:
        up = [f"{plot.sx(p.step):.1f},{plot.sy(p.high or 0.0):.1f}" for p in band]
        down = [f"{plot.sx(p.step):.1f},{plot.sy(p.low or 0.0):.1f}" for p in reversed(band)]
        path = " ".join([*up, *down])
        plot.marks.append(tag("polygon", points=path, fill="var(--a)", opacity=0.18))
    said = [(float(p.step), p.judged) for p in curve]
    plot.line(said, "--soft")
    plot.dots(said, "--soft", [f"step {p.step}: judged {p.judged:.3f}" for p in curve])
    plot.label(*said[-1], f"judged {said[-1][1]:.2f}", "--soft")
    if known:
        plot.line(known, "--a")
        plot.label(*known[-1], f"corrected {known[-1][1]:.2f}", "--a")
    return plot.render(f"{signal}: judged and corrected means per RL step")


def _curve(ledger: Ledger, judge: Judge) -> list[CurvePoint]:
    said: dict[str, list[float]] = {}
    for one in ledger.labels(judge.signal):
        if one.source is LabelSource.PERSON and one.sampling is Sampling.RANDOM:
            said.setdefault(one.rollout_id, []).append(one.value)
    with ledger.read() as conn:
        rows = _trained(conn, judge)
    verdicts = []
    for step, rollout, judged, truth in rows:
        given = said.get(rollout)
        label = sum(given) / len(given) if given else truth
        verdicts.append(SteppedVerdict(step, judged, label))
    return corrected_curve(verdicts)


def _trained(conn: Connection, judge: Judge) -> list[tuple[int, str, float, float | None]]:
    """Step, rollout, verdict and free truth of every rollout that was trained."""
    truth = scores.alias("truth")
    on = (truth.c.rollout_id == scores.c.rollout_id) & (truth.c.source == (judge.truth or ""))
    query = (
        select(consumption.c.step, scores.c.rollout_id, scores.c.value, truth.c.value)
        .join(rollouts, rollouts.c.rollout_id == scores.c.rollout_id)
        .join(consumption, consumption.c.group_id == rollouts.c.group_id)
        .join(credits, credits.c.rollout_id == rollouts.c.rollout_id)
        .outerjoin(truth, on)
        .where(
            scores.c.source == judge.signal,
            scores.c.value.is_not(None),
            credits.c.reward.is_not(None),
        )
        .order_by(consumption.c.step)
    )
    return [(row[0], row[1], row[2], row[3]) for row in conn.execute(query)]
