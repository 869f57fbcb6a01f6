"""All tasks of a taskset, with what is known already left alone.

tasks ──► changed since the last time? ──► examine, `parallel` at a time ──► register beside them
                    └── no: as it was
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from tradewind.rewards.admission.attacked import fallen
from tradewind.rewards.admission.bench import fault_in, known_of
from tradewind.rewards.admission.examine import examine
from tradewind.rewards.admission.options import AdmissionOptions
from tradewind.rewards.admission.record import (
    Admission,
    Failure,
    Register,
    files_in,
    hashes_of,
    read_register,
    write_register,
)
from tradewind.rewards.config import Composition, Role
from tradewind.rewards.panel import Panel
from tradewind.rewards.registry import open_signal
from tradewind.rewards.signal import Kind
from tradewind.types.digest import digest_of
from tradewind.types.errors import UserError
from tradewind.types.task import Task

RULES = 2
"""Raised when the rules of this package change, so that what they found before is found anew."""
VERIFIABLE = (Kind.EXECUTABLE, Kind.CHECK, Kind.MATCH)
"""What gives the same verdict to whoever asks, without a policy's turns."""
HOPELESS = 5
"""Tasks whose right answers get no verdict, after which no more are tried."""
AT_LEAST = 3
"""Tasks that must share a result before it is called usual."""


@dataclass(frozen=True)
class Admitted:
    """What came of a taskset."""

    register: Register
    admissions: tuple[Admission, ...]
    """In the order of the tasks."""
    looked_at: int
    """How many were examined now; the others were known."""

    @property
    def refused(self) -> tuple[Admission, ...]:
        """Those that may not train."""
        return tuple(found for found in self.admissions if not found.admitted)


def admit(
    taskset: Path,
    tasks: Sequence[Task],
    composition: Composition,
    options: AdmissionOptions,
    *,
    parallel: int = 2,
    tell: Callable[[int], None] = lambda _: None,
) -> Admitted:
    """Examine what is new or changed, and keep the result beside the taskset.

    `tell` hears how many tasks are left. Raises `UserError` if a signal cannot be opened, or if
    signals fail on the right answers of the first tasks.
    """
    part = verifiable(composition)
    now = hashes_of(tasks)
    panels: list[Panel] = []
    try:
        if part is not None:
            panels += [Panel(part) for _ in range(parallel)]
        register = _empty(composition, panels, options)
        before = read_register(taskset)
        found = {
            task.task_id: known
            for task in tasks
            if before and (known := before.known(task.task_id, now[task.task_id], register.basis))
        }
        new = [task for task in tasks if task.task_id not in found]
        found |= {a.task_id: a for a in _examine_all(new, tasks, panels, options, tell)}
    finally:
        for panel in panels:
            panel.close()
    register = register.model_copy(update={"tasks": found})
    if new:
        write_register(taskset, register)
    return Admitted(register, tuple(found[task.task_id] for task in tasks), len(new))


def verifiable(composition: Composition) -> Composition | None:
    """The part of a reward that can be tried without a policy; None if there is none.

    Judges cost and are measured elsewhere; behaviour and monitors need a policy's turns.
    """
    kept = []
    for config in composition.signals:
        if config.judged or config.role not in (Role.GATE, Role.WEIGHTED, Role.CAP):
            continue
        with closing(open_signal(config)) as signal:
            if signal.kind in VERIFIABLE and not signal.needs_turns:
                kept.append(config)
    rewarding = [
        c for c in kept if c.role is Role.GATE or (c.role is Role.WEIGHTED and c.weight > 0)
    ]
    return Composition(signals=tuple(kept)) if rewarding else None


def usual_results(
    tasks: Sequence[Task], panel: Panel | None, options: AdmissionOptions
) -> dict[str, str]:
    """For each kind that can be guessed, a sentence: which result how many of its tasks share."""
    results: dict[str, Counter[str]] = {}
    for task in tasks:
        if panel is None or fault_in(task, panel) is not None:
            continue
        _, result = known_of(task, panel)
        if result is not None:
            results.setdefault(task.kind, Counter())[json.dumps(result, sort_keys=True)] += 1
    found = {}
    for kind, counts in results.items():
        ((usual, n),) = counts.most_common(1)
        if n >= AT_LEAST and n > options.majority * counts.total():
            found[kind] = (
                f"{n} of the {counts.total()} tasks of kind {kind} have the same result "
                f"({usual[:80]}), {options.majority:.0%} may"
            )
    return found


def _examine_all(
    new: Sequence[Task],
    tasks: Sequence[Task],
    panels: Sequence[Panel],
    options: AdmissionOptions,
    tell: Callable[[int], None],
) -> list[Admission]:
    """Each panel works on one task at a time."""
    if not new:
        return []
    touched, now = {task.kind for task in new}, hashes_of(tasks)
    same_kind = [task for task in tasks if task.kind in touched]
    first = panels[0] if panels else None
    usual = usual_results(same_kind, first, options)
    attack = fallen(tasks, first, options)
    free: SimpleQueue[Panel | None] = SimpleQueue()
    if not panels:
        free.put(None)
    for panel in panels:
        free.put(panel)

    def one(task: Task) -> Admission:
        mine = free.get()
        try:
            said = (("attack", attack), ("majority", usual.get(task.kind)))
            shared = [Failure(rule=rule, sentence=text) for rule, text in said if text]
            return examine(task, mine, options, now[task.task_id], shared)
        finally:
            free.put(mine)

    found: list[Admission] = []
    with ThreadPoolExecutor(max(1, len(panels)), thread_name_prefix="admit") as threads:
        for admission in threads.map(one, new):
            found.append(admission)
            tell(len(new) - len(found))
            if len(found) == HOPELESS and all(map(_without_verdict, found)):
                threads.shutdown(cancel_futures=True)
                raise UserError(
                    f"the reward fails on the right answers of the first {HOPELESS} tasks; "
                    f"{admission.task_id}: {admission.failures[-1].sentence}",
                    fix="mend the signal that fails, then admit again",
                )
    return found


def _without_verdict(admission: Admission) -> bool:
    """Though a right answer is known."""
    return admission.oracle and any(failure.rule == "scorable" for failure in admission.failures)


def _empty(
    composition: Composition, panels: Sequence[Panel], options: AdmissionOptions
) -> Register:
    """A register without tasks, with all that its basis is made of."""
    opened = panels[0].signals if panels else []
    signals = {config.name: signal.version for config, signal in opened}
    thresholds = options.model_dump(mode="json")
    basis = digest_of(
        {
            "rules": RULES,
            "signals": [config.model_dump(mode="json") for config, _ in opened],
            "versions": signals,
            "files": {config.name: files_in(config.options) for config, _ in opened},
            "options": thresholds,
        }
    )
    return Register(
        basis=basis,
        composition=composition.version,
        signals=signals,
        options=thresholds,
        tasks={},
    )
