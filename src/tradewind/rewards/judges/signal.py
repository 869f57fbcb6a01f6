"""The signal `judge`: one criterion of a file, asked of one endpoint.

    [[grader.signals]]
    name = "states-the-number"
    use = "judge"
    weight = 1.0
    options = { criteria = "desk.toml", criterion = "states-the-number", url = ..., model = ... }

A criterion with a deterministic checker needs no judge and is used as `checked`.
"""

from __future__ import annotations

import hashlib
import sqlite3

from tradewind.rewards.criteria.criterion import Criterion, Rubric
from tradewind.rewards.criteria.exhibit import Exhibit, exhibit_of
from tradewind.rewards.criteria.file import read_criterion
from tradewind.rewards.judges.breaker import Away
from tradewind.rewards.judges.failure import JudgeFailed
from tradewind.rewards.judges.judge import Judge
from tradewind.rewards.judges.options import JudgeOptions
from tradewind.rewards.judges.prompt import TEMPLATE_HASH
from tradewind.rewards.judges.shared import give_back, open_judge
from tradewind.rewards.signal import Kind, Signal, Verdict, VerifierFailed
from tradewind.rewards.trust.features import FEATURES, features_of
from tradewind.types.episode import Episode
from tradewind.types.errors import UserError
from tradewind.types.record import Json


class JudgeSignal(Signal):
    """One criterion of a file."""

    takes = JudgeOptions
    kind = Kind.JUDGED

    def __init__(self, options: JudgeOptions) -> None:
        """Raises `UserError` if the file, the criterion or the endpoint cannot be used."""
        self._options = options
        self.rubric, self.criterion = read_criterion(options.criteria, options.criterion)
        if self.criterion.checker is not None:
            raise UserError(
                "the criterion has a checker, so nobody has to judge it",
                value=self.criterion.id,
                fix='write use = "checked" and leave out the judge',
            )
        self.needs_turns = self.criterion.needs_turns
        self._judge = open_judge(options)
        self._open = True
        self.version = _version(self.rubric, self.criterion, self._judge, options)

    def score(self, episode: Episode) -> Verdict:
        """The judge's verdict, or a null with its cause; raises `VerifierFailed` for its store."""
        exhibit = self.exhibit(episode)
        try:
            found = self._judge.decide(self.rubric, self.criterion, exhibit)
        except sqlite3.Error as error:
            raise VerifierFailed(f"the judge's store does not work ({error})") from error
        features = features_of(exhibit.work, self.criterion.question)
        return found.model_copy(update={"evidence": {**found.evidence, FEATURES: features}})

    def exhibit(self, episode: Episode) -> Exhibit:
        """What the judge is shown of an episode."""
        return exhibit_of(self.criterion, episode.task, episode.outcome, episode.turns)

    def ask(self, exhibit: Exhibit) -> float | None:
        """The judge's own verdict on any exhibit, fresh and stored nowhere: for probes.

        Nothing is settled before it is asked. None if it gives no verdict.
        """
        try:
            reading = self._judge.read(self.rubric, self.criterion, exhibit, fresh=True)
        except (JudgeFailed, sqlite3.Error):
            return None
        return self.criterion.value(reading.reply.level)

    def away(self) -> Away | None:
        """Since when its endpoint is not asked, if it is not."""
        return self._judge.away()

    def about(self) -> Json:
        """Who judges what, for people."""
        return {
            "model": self._options.model,
            "prompt": TEMPLATE_HASH,
            "criterion": self.criterion.id,
            "rubric": f"{self.rubric.name} {self.rubric.version}",
        }

    def close(self) -> None:
        """Give the judge back."""
        if self._open:
            self._open = False
            give_back(self._options)


def _version(rubric: Rubric, criterion: Criterion, judge: Judge, options: JudgeOptions) -> str:
    """12 hex digits over all that a verdict depends on, but for the judge's own moods."""
    deciding = options.model_dump_json(include={"repeats", "near_low", "near_high", "max_chars"})
    parts = (rubric.key(criterion), judge.identity, TEMPLATE_HASH, deciding)
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:12]
