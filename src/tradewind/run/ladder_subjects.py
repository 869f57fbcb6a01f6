"""The answers on which `tradewind rewards rank` measures: stored ones of a run, and made ones."""

from __future__ import annotations

import logging
from collections import ChainMap
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TypeVar

from tradewind.ledger.ledger import Ledger
from tradewind.ledger.payloads import LostPayload
from tradewind.rewards.admission.admit import verifiable
from tradewind.rewards.config import Composition
from tradewind.rewards.ladder.labels import Labels, kept_labels
from tradewind.rewards.ladder.subject import Subject, attack_subjects, made_subjects
from tradewind.rewards.panel import Panel
from tradewind.rewards.registry import open_signal
from tradewind.types import Episode, RolloutId, Task, Turn, UserError

log = logging.getLogger("rank")

Item = TypeVar("Item")

MUTANTS = 8
"""Per task."""
ATTACKED = 5
"""Tasks on which known attacks are tried: they aim at the verifier, not at a task."""


@dataclass(frozen=True)
class Wanted:
    """How many."""

    tasks: int
    rollouts: int
    slow_attacks: bool


def subjects_of(
    tasks: Sequence[Task],
    composition: Composition,
    ledger: str | None,
    labels: Labels,
    wanted: Wanted,
) -> list[Subject]:
    """Stored rollouts first; raises `UserError` if there is nothing to measure on."""
    found = list(_stored(ledger, composition, labels, wanted.rollouts)) if ledger else []
    unknown = set(labels) - {subject.episode.rollout_id for subject in found}
    if labels and len(unknown) == len(labels):
        raise UserError(
            f"none of the {len(labels)} labelled rollouts is among those that are measured",
            value=sorted(unknown)[0],
            fix="name their run with --run, or take more with --rollouts",
        )
    chosen = _spread(tasks, wanted.tasks)
    part = verifiable(composition)
    if part is None:
        found += made_subjects(chosen, None, MUTANTS)
    else:
        with closing(Panel(part)) as panel:
            found += made_subjects(chosen, panel, MUTANTS)
    attacked = _spread(chosen, ATTACKED)
    found += attack_subjects(attacked, composition, slow=wanted.slow_attacks)
    if not found:
        raise UserError(
            "there is no answer to measure a signal on",
            value={"tasks": wanted.tasks, "rollouts": wanted.rollouts},
            fix="give --tasks above 0, or --run RUN with graded rollouts",
        )
    return found


def _stored(place: str, composition: Composition, labels: Labels, most: int) -> Iterator[Subject]:
    """Evenly over the run's groups, labelled ones always; turns only if a signal looks at them.

    Labels of the ledger count beside `labels`, which come first where both say something.
    """
    needs_turns = _needs_turns(composition)
    with Ledger.open(place) as ledger:
        kept = kept_labels(one for s in composition.signals for one in ledger.labels(s.name))
        groups = [group for group in ledger.stored_groups() if group.rollouts]
        size = max((len(group.rollouts) for group in groups), default=1)
        chosen = {group.group_id for group in _spread(groups, most // size)}
        for group in groups:
            names = {rollout.rollout_id for rollout in group.rollouts}
            labelled = bool(names & (labels.keys() | kept.keys()))
            if group.group_id not in chosen and not labelled:
                continue
            for rollout in group.rollouts:
                turns = _turns(ledger, rollout.rollout_id) if needs_turns else ()
                episode = Episode(
                    rollout_id=rollout.rollout_id,
                    task=group.task,
                    outcome=rollout.outcome,
                    turns=turns,
                )
                about = ChainMap(*(source.get(rollout.rollout_id, {}) for source in (labels, kept)))
                yield Subject(episode, group=group.group_id, labels=about)


def _turns(ledger: Ledger, rollout: RolloutId) -> tuple[Turn, ...]:
    """None if they are lost: whoever looks at turns cannot look at this rollout, and it is said."""
    try:
        return tuple(ledger.turns(rollout))
    except LostPayload as error:
        log.warning("%s is measured without its turns: %s", rollout, error)
        return ()


def _needs_turns(composition: Composition) -> bool:
    for config in composition.signals:
        with closing(open_signal(config)) as signal:
            if signal.needs_turns:
                return True
    return False


def _spread(items: Sequence[Item], most: int) -> Sequence[Item]:
    """At most `most` of them, evenly."""
    n = len(items)
    return items if n <= most else [items[at * n // most] for at in range(most)]
