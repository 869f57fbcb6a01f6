"""A seeded storm over a fleet: which process, in which phase, by which fault, in which order.

Every process is killed and frozen, every line is cut and swallowed, the ledger's database is locked
or crashes: each as often as any other and in all phases in turn, in an order that the seed draws;
one by one, or some at the same moment.
Faults heal after times that the seed draws; the next come when their victims are up again, so that
they hit processes at work and not ones that start.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from database import LEDGER
from fleet import Fleet
from phases import PHASES, Phase
from setting import PROCESSES
from watch import StallWatch

PHASE_S, RETURN_S = 4.0, 60.0
FULL = os.environ.get("TRADEWIND_FULL") == "1"
LASTS_S = (0.1, 0.2, 0.4, 2.5) if FULL else (0.1, 0.1, 0.1, 0.2, 0.2, 0.4, 0.4, 2.5)
"""Most faults are over before anybody's patience is; one in four (in CI, in eight) is not."""
AT_ONCE = ("kill", "crash")
"""What dies starts again at once."""
NONE = "none"
"""The phase of faults whose own did not come within `PHASE_S`."""


Kind = tuple[str, str]
"""A fault and its victim, as in `Injection`."""


@dataclass(frozen=True)
class Injection:
    """One fault."""

    fault: str
    """`kill`, `freeze` (a process), `cut`, `swallow` (a line), `lock` or `crash` (the ledger)."""
    victim: str
    """A process, `client to server` for a line, or `ledger`."""
    phase: str
    seconds: float
    """Until it heals."""
    at: float = 0.0
    """When it hit (Unix seconds); 0 if it has not."""


Volley = tuple[Injection, ...]
"""Faults of one moment, so of one phase, each with another victim."""


@dataclass
class Storm:
    """What happened."""

    injections: list[Injection] = field(default_factory=list)
    seconds: float = 0.0

    def by(self) -> dict[str, Counter[str]]:
        """Of every fault and victim, the counts by phase: `{"kill grader": {"step": 2}}`."""
        counts: dict[str, Counter[str]] = {}
        for done in self.injections:
            counts.setdefault(f"{done.fault} {done.victim}", Counter())[done.phase] += 1
        return counts

    def suffered(self) -> dict[Kind, int]:
        """How often each victim suffered each fault."""
        return Counter((done.fault, done.victim) for done in self.injections)

    def around(self, began: float, ended: float, before_s: float = 5.0) -> list[str]:
        """Faults of a time (Unix seconds) and shortly before: `freeze grader in step 0.4 s +1.2`
        lasted 0.4 s and came 1.2 s after `began`."""
        return [
            f"{i.fault} {i.victim} in {i.phase} {i.seconds:g} s {i.at - began:+.1f}"
            for i in self.injections
            if began - before_s <= i.at <= ended
        ]

    def phases(self) -> set[str]:
        """In which faults were injected."""
        return {done.phase for done in self.injections}

    def figures(self) -> dict[str, object]:
        """Counts, and the seconds that the storm took."""
        took = round(self.seconds, 1)
        return {"injections": len(self.injections), "by": self.by(), "storm_s": took}

    def table(self) -> str:
        """A row per victim and fault, a column per phase."""
        columns = (*PHASES, NONE)
        rows = [["", *columns, "all"]]
        for kind, by in sorted(self.by().items()):
            rows.append([kind, *(str(by[phase]) for phase in columns), str(by.total())])
        return "\n".join(
            f"{row[0]:<32}" + "".join(f"{cell:>8}" for cell in row[1:]) for row in rows
        )


