"""Asks judges what no reward needs, so that one knows when they fail.

    judged rollout ──► canary          every `canary_every`-th: an answer whose verdict is known
                   ──► repeats         of the first ones, later of a share: the same verdict again?
                   ──► held-out judge  of a share: another judge, that nobody trains against
                   ──► anchor          every `anchor_every`-th: one of the first rollouts, again

What is asked of which rollout follows from its id and a seed. A judge that gives no verdict on a
probe leaves no record of it: nulls are counted on rollouts.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from dataclasses import dataclass, field

from tradewind.grader.config import ProbeConfig
from tradewind.ledger.ledger import Ledger
from tradewind.ledger.payloads import LostPayload
from tradewind.ledger.trust import Judge
from tradewind.rewards.config import Composition, SignalConfig
from tradewind.rewards.criteria.exhibit import Exhibit
from tradewind.rewards.judges.signal import JudgeSignal
from tradewind.rewards.registry import open_signal
from tradewind.rewards.stored_episode import stored_episode
from tradewind.rewards.trust.canaries import Canary, Material, canaries, known_wrong, made_of
from tradewind.rewards.trust.evidence import YES
from tradewind.types.episode import Episode
from tradewind.types.errors import UserError
from tradewind.types.ids import RolloutId
from tradewind.types.record import Json
from tradewind.types.score import Score
from tradewind.types.trust import Probe, ProbeKind

log = logging.getLogger("grader")

KEPT = 16
"""Works that wait to be made into canaries, of each judge."""


@dataclass
class _Watched:
    """One judged signal."""

    repeats: int
    heldout: JudgeSignal | None
    judged: int = 0
    asked: int = 0
    """Canaries so far."""
    wrong: list[Exhibit] = field(default_factory=list)
    """Work that the verifier failed, not used for a canary yet."""
    anchors: list[tuple[RolloutId, float]] = field(default_factory=list)
    """The judge's first rollouts, over restarts, with the verdict that it gave then."""
    anchor: int = 0


class Prober:
    """Shared by a grader's threads; probes are asked on the thread that has just graded."""

    def __init__(self, config: ProbeConfig, ledger: Ledger) -> None:
        self._config, self._ledger = config, ledger
        self._watched: dict[tuple[str, str], _Watched] = {}
        self._guard = threading.Lock()

    def check(self, composition: Composition) -> None:
        """Raises `UserError` if the truth of a judged signal would come from nowhere, or if what
        is named is no judged signal.
        """
        names = {signal.name for signal in composition.signals if not signal.judged}
        judges = {signal.name for signal in composition.signals if signal.judged}
        for unknown in sorted({*self._config.truth, *self._config.heldout} - judges):
            raise UserError(
                "[grader.probes] names a signal that no judge of the composition decides",
                value=unknown,
                fix=f"name one of these: {', '.join(sorted(judges)) or 'there is none'}",
            )
        for judged, truth in self._config.truth.items():
            if truth not in names:
                raise UserError(
                    f"the truth of {judged!r} comes from no signal of that name",
                    value=truth,
                    fix="name a deterministic signal of the same composition in [grader.probes]",
                )

    def meet(self, config: SignalConfig, signal: JudgeSignal) -> None:
        """From here on this is who judges."""
        criterion = signal.criterion
        self._ledger.meet_judge(
            Judge(
                signal=config.name,
                version=signal.version,
                minimum=criterion.minimum_trust,
                truth=self._config.truth.get(config.name),
                about=signal.about(),
            )
        )

    def watch(self, config: SignalConfig, signal: JudgeSignal) -> None:
        """Be ready to probe it; raises `UserError` for options that do not work."""
        key = (config.name, signal.version)
        if key in self._watched:
            return
        probes = self._ledger.probes(*key)
        anchors = self._ledger.first_judged(*key, self._config.anchors)
        self._watched[key] = _Watched(
            repeats=sum(probe.kind is ProbeKind.REPEAT for probe in probes),
            heldout=self._open_heldout(config),
            judged=len(anchors),
            anchors=anchors,
        )

    def probe(
        self, episode: Episode, config: SignalConfig, signal: JudgeSignal, scores: list[Score]
    ) -> None:
        """Ask what is due after this rollout; `scores` are all of its scores."""
        own = next((score for score in scores if score.source == config.name), None)
        if own is None or own.value is None:
            return
        exhibit = signal.exhibit(episode)
        watched = self._watched[config.name, signal.version]
        truth = _value(scores, self._config.truth.get(config.name))
        with self._guard:
            number = watched.judged
            watched.judged += 1
            if truth is not None and truth < YES:
                watched.wrong = [*watched.wrong, exhibit][-KEPT:]
            if len(watched.anchors) < self._config.anchors:
                watched.anchors.append((episode.rollout_id, own.value))
        asker = _Asker(self._ledger, config.name, signal, episode.rollout_id)
        if number % self._config.canary_every == 0:
            self._ask_canary(asker, watched, exhibit, own.value)
        if self._repeat_is_due(watched, asker):
            asker.repeat(exhibit, own.value)
        if number % self._config.anchor_every == 0 and number >= self._config.anchors:
            self._ask_anchor(asker, watched)
        if watched.heldout is not None and self._share(asker, "heldout", config.name):
            asker.compare(exhibit, own.value, watched.heldout, episode.task.task_id)

    def close(self) -> None:
        """Give the held-out judges back."""
        for watched in self._watched.values():
            if watched.heldout is not None:
                watched.heldout.close()

    def _ask_canary(self, asker: _Asker, watched: _Watched, exhibit: Exhibit, value: float) -> None:
        with self._guard:
            number = watched.asked
            watched.asked += 1
            plainest = _plainest(watched.wrong)
            wrong = plainest or known_wrong(asker.signal.criterion, number)
            known = canaries(Material(asker.signal.criterion, exhibit, value, wrong), number)
            chosen = known[number % len(known)] if known else None
            if plainest is not None and chosen is not None and made_of(chosen, plainest):
                watched.wrong.remove(plainest)  # the next canary is made of another
        if chosen is not None:
            asker.canary(chosen, self._config.canary_confirm)

    def _ask_anchor(self, asker: _Asker, watched: _Watched) -> None:
        with self._guard:
            if not watched.anchors:
                return
            name, value = watched.anchors[watched.anchor % len(watched.anchors)]
            watched.anchor += 1
        try:
            again = stored_episode(self._ledger, name, turns=asker.signal.needs_turns)
        except LostPayload as error:
            log.warning("the anchor %s cannot be asked again: %s", name, error)
            return
        if again is not None:  # its group may have been given up while it was judged
            asker.anchor(name, asker.signal.exhibit(again), value)

    def _repeat_is_due(self, watched: _Watched, asker: _Asker) -> bool:
        with self._guard:
            due = watched.repeats < self._config.repeat_items
            due = due or self._share(asker, "repeat", asker.name)
            watched.repeats += due
        return due

    def _share(self, asker: _Asker, what: str, signal: str) -> bool:
        """Whether a rollout belongs to the share that a kind of probe is asked of."""
        share = self._config.heldout_share if what == "heldout" else self._config.repeat_share
        text = f"{self._config.seed} {what} {signal} {asker.rollout_id}"
        drawn = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
        return drawn < share * 2**64

    def _open_heldout(self, config: SignalConfig) -> JudgeSignal | None:
        changed = self._config.heldout.get(config.name)
        if changed is None:
            return None
        other = config.model_copy(update={"options": {**config.options, **changed}})
        signal = open_signal(other)
        assert isinstance(signal, JudgeSignal), other
        return signal


