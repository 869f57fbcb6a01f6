"""People as rungs of the ladder: what they were asked, read as if a signal had answered it.

They answer too seldom to be a reward, and their row says how far those can be believed who are held
against them: whether they agree with each other, and with what is more verifiable.
"""

from __future__ import annotations

from collections.abc import Sequence

from tradewind.rewards.config import Role, SignalConfig
from tradewind.rewards.ladder.readings import Readings
from tradewind.rewards.ladder.subject import Subject
from tradewind.rewards.signal import Kind, Verdict

PEOPLE = "people"


def people(subjects: Sequence[Subject]) -> list[Readings]:
    """One for each question that somebody answered; the result as a whole is called `people`."""
    asked = sorted({question for subject in subjects for question in subject.labels})
    return [_readings(question, subjects) for question in asked]


def _readings(question: str, subjects: Sequence[Subject]) -> Readings:
    name = f"{PEOPLE}.{question}" if question else PEOPLE
    found = Readings(SignalConfig(name=name, use=PEOPLE, role=Role.MONITOR), "", Kind.LABEL)
    for subject in subjects:
        labels = list(subject.labels.get(question, ()))
        found.verdicts.append(_verdict(subject.said(question)) if labels else None)
        if len(labels) > 1:
            found.repeats.append(list(labels))
    return found


def _verdict(said: bool | None) -> Verdict:
    if said is None:
        return Verdict(value=None, cause="as many said yes as no")
    return Verdict(value=float(said))