def forecast(rounds: int, seed: int, kinds: Sequence[Kind], at_once: int = 1) -> list[Volley]:
    """In each round every kind once, `at_once` of them together, in each phase as many.

    In eight rounds every kind meets every phase: eight kinds begin in eight phases and step on by
    an odd number of them, which differs between eights, so that others meet in each round.
    """
    draw, found = random.Random(f"storm {seed}"), list[Volley]()
    order = draw.sample(kinds, len(kinds))
    for number in range(rounds):
        meet: dict[str, list[Kind]] = {}
        for place, kind in enumerate(order):
            eight, step = divmod(place, len(PHASES))
            phase = PHASES[(step + (2 * eight + 1) * number) % len(PHASES)]
            meet.setdefault(phase, []).append(kind)
        volleys = [(p, volley) for p, hurt in meet.items() for volley in _apart(hurt, at_once)]
        draw.shuffle(volleys)
        found += [tuple(_drawn(draw, *kind, phase) for kind in volley) for phase, volley in volleys]
    return found


def _apart(hurt: list[Kind], at_once: int) -> list[list[Kind]]:
    """Cut into volleys in which nobody is hurt twice: what is killed cannot be frozen."""
    volleys: list[list[Kind]] = []
    for fault, victim in hurt:
        for volley in volleys:
            if len(volley) < at_once and victim not in (other for _, other in volley):
                volley.append((fault, victim))
                break
        else:
            volleys.append([(fault, victim)])
    return volleys


def _drawn(draw: random.Random, fault: str, victim: str, phase: str) -> Injection:
    return Injection(fault, victim, phase, 0.0 if fault in AT_ONCE else draw.choice(LASTS_S))


def rage(fleet: Fleet, volleys: Sequence[Volley], watch: StallWatch) -> Storm:
    """Inject one volley after the other; raises AssertionError if a victim does not come back."""
    storm, began = Storm(), time.monotonic()
    for volley in volleys:
        phase = _await(fleet, watch, volley)
        hit = time.monotonic()
        for injection in sorted(volley, key=lambda each: each.victim == LEDGER):  # it takes longest
            fleet.hurt(injection.fault, injection.victim)
            storm.injections.append(replace(injection, phase=phase, at=time.time()))
        for injection in sorted(volley, key=lambda each: each.seconds):
            while time.monotonic() < hit + injection.seconds:
                _tick(fleet, watch)
            fleet.heal(injection.victim)
    storm.seconds = time.monotonic() - began
    return storm


def _await(fleet: Fleet, watch: StallWatch, volley: Volley) -> str:
    """Until the victims are up and the phase is under way, or has not come; which phase it is."""
    alone = [injection.victim for injection in volley if injection.victim in PROCESSES]
    while True:
        for name in alone:
            _until(lambda n=name: fleet.alive(n), fleet, watch, RETURN_S, f"{name} is up")
        phase, late = Phase(volley[0].phase, fleet.ledger), time.monotonic() + PHASE_S
        while not (begun := phase.begun()) and time.monotonic() < late:
            _tick(fleet, watch)
        if all(map(fleet.alive, alone)):
            return volley[0].phase if begun else NONE


def calm(fleet: Fleet, watch: StallWatch, steps: int, deadline_s: float) -> int:
    """Let the run end `steps` later; how many steps it has then."""
    for name in PROCESSES:
        _until(lambda n=name: fleet.alive(n), fleet, watch, RETURN_S, f"{name} is up")
    last = fleet.ledger.last_step()
    total = steps + (0 if last is None else last.step + 1)
    fleet.finish_at(total)
    until_done(fleet, watch, deadline_s)
    return total


def until_done(fleet: Fleet, watch: StallWatch, within_s: float) -> None:
    """Wait until the trainer has ended by itself."""
    _until(fleet.done, fleet, watch, within_s, "the run ends")


def _until(happened, fleet: Fleet, watch: StallWatch, within_s: float, what: str) -> None:
    deadline = time.monotonic() + within_s
    while not happened():
        assert time.monotonic() < deadline, f"not within {within_s:.0f} s: {what}{fleet.logs()}"
        _tick(fleet, watch)


def _tick(fleet: Fleet, watch: StallWatch) -> None:
    fleet.poll()
    watch.look()
    time.sleep(0.01)
