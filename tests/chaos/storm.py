"""A seeded storm over a fleet: which process, in which phase, by which fault, in which order.

Every process is killed and frozen in every phase, every line is cut and swallowed in every phase,
in an order that the seed draws. Faults heal after a time that the seed draws; the next one comes
when its victim is up again, so that it hits a process at work and not one that starts.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from fleet import PROCESSES, Fleet
from phases import PHASES, Phase
from watch import StallWatch

PHASE_S, RETURN_S = 2.0, 60.0
LASTS_S = (0.2, 0.4, 0.8, 4.0)
"""Most faults are over before anybody's patience is, one in four is not."""


@dataclass(frozen=True)
class Injection:
    """One fault."""

    fault: str
    """`kill`, `freeze`, `cut` or `swallow`."""
    victim: str
    """A process, or `client to server` for a line."""
    phase: str
    seconds: float
    """Until it heals; a killed process is started again at once."""


@dataclass
class Storm:
    """What happened."""

    injections: list[Injection] = field(default_factory=list)
    missed: Counter[str] = field(default_factory=Counter)
    """Phases that did not come within `PHASE_S`; the fault was injected nevertheless."""
    seconds: float = 0.0

    def figures(self) -> dict[str, object]:
        """Counts by fault, victim and phase."""
        rows = [asdict(injection) for injection in self.injections]
        by = {key: dict(Counter(r[key] for r in rows)) for key in ("fault", "victim", "phase")}
        return {"injections": len(rows), "by": by, "phases_missed": dict(self.missed)}


def forecast(n: int, seed: int, lines: Sequence[str]) -> list[Injection]:
    """`n` injections: every combination once before any comes twice."""
    draw = random.Random(f"storm {seed}")
    kinds = [(fault, victim) for fault in ("kill", "freeze") for victim in PROCESSES]
    kinds += [(fault, line) for fault in ("cut", "swallow") for line in lines]
    combinations = [(*kind, phase) for kind in kinds for phase in PHASES]
    found: list[Injection] = []
    while len(found) < n:
        draw.shuffle(combinations)
        for fault, victim, phase in combinations:
            seconds = 0.0 if fault == "kill" else draw.choice(LASTS_S)
            found.append(Injection(fault, victim, phase, seconds))
    return found[:n]


def rage(fleet: Fleet, injections: list[Injection], watch: StallWatch, at_once: int = 1) -> Storm:
    """Inject one after the other, or `at_once` of them together: then the phase is the first one's.

    Raises AssertionError if a victim does not come back.
    """
    storm, began = Storm(), time.monotonic()
    for number in range(0, len(injections), at_once):
        faults = _apart(injections[number : number + at_once])
        alone = [fault.victim for fault in faults if " to " not in fault.victim]
        while True:
            for name in alone:
                _until(lambda n=name: fleet.alive(n), fleet, watch, RETURN_S, f"{name} is up")
            if not _await_phase(fleet, watch, faults[0].phase):
                storm.missed[faults[0].phase] += 1
            if all(map(fleet.alive, alone)):
                break
        for fault in faults:
            _inject(fleet, fault)
        storm.injections += faults
        healed = time.monotonic() + max(fault.seconds for fault in faults)
        while time.monotonic() < healed:
            _tick(fleet, watch)
        fleet.heal()
    storm.seconds = time.monotonic() - began
    return storm


def _apart(faults: Sequence[Injection]) -> list[Injection]:
    """Those with different victims: what is killed cannot be frozen."""
    return list({fault.victim: fault for fault in reversed(faults)}.values())[::-1]


def _await_phase(fleet: Fleet, watch: StallWatch, name: str) -> bool:
    phase, deadline = Phase(name, fleet.ledger), time.monotonic() + PHASE_S
    while not phase.begun():
        if time.monotonic() > deadline:
            return False
        _tick(fleet, watch)
    return True


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


def _inject(fleet: Fleet, injection: Injection) -> None:
    if injection.fault == "kill":
        fleet.kill(injection.victim)
    elif injection.fault == "freeze":
        fleet.freeze(injection.victim)
    else:
        client, server = injection.victim.split(" to ")
        getattr(fleet.lines[client, server], injection.fault)()


def _until(happened, fleet: Fleet, watch: StallWatch, within_s: float, what: str) -> None:
    deadline = time.monotonic() + within_s
    while not happened():
        assert time.monotonic() < deadline, f"not within {within_s:.0f} s: {what}{fleet.logs()}"
        _tick(fleet, watch)


def _tick(fleet: Fleet, watch: StallWatch) -> None:
    fleet.poll()
    watch.look()
    time.sleep(0.01)