@dataclass(frozen=True)
class _Asker:
    """Asks one judge because of one rollout, and writes down what it said."""

    ledger: Ledger
    name: str
    signal: JudgeSignal
    rollout_id: str

    def canary(self, canary: Canary, confirm: int) -> None:
        """Once, and `confirm` times more if the verdict is wrong."""
        values = self._values(canary.exhibit, 1)
        if values and (values[0] >= YES) != (canary.expected >= YES):
            values += self._values(canary.exhibit, confirm)
        if values:
            made_from = {"made_from": canary.made_from} if canary.made_from else {}
            self._write(ProbeKind.CANARY, canary.name, values, canary.expected, made_from)

    def repeat(self, exhibit: Exhibit, value: float) -> None:
        """Two more times."""
        values = [value, *self._values(exhibit, 2)]
        self._write(ProbeKind.REPEAT, self.rollout_id, values, None)

    def anchor(self, rollout_id: str, exhibit: Exhibit, value: float) -> None:
        """An old rollout, once more."""
        values = self._values(exhibit, 1)
        if values:
            self._write(ProbeKind.ANCHOR, rollout_id, values, value)

    def compare(self, exhibit: Exhibit, value: float, heldout: JudgeSignal, task: str) -> None:
        """The same exhibit for another judge."""
        said = heldout.ask(exhibit)
        if said is not None:
            self._write(ProbeKind.HELDOUT, heldout.version, [said], value, {"task": task})

    def _values(self, exhibit: Exhibit, times: int) -> list[float]:
        said = [self.signal.ask(exhibit) for _ in range(times)]
        return [value for value in said if value is not None]

    def _write(
        self,
        kind: ProbeKind,
        name: str,
        values: list[float],
        expected: float | None,
        evidence: Json | None = None,
    ) -> None:
        self.ledger.add_probe(
            Probe(
                kind=kind,
                name=name,
                signal=self.name,
                version=self.signal.version,
                rollout_id=self.rollout_id,
                values=tuple(values),
                expected=expected,
                evidence=evidence or {},
                at=time.time(),
            )
        )


def _plainest(works: list[Exhibit]) -> Exhibit | None:
    """The shortest, so that what a canary adds is all that is odd about it."""
    written = [work for work in works if work.work.strip()]
    return min(written, key=lambda work: len(work.work), default=None)


def _value(scores: list[Score], source: str | None) -> float | None:
    return next((score.value for score in scores if score.source == source), None)
