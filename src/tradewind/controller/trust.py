"""Now and then: decide where judges stand, ring alarms, pause training if one says so."""

from __future__ import annotations

import logging
from time import monotonic

from tradewind.controller.config import ControllerConfig
from tradewind.ledger.ledger import Ledger
from tradewind.rewards.compose import nothing_left
from tradewind.rewards.config import Composition
from tradewind.rewards.trust.alarms import Action, Alarm, Trained, Window, ring
from tradewind.rewards.trust.keeping import update_standings
from tradewind.types.beat import Event
from tradewind.types.trust import Pause, Standing, TrustState

log = logging.getLogger("controller")

PATIENCE = 10
"""So many times as long as a look took passes before the next one: with many judges and large
groups it takes a second, of which the controller's other threads feel something."""
WATCHERS = ("exploits", "effort")
"""Built-in signals whose evidence says how many tools were used, and what they touched."""


class TrustWatch:
    """Feed it the time; it writes standings, events and pauses."""

    def __init__(self, config: ControllerConfig, ledger: Ledger) -> None:
        self._config, self._ledger = config, ledger
        self._looked_at, self._pause_s = 0.0, config.alarms.every_s
        self._rung: dict[str, str] = {}
        """What the last look rang, by alarm: each is said once, and again after it was silent."""
        self._named: set[str] = set()
        """Rollouts that were named for a person to look at."""

    def look(self, now: float) -> None:
        """Decide and ring, unless the last look was a moment ago."""
        if 0 <= now - self._looked_at < self._pause_s:  # a clock may be set back
            return
        began, every_s = monotonic(), self._config.alarms.every_s
        self._decide_and_ring(now)
        self._looked_at = now
        self._pause_s = every_s and max(every_s, PATIENCE * (monotonic() - began))

    def _decide_and_ring(self, now: float) -> None:
        for standing in update_standings(self._ledger, self._config.trust, now):
            log.warning("judge of %s: %s", standing.signal, standing.state)
            if standing.state is TrustState.QUARANTINED:
                self._say_what_it_trained(standing, now)
        alarms = ring(self._window(), self._config.alarms)
        for alarm in alarms:
            self._heed(alarm, now)
        self._rung = {alarm.name: alarm.sentence for alarm in alarms}

    def factors(self) -> dict[tuple[str, str], float]:
        """The factor on each judge's weight by signal and version, for groups that close now."""
        found = self._ledger.factors_by_version()
        return dict.fromkeys(found, 1.0) if self._config.trust.off else found

    def _window(self) -> Window:
        config, ledger = self._config, self._ledger
        since = ledger.resumed_at()
        steps = 3 * config.alarms.jump_steps
        return Window(
            groups=ledger.newest_groups(steps * config.groups_per_step, since),
            nulls=ledger.newest_nulls(config.alarms.null_window, since),
            groups_per_step=config.groups_per_step,
            watched=ledger.newest_watched(config.alarms.watched_window, since, self._watchers()),
            delivery=ledger.newest_delivery(config.alarms.null_window, since),
            untrusted=self._untrusted(since),
            trained=self._trained(since),
        )

    def _all_new(self, alarm: Alarm) -> bool:
        """Whether a whole new sample is there to be looked at, while the alarm goes on ringing."""
        return bool(alarm.rollouts) and self._named.isdisjoint(alarm.rollouts)

    def _watchers(self) -> list[str]:
        """Signals of the composition in use that write down what an agent did."""
        used = self._ledger.composition()
        signals = () if used is None else Composition.model_validate(used[1]).signals
        return [signal.name for signal in signals if signal.use in WATCHERS]

    def _untrusted(self, since: float) -> str | None:
        """Why nothing can be rewarded although it could before somebody was quarantined."""
        used = self._ledger.composition()
        if used is None:
            return None
        composition = Composition.model_validate(used[1])
        judged = [signal.name for signal in composition.signals if signal.judged]
        fallen = {
            name: found
            for name, found in self._standings().items()
            if found.state is TrustState.QUARANTINED and found.at > since and name in judged
        }
        # One that nobody knows yet may still earn its trust: that takes rollouts.
        hoped_for = {name: float(name not in fallen) for name in judged}
        if not fallen or not nothing_left(composition, hoped_for):
            return None
        why = ", ".join(f"{name} ({'; '.join(f.reasons)})" for name, f in fallen.items())
        return f"no signal is left that can be believed: {why}"

    def _say_what_it_trained(self, fallen: Standing, now: float) -> None:
        """Which versions a judge had a part in that is quarantined now, and the way back."""
        trained = self._trained_by(fallen)
        if not trained:
            return
        before = trained[0] - 1
        detail = (
            f"versions {trained[0]} to {trained[-1]} were trained with its verdicts; pools go back "
            f"to the last one without them by `tradewind weights go-to URL {before}`, the run by "
            f"`tradewind trust return RUN {before}`"
        )
        self._ledger.event(
            Event(
                at=now,
                process="controller",
                kind="judge.trained",
                subject=fallen.signal,
                detail=detail,
            )
        )

    def _trained(self, since: float) -> Trained | None:
        """The same of all judges that have fallen since a person last let training go on."""
        fallen = {
            name: self._trained_by(found)
            for name, found in self._standings().items()
            if found.state is TrustState.QUARANTINED and found.at > since
        }
        versions = [version for trained in fallen.values() for version in trained]
        if not versions:
            return None
        names = tuple(name for name, trained in fallen.items() if trained)
        return Trained(names, min(versions), max(versions))

    def _trained_by(self, fallen: Standing) -> list[int]:
        """Versions that were committed while a judge had weight, between its last two falls."""
        history = [s for s in self._ledger.standings(fallen.signal) if s.version == fallen.version]
        falls = [s.at for s in history if s.state is TrustState.QUARANTINED and s.at < fallen.at]
        weighed = [s.at for s in history if s.factor > 0 and s.at > max(falls, default=0.0)]
        return self._ledger.versions_since(weighed[0]) if weighed else []

    def _standings(self) -> dict[str, Standing]:
        found = [self._ledger.standing(j.signal, j.version) for j in self._ledger.judges()]
        return {standing.signal: standing for standing in found if standing is not None}

    def _heed(self, alarm: Alarm, now: float) -> None:
        if alarm.pauses:
            returns = alarm.action is Action.RETURN
            back_to = alarm.back_to if returns or alarm.action is Action.ROLL_BACK else None
            pause = Pause(
                alarm=alarm.name, cause=alarm.sentence, at=now, pools=back_to, trainer=returns
            )
            if self._ledger.pause_training(pause):
                log.error("training is %s", pause.sentence)
        elif alarm.name not in self._rung or self._all_new(alarm):
            self._named.update(alarm.rollouts)
            log.warning("%s: %s", alarm.name, alarm.sentence)
            kind = f"alarm.{alarm.name}"
            self._ledger.event(
                Event(at=now, process="controller", kind=kind, detail=alarm.sentence)
            )
