"""The grader: finished rollouts in, scores out.

ledger: finished rollouts ──claim (held for claim_ttl_s)──┐
                                                          ▼
killable child ◄── SQL ── verifier ◄── task, outcome ── grade ──► ledger: scores
  (rows back)   ──────►  (verdict here)

consumes     finished rollouts: outcome and reference
produces     one score each: a value, or a null with its cause
waits for    rollouts to finish (worker), by looking every poll_s
unblocked by the controller's `finish`
if killed    its claims run out and any grader takes them; nothing is lost or graded twice

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
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tradewind.grader.config import GraderConfig
from tradewind.grader.grading import grade
from tradewind.ledger.ledger import Ledger
from tradewind.ledger.scores import FinishedRollout
from tradewind.rewards.process import LEVEL
from tradewind.rewards.registry import check_tasks, open_reward
from tradewind.rewards.reward import Reward
from tradewind.types.beat import Beat
from tradewind.types.errors import UserError

log = logging.getLogger("grader")

BEAT_S = 1.0


class Grader:
    """Grades until told to stop. `run` blocks; `stop` may be called from a signal handler."""

    def __init__(self, config: GraderConfig, ledger: Ledger) -> None:
        """Opens the verifiers; raises `UserError` if one cannot be or a task cannot be scored."""
        self._config, self._ledger = config, ledger
        self._owner = f"grader@{socket.gethostname()}:{os.getpid()}"
        self._rewards: list[Reward] = [open_reward(config) for _ in range(config.parallel)]
        self._stopping = threading.Event()
        self._since, self._beat_at, self._idle = time.time(), 0.0, False
        try:
            self.tasks = check_tasks(self._rewards[0], ledger.tasks())
        except UserError:
            self.close()
            raise

    def run(self) -> None:
        """Claim, grade, write, until `stop`."""
        with ThreadPoolExecutor(self._config.parallel, thread_name_prefix="verify") as threads:
            while not self._stopping.is_set():
                graded = self.grade_some(threads)
                self._beat(idle=not graded)
                if not graded:
                    self._stopping.wait(self._config.poll_s)

    def grade_some(self, threads: ThreadPoolExecutor) -> int:
        """Grade what is finished, at most one rollout per verifier; how many were graded."""
        claimed = self._ledger.claim_finished(
            self._owner, len(self._rewards), time.time(), self._config.claim_ttl_s
        )
        pairs = zip(claimed, self._rewards, strict=False)
        jobs = [threads.submit(self._grade, finished, reward) for finished, reward in pairs]
        for job in jobs:
            job.result()
        return len(jobs)

    def stop(self) -> None:
        """End after the rollouts at hand."""
        self._stopping.set()

    def close(self) -> None:
        """End every child process."""
        for reward in self._rewards:
            reward.close()

    def _grade(self, finished: FinishedRollout, reward: Reward) -> None:
        score = grade(finished, reward, self._config.attempts)
        self._ledger.write_scores(finished.rollout_id, [score])
        shown = "null" if score.value is None else f"{score.value:g}"
        log.info("%s %s %s", finished.rollout_id, shown, score.cause or "")

    def _beat(self, *, idle: bool) -> None:
        now = time.time()
        if idle == self._idle and now - self._beat_at < BEAT_S:
            return
        if idle != self._idle:
            self._since = now
        self._idle, self._beat_at = idle, now
        self._ledger.beat(
            Beat(
                process="grader",
                doing="idle" if idle else "grades",
                waiting_for="a finished rollout" if idle else None,
                owner="worker" if idle else None,
                since=self._since,
                at=now,
            )
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; the exit status is 2 after a sentence about wrong input."""
    parser = argparse.ArgumentParser(prog="tradewind.grader", description="Grade finished rollouts")
    parser.add_argument("--config", type=Path, help="JSON or TOML file with GraderConfig's fields")
    parser.add_argument("--workspace", type=Path, default=Path(), help="folder of the run")
    args = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    try:
        config = GraderConfig.read(args.config)
        ledger = Ledger.open(config.ledger or args.workspace / "ledger.sqlite")
        grader = Grader(config, ledger)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: grader.stop())
    log.info("ready: %d tasks can be scored, isolation %s", grader.tasks, LEVEL)
    try:
        grader.run()
    finally:
        grader.close()
        ledger.close()
    return 0
