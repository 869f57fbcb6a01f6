"""The signal `checked`: a criterion with a deterministic checker, which needs no judge.

[[grader.signals]]
name = "numbers-from-rows"
use = "checked"
role = "gate"
options = { criteria = "desk.toml", criterion = "numbers-from-rows" }
"""

from __future__ import annotations

import hashlib

from tradewind.rewards.criteria.exhibit import exhibit_of
from tradewind.rewards.criteria.file import read_criterion
from tradewind.rewards.criteria.options import CriterionOptions
from tradewind.rewards.judges.settled import without_a_judge
from tradewind.rewards.signal import Kind, Signal, Verdict
from tradewind.types.episode import Episode
from tradewind.types.errors import UserError


class CheckedSignal(Signal):
    """One criterion of a file."""

    takes = CriterionOptions
    kind = Kind.CHECK

    def __init__(self, options: CriterionOptions) -> None:
        """Raises `UserError` if the file or criterion is not there, or has no checker."""
        self.rubric, self.criterion = read_criterion(options.criteria, options.criterion)
        if self.criterion.checker is None:
            raise UserError(
                "the criterion has no checker, so somebody has to judge it",
                value=self.criterion.id,
                fix='write use = "judge", or give the criterion a checker',
            )
        self.needs_turns = self.criterion.needs_turns
        key = self.rubric.key(self.criterion)
        self.version = hashlib.sha256(key.encode()).hexdigest()[:12]

    def score(self, episode: Episode) -> Verdict:
        """What the checker says; 0 where there is no work to check."""
        shown = exhibit_of(self.criterion, episode.task, episode.outcome, episode.turns)
        found = without_a_judge(self.rubric, self.criterion, shown)
        assert found is not None, "a checker settles everything"
        return found
