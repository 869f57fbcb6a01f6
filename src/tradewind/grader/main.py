"""The grader: finished rollouts in, scores out.

ledger: finished rollouts ──claim (held for claim_ttl_s)──┐
                                                          ▼
killable child ◄── code ── signal ◄── episode ── grade ──► ledger: scores
  (data back)  ──────►  (verdict here)

consumes     finished rollouts: task, outcome, and the turns if a signal asks for them
produces     a score per signal of the group's composition: a value, or a null with its cause;
             probes of judges (canaries, repeats, anchors, a held-out judge)
waits for    rollouts to finish (worker), by looking every poll_s
             judges that did not answer: such rollouts are put off and judged again later
unblocked by the controller's `finish`
if killed    its claims run out and any grader takes them; nothing is lost or graded twice
             (a verdict on an end that a crash of the database took back is dropped)

python -m tradewind.grader --config FILE --workspace DIR
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

from tradewind.grader.alarms import Alarms
from tradewind.grader.away import AwayJudges
from tradewind.grader.config import GraderConfig
from tradewind.grader.grading import episode_of, grade
from tradewind.grader.later import pause_s, waits_for
from tradewind.grader.prober import Prober
from tradewind.ledger.ledger import Ledger
from tradewind.ledger.payloads import LostPayload
from tradewind.ledger.place import ledger_of
from tradewind.ledger.scores import FinishedRollout
from tradewind.ledger.trust import factors_of
from tradewind.rewards.compose import is_null
from tradewind.rewards.config import Composition
from tradewind.rewards.panel import Panel
from tradewind.rewards.sandbox.measure import report
from tradewind.types.beat import Beat
from tradewind.types.errors import LedgerAway, Stalled, UserError
from tradewind.types.ids import RolloutId
from tradewind.types.score import Score
from tradewind.types.turn import Turn

log = logging.getLogger("grader")

BEAT_S = 1.0
IDLE = "a finished rollout"


class Grader:
    """Grades until told to stop. `run` blocks; `stop` may be called from a signal handler."""

    def __init__(self, config: GraderConfig, ledger: Ledger) -> None:
        """Opens the signals of the composition in use, at first the configured one.

        Raises `UserError` if one cannot be opened or a task cannot be scored.
        """
        self._config, self._ledger = config, ledger
        self._owner = f"grader@{socket.gethostname()}:{os.getpid()}"
        self._panels: dict[str | None, list[Panel]] = {}
        self._met: str | None = None
        """The composition whose judges were made known as those who judge from here on."""
        self._prober = Prober(config.probes, ledger)
        self._prober.check(config.composition)
        self._slots = list(range(config.parallel))
        """Each with a panel of its own per composition: signals are not thread-safe."""
        self._running: dict[Future[None], tuple[int, RolloutId]] = {}
        self._held_at = 0.0
        self._stopping = threading.Event()
        self._since, self._beat_at, self._idle = time.time(), 0.0, False
        self._alarms, self._away = Alarms(ledger), AwayJudges(ledger)
        self._open(config.composition.version, config.composition)
        try:
            self.tasks = self._panels[config.composition.version][0].check(ledger.tasks())
        except UserError:
            self.close()
            raise
        ledger.use_composition(
            config.composition.version, config.composition.model_dump(mode="json"), again=False
        )
        self._say_who_judges()

    def run(self) -> None:
        """Claim, grade, write, until `stop`."""
        with ThreadPoolExecutor(self._config.parallel, thread_name_prefix="verify") as threads:
            while not self._stopping.is_set():
                self.start_some(threads)
                self._beat(idle=not self._running)
                self._hold_claims()
                if self._running:
                    self.settle(self._config.poll_s)
                else:
                    self._stopping.wait(self._config.poll_s)
            while self._running:
                self._hold_claims()
                self.settle(self._config.poll_s)

    def start_some(self, threads: ThreadPoolExecutor) -> int:
        """Begin with what is finished, one rollout per free slot; how many were begun.

        A slow one (a judge that does not answer) keeps its slot and nobody else's.
        """
        if not self._slots:
            return 0
        claimed = self._ledger.claim_finished(
            self._owner, len(self._slots), time.time(), self._config.claim_ttl_s
        )
        if claimed:
            self._say_who_judges()
        for finished in claimed:
            panels = self._panels_of(finished.composition)
            slot = self._slots.pop()
            job = threads.submit(self._grade, finished, panels[slot])
            self._running[job] = (slot, finished.rollout_id)
        return len(claimed)

    def grade_some(self, threads: ThreadPoolExecutor) -> int:
        """One round: grade what is finished, wait for all of it; how many were graded."""
        started = self.start_some(threads)
        while self._running:
            self.settle()
        return started

    def settle(self, wait_s: float | None = None) -> None:
        """Wait for the next rollout that is graded, and free its slot; raises what grading did."""
        done, _ = wait(self._running, wait_s, return_when=FIRST_COMPLETED)
        for job in done:
            slot, _ = self._running.pop(job)
            self._slots.append(slot)
            job.result()

    def stop(self) -> None:
        """End after the rollouts at hand."""
        self._stopping.set()

    def close(self) -> None:
        """End every child process and connection."""
        self._prober.close()
        for panels in self._panels.values():
            for panel in panels:
                panel.close()

    def _panels_of(self, version: str | None) -> list[Panel]:
        """One panel per thread for a composition that was put in use, maybe since we started."""
        if version not in self._panels:
            found = self._ledger.composition(version)
            assert found is not None, f"composition {version} is pinned and not in the ledger"
            self._open(version, Composition.model_validate(found[1]))
        return self._panels[version]

    def _open(self, version: str | None, composition: Composition) -> None:
        panels = self._panels[version] = []
        try:
            for _ in range(self._config.parallel):
                panels.append(Panel(composition))
            for config, judge in panels[0].judges:
                self._prober.watch(config, judge)
        except UserError:
            self.close()
            raise

    def _say_who_judges(self) -> None:
        """Make the judges of the composition in use known. Groups that keep an older one, and a
        recipe that was replaced while the run went, change nothing about who judges now.
        """
        used = self._ledger.composition()
        if used is not None and used[0] != self._met:
            for config, judge in self._panels_of(used[0])[0].judges:
                self._prober.meet(config, judge)
            self._met = used[0]

    def _grade(self, finished: FinishedRollout, panel: Panel) -> None:
        scores, turns = self._scores(finished, panel)
        # As far as judges are trusted now; the controller has the last word, with their weights.
        trust = factors_of([scores], self._ledger.factors_by_version())
        if self._put_off(finished, panel.composition, scores, trust):
            return
        null = is_null(panel.composition, scores, trust)
        ended_at = finished.ended_at
        if not self._ledger.write_scores(finished.rollout_id, scores, null=null, ended_at=ended_at):
            log.warning("%s: nobody waits for this verdict any more", finished.rollout_id)
            return
        for config, judge in panel.judges:
            self._prober.probe(episode_of(finished, turns), config, judge, scores)
        self._alarms.raise_for(scores)
        for score in scores:
            shown = "null" if score.value is None else f"{score.value:g}"
            log.info("%s %s %s %s", score.rollout_id, score.source, shown, score.cause or "")

    def _put_off(
        self,
        finished: FinishedRollout,
        composition: Composition,
        scores: Sequence[Score],
        trust: Mapping[str, float],
    ) -> bool:
        """Whether it is judged again later: a judge that may answer then is all it lacks."""
        missing = waits_for(composition, scores, trust)
        if not missing or finished.put_off >= self._config.judge_again:
            return False
        pause = pause_s(self._config.judge_again_s, finished.put_off, missing)
        self._ledger.put_off(self._owner, finished.rollout_id, time.time() + pause)
        self._alarms.put_off(missing)
        causes = "; ".join(f"{score.source}: {score.cause}" for score in missing)
        log.warning("%s is judged again in %g s: %s", finished.rollout_id, pause, causes)
        return True

    def _scores(
        self, finished: FinishedRollout, panel: Panel
    ) -> tuple[list[Score], tuple[Turn, ...]]:
        """The scores, and the turns that signals have looked at; nulls if those are lost.

        Without its tokens the rollout could not be trained either; another takes its place.
        """
        rollout = finished.rollout_id
        try:
            turns = panel.read(self._ledger.turns, rollout)
        except LostPayload as error:
            return panel.lost(rollout, error), ()
        return grade(finished, panel, self._config.attempts, turns), turns

    def _hold_claims(self) -> None:
        """Renew the claims of what takes long, so that nobody grades it a second time."""
        now, ttl = time.time(), self._config.claim_ttl_s
        if now - self._held_at > ttl / 4:
            self._held_at = now
            rollouts = [rollout for _, rollout in self._running.values()]
            self._ledger.hold_claims(self._owner, rollouts, now + ttl)

    def _beat(self, *, idle: bool) -> None:
        now = time.time()
        if idle == self._idle and now - self._beat_at < BEAT_S:
            return
        if idle != self._idle:
            self._since = now
        self._idle, self._beat_at = idle, now
        self._away.look(self._panels_of(self._met)[0].judges)
        away = self._ledger.waiting_for_judges() if idle else 0
        missing, owner = (f"a judge, for {away} rollouts", "judge") if away else (IDLE, "worker")
        self._ledger.beat(
            Beat(
                process="grader",
                doing="idle" if idle else "grades",
                waiting_for=missing if idle else None,
                owner=owner if idle else None,
                since=self._since,
                at=now,
            )
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; the exit status is 2 after a sentence about wrong input."""
    parser = argparse.ArgumentParser(prog="tradewind grader", description="Grade finished rollouts")
    parser.add_argument("--config", type=Path, help="JSON or TOML file with GraderConfig's fields")
    parser.add_argument("--workspace", type=Path, default=Path(), help="folder of the run")
    args = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    try:
        config = GraderConfig.read(args.config)
        ledger = Ledger.open(config.ledger or ledger_of(args.workspace))
        grader = Grader(config, ledger)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: grader.stop())
    log.info("ready: %d tasks can be scored, isolation %s", grader.tasks, report())
    try:
        grader.run()
    except (LedgerAway, Stalled, UserError) as error:  # a new life reads what came of it
        print(error, file=sys.stderr)
        return 1
    finally:
        grader.close()
        ledger.close()
    return 0
