"""The ordered table: the most verifiable signal that can serve wins.

A signal's kind comes first, what its noise leaves of the truth second. One that is less verifiable
than a signal that serves is watched, not used: it could only add its own errors.
"""

from __future__ import annotations

from collections.abc import Sequence

from tradewind.rewards.config import SignalConfig
from tradewind.rewards.ladder.measure import LADDER, PassRates, measure
from tradewind.rewards.ladder.options import LadderOptions
from tradewind.rewards.ladder.people import people
from tradewind.rewards.ladder.readings import Readings, read_all
from tradewind.rewards.ladder.rung import Rung, Use
from tradewind.rewards.ladder.subject import Subject
from tradewind.rewards.signal import Kind

BY_MODEL = (Kind.LABEL, Kind.JUDGED)
"""Kinds that may be less deterministic."""
_THE_WAY = "it says how the agent went about it, not whether the result is right"
WATCHED = {
    Kind.LABEL: "people answer too seldom to be a reward: judges are held against them",
    Kind.BEHAVIOUR: _THE_WAY,
    Kind.MONITOR: _THE_WAY,
}
"""Kinds that are never a reward, each with the reason."""


def rank(
    configs: Sequence[SignalConfig],
    subjects: Sequence[Subject],
    options: LadderOptions,
) -> list[Rung]:
    """Measure every signal, and people, on every subject; the rungs from the highest down."""
    readings = read_all(configs, subjects, options) + people(subjects)
    rates = pass_rates(readings, subjects, options)
    rungs = [
        measure(r, [o for o in readings if o is not r], subjects, rates, options) for r in readings
    ]
    ordered = sorted(rungs, key=_place)
    decided: list[Rung] = []
    for rung in ordered:
        above = next((r for r in decided if r.verdict is Use.USE and r.kind is not rung.kind), None)
        verdict, reason = decide(rung, above, options)
        decided.append(rung.model_copy(update={"verdict": verdict, "reason": reason}))
    return decided


def decide(rung: Rung, above: Rung | None, options: LadderOptions) -> tuple[Use, str]:
    """What a signal is good for and why; `above` is a more verifiable one that serves."""
    if (fault := _fault(rung, options)) is not None:
        return Use.REFUSE, fault
    if rung.kind in WATCHED:
        return Use.MONITOR, WATCHED[rung.kind]
    if rung.usable is None or rung.false_no is None or rung.false_yes is None:
        return Use.MONITOR, "no right and wrong answers are known to compare it with"
    if min(rung.right, rung.wrong) < options.evidence:
        known = f"{rung.right} right and {rung.wrong} wrong answers"
        return Use.MONITOR, f"it was compared on {known}; {options.evidence} of each are needed"
    if rung.false_yes + rung.false_no >= 1:
        harmless = rung.false_no <= options.gate_misses and not rung.passed_attacks
        what = "it passes wrong answers as often as right ones"
        return (Use.MONITOR if harmless else Use.REFUSE), what
    left = f"{rung.usable:.0%} of the signal is left at a pass rate of {rung.rate:.0%}"
    serves = rung.usable >= options.usable and not rung.passed_attacks
    if serves and above is None:
        return Use.USE, left
    if rung.false_no <= options.gate_misses and rung.kind not in BY_MODEL:
        turned = (
            f"{1 - rung.false_yes:.0%} of what is wrong and {rung.false_no:.0%} of what is right"
        )
        but = f"; it falls for {_named(rung)}" if rung.passed_attacks else ""
        return Use.GATE, f"{left}; it turns down {turned}{but}"
    if rung.passed_attacks:
        return Use.REFUSE, f"it falls for known attacks: {_named(rung)}"
    if serves and above is not None:
        return Use.MONITOR, f"{above.name} serves and is more verifiable ({above.kind})"
    return Use.MONITOR, f"only {left}"


def _fault(rung: Rung, options: LadderOptions) -> str | None:
    """Why a signal must not be trusted with anything."""
    if rung.n == 0:
        return (
            "it could not score any of these answers (it looks at turns, and made ones have none)"
        )
    if rung.nulls > options.nulls * rung.n:
        return f"{rung.nulls} of its {rung.n} verdicts are null ({rung.null_cause})"
    needed = options.judged_determinism if rung.kind in BY_MODEL else options.determinism
    if rung.determinism is not None and rung.determinism < needed:
        return f"of repeats of the same answer only {rung.determinism:.0%} agree, {needed:.0%} must"
    return None


def _named(rung: Rung) -> str:
    return ", ".join(f"{name} ({n})" for name, n in rung.passed_attacks.items())


def pass_rates(
    readings: Sequence[Readings], subjects: Sequence[Subject], options: LadderOptions
) -> PassRates:
    """What the most verifiable signal says of the stored rollouts, overall and by kind of task."""
    signals = [r for r in readings if r.kind is not Kind.LABEL]
    best = min(signals, key=lambda r: LADDER.index(r.kind))
    passed: dict[str, list[bool]] = {}
    for at, subject in enumerate(subjects):
        if subject.made is not None:
            continue
        people_said = subject.said("")
        said = best.says(at) if people_said is None else people_said
        if said is not None:
            passed.setdefault(subject.episode.task.kind, []).append(said)
    every = [said for found in passed.values() for said in found]
    # A run that has only failed, or only passed, says no more than that the rate is near there.
    rarest = 1 / (len(every) + 2)
    overall = min(1 - rarest, max(rarest, sum(every) / len(every))) if every else 0.5
    by_kind = {kind: sum(found) / len(found) for kind, found in sorted(passed.items())}
    return PassRates(options.pass_rate or overall, by_kind)


def _place(rung: Rung) -> tuple[int, float]:
    return LADDER.index(rung.kind), -(rung.usable or 0.0)
