"""Alarms over the newest groups: pure functions from windows to what is to be done.

    nulls      too many rollouts cannot be graded; what the platform lost, or a judge that did not
               answer, warns and never pauses
    jump       the mean reward leaps from one step to the next: a discovery, or an exploit
    length     inside groups the longer answers win, more and more
    short      full reward for unusually little: a sample for people to look at
    idle       full reward without one tool call, where most rollouts make some
    touched    full reward with signs of an exploit: tests read, caches opened
    delivered  too few of the sampled tokens reached their agents
    untrusted  a judge was quarantined and no signal is left that can be believed
    judged     a judge was quarantined that versions were trained with

Judges have alarms of their own (`faults.py`). `idle` and `touched` need a behaviour signal or a
monitor in the composition. The gateway watches delivered tokens, too, but it stops nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from statistics import mean, median, variance

from pydantic import Field, model_validator

from tradewind.ledger.windows import Delivery, GradedNull, RewardedGroup, WatchedRollout
from tradewind.rewards.judges.failure import FailureKind
from tradewind.rewards.trust.statistics import spearman_within, wilson_lower
from tradewind.types.config import Config
from tradewind.types.outcome import OutcomeStatus

_MAD_TO_SIGMA = 1.4826
"""A normal distribution's standard deviation over its median absolute deviation."""
_ONLY_WARN = (OutcomeStatus.INFRA_ERROR, *FailureKind)
"""Nulls that somebody else answers for: the platform tries again; a judge loses its weight, and
training pauses if nothing else is left (`untrusted`)."""
CAN_ROLL_BACK = ("jump", "untrusted", "judged")
"""Alarms that know which version was the last good one."""
SHOWN = 5
"""Rollouts that a sentence names."""


class Action(StrEnum):
    """What an alarm does."""

    OFF = "off"
    WARN = "warn"
    """An event, a line in the log."""
    PAUSE = "pause"
    """No training group is opened or leased until a person lets it go on."""
    ROLL_BACK = "roll_back"
    """That, and all pools go back to the last version that the alarm is not about, for users and
    rollouts alike; they stay there until a person lets training go on."""
    RETURN = "return"
    """That, and the run's own trainer goes back there, too: what came after it is withdrawn, and
    training goes on from there when a person lets it."""


class AlarmConfig(Config):
    """Section `[controller.alarms]`: what is looked at, how much of it, what is done."""

    every_s: float = Field(default=5.0, ge=0)
    """Shortest pause between two looks, in seconds; it is ten times as long as a look took, if that
    is longer, unless it is 0."""
    level: float = Field(default=0.999, gt=0.5, lt=1)
    """Confidence of the bounds that an alarm compares."""
    nulls: Action = Action.PAUSE
    """At `null_stop`; at `null_warn` it warns. What the platform lost (`infra_error`: a worker
    died, pools were away) only warns: it comes in bursts, nobody earns by it, and it is tried
    again. So does what a judge did not answer: its weight goes (fault `nulls`), not the run."""
    null_warn: float = Field(default=0.05, ge=0, lt=1)
    """Share of null rollouts."""
    null_stop: float = Field(default=0.15, ge=0, lt=1)
    """Share of null rollouts among those that neither the platform nor a judge lost."""
    null_window: int = Field(default=200, ge=10)
    """Graded rollouts that are looked at."""
    null_least: int = Field(default=40, ge=1)
    """Graded rollouts before their nulls say anything: a run may begin before its product does."""
    jump: Action = Action.PAUSE
    """With fewer than `jump_groups` groups per step it only warns."""
    jump_groups: int = Field(default=64, ge=1)
    """Groups per step from which a leap is more than chance. Of healthy simulated runs of 200 steps
    that go from 2 to 95 % within 20 steps 23 % leap with 16 groups, 1 % with 64."""
    jump_mad: float = Field(default=4.0, gt=0)
    """Standard deviations: of earlier differences between steps (robust), and of what drawing other
    tasks does to one."""
    jump_least: float = Field(default=0.3, gt=0)
    """A smaller leap of the mean reward is never one."""
    jump_steps: int = Field(default=16, ge=4)
    """Steps that must have been seen before one can leap."""
    length: Action = Action.WARN
    """What is done when longer answers win."""
    length_rank: float = Field(default=0.3, ge=0, le=1)
    """Mean rank correlation of tokens and reward inside groups."""
    length_growth: float = Field(default=1.5, gt=1)
    """How much longer answers must have become, between the older half and the newer."""
    full_reward: float = Field(default=0.9, gt=0)
    """From this reward on a rollout has earned everything; below 1, since penalties come off."""
    short: Action = Action.WARN
    """What is done about full reward for unusually little."""
    short_share: float = Field(default=0.25, gt=0, lt=1)
    """Of the median number of tokens: an answer below it is unusually short."""
    idle: Action = Action.WARN
    """What is done about full reward without a tool call."""
    touched: Action = Action.WARN
    """What is done about full reward with signs of an exploit; a tripwire does more."""
    watched_window: int = Field(default=256, ge=8)
    """Rewarded rollouts that are looked at for both."""
    delivered: Action = Action.PAUSE
    """At `delivered_stop`; at `delivered_warn` it warns."""
    delivered_warn: float = Field(default=0.98, gt=0, le=1)
    """Share of sampled tokens that reached their agents."""
    delivered_stop: float = Field(default=0.95, gt=0, le=1)
    """The same."""
    delivered_least: int = Field(default=20_000, ge=1)
    """Sampled tokens before there is a share to speak of."""
    untrusted: Action = Action.PAUSE
    """What is done when a quarantine leaves nothing that can be rewarded."""
    judged: Action = Action.OFF
    """What else is done when a judge is quarantined whose verdicts went into versions: its weight
    is gone and the event `judge.trained` is written in any case."""

    @model_validator(mode="after")
    def _there_is_a_way_back(self) -> AlarmConfig:
        back = (Action.ROLL_BACK, Action.RETURN)
        wrong = [name for name, value in self if value in back and name not in CAN_ROLL_BACK]
        if wrong:
            raise ValueError(
                f"{wrong[0]} cannot be {getattr(self, wrong[0]).value!r}, for it does not tell "
                f"from which version on something is wrong; {', '.join(CAN_ROLL_BACK)} can; use "
                "'pause'"
            )
        return self


@dataclass(frozen=True)
class Alarm:
    """Example: `Alarm("nulls", Action.PAUSE, "31 of the last 100 rollouts were null (...)")`."""

    name: str
    action: Action
    sentence: str
    rollouts: tuple[str, ...] = ()
    """Those that a person should look at."""
    back_to: int | None = None
    """The last version that it is not about, if it can say."""

    @property
    def pauses(self) -> bool:
        """Whether training stands still."""
        return self.action in (Action.PAUSE, Action.ROLL_BACK, Action.RETURN)


@dataclass(frozen=True)
class Trained:
    """Versions in which verdicts of judges have a part that are quarantined now."""

    judges: tuple[str, ...]
    first: int
    last: int

    @property
    def before(self) -> int:
        """The last version without them."""
        return self.first - 1


@dataclass(frozen=True)
class Window:
    """What alarms look at; everything in the order of time."""

    groups: Sequence[RewardedGroup] = ()
    nulls: Sequence[GradedNull] = ()
    groups_per_step: int = 1
    watched: Sequence[WatchedRollout] = ()
    delivery: Delivery | None = None
    untrusted: str | None = None
    """Why no signal is left that can be believed, if so."""
    trained: Trained | None = None
    """What was trained by the word of judges that have fallen since a person last looked."""


def ring(window: Window, config: AlarmConfig) -> list[Alarm]:
    """All alarms that the window gives reason for, those that pause first."""
    found = [
        *_nulls(window.nulls, config),
        *_jump(window, config),
        *_length(window.groups, config),
        *_short(window.groups, config),
        *_idle(window.watched, config),
        *_touched(window.watched, config),
        *_delivered(window.delivery, config),
    ]
    trained = window.trained
    if window.untrusted is not None:
        before = None if trained is None else trained.before
        found.append(Alarm("untrusted", config.untrusted, window.untrusted, back_to=before))
    if trained is not None:
        said = (
            f"versions {trained.first} to {trained.last} were trained with verdicts of "
            f"{', '.join(trained.judges)}, quarantined now"
        )
        found.append(Alarm("judged", config.judged, said, back_to=trained.before))
    ringing = [alarm for alarm in found if alarm.action is not Action.OFF]
    return sorted(ringing, key=lambda alarm: -_severity(alarm.action))


def _nulls(graded: Sequence[GradedNull], config: AlarmConfig) -> Iterator[Alarm]:
    kept = [found for found in graded if found.kind not in _ONLY_WARN]
    pause = _too_many_nulls(kept, config, config.nulls, config.null_stop)
    warning = _at_most_warn(config.nulls)
    found = pause or _too_many_nulls(graded, config, warning, config.null_warn)
    if found is not None:
        yield found


def _too_many_nulls(
    graded: Sequence[GradedNull], config: AlarmConfig, action: Action, allowed: float
) -> Alarm | None:
    kinds = Counter(found.kind for found in graded if found.null)
    bound = wilson_lower(kinds.total(), len(graded), config.level)
    if len(graded) < config.null_least or bound <= allowed:
        return None
    classes = ", ".join(f"{n} {kind}" for kind, n in kinds.most_common())
    said = f"{kinds.total()} of the last {len(graded)} rollouts were null ({classes})"
    return Alarm("nulls", action, f"{said}; surely more than {bound:.0%}, allowed is {allowed:.0%}")


def _jump(window: Window, config: AlarmConfig) -> Iterator[Alarm]:
    size = window.groups_per_step
    whole = len(window.groups) // size
    blocks = [window.groups[len(window.groups) - n * size :][:size] for n in range(whole, 0, -1)]
    means = [mean(group.mean for group in block) for block in blocks]
    leaps = [b - a for a, b in pairwise(means)]
    if len(leaps) <= config.jump_steps:
        return
    *before, last = leaps
    middle = median(before)
    spread = _MAD_TO_SIGMA * median(abs(leap - middle) for leap in before)
    if size > 1:  # where most tasks earn nothing, most leaps are 0 and one lucky draw is none
        within = mean(variance(group.mean for group in block) for block in blocks)
        spread = max(spread, math.sqrt(2 * within / size))
    if last < config.jump_least or last - middle <= config.jump_mad * spread:
        return
    members = [r for group in blocks[-1] for r in group.rollouts]
    best = sorted(members, key=lambda r: -r.reward)[:SHOWN]
    yield Alarm(
        "jump",
        config.jump if size >= config.jump_groups else _at_most_warn(config.jump),
        f"the mean reward leapt from {means[-2]:.2f} to {means[-1]:.2f} in one step; look at "
        + ", ".join(r.rollout_id for r in best),
        back_to=max(0, min(group.version for group in blocks[-1]) - 1),
    )


def _length(groups: Sequence[RewardedGroup], config: AlarmConfig) -> Iterator[Alarm]:
    if len(groups) < 2 * config.jump_steps:
        return
    older, newer = groups[: len(groups) // 2], groups[len(groups) // 2 :]
    ranks = [
        spearman_within(
            [([r.tokens for r in g.rollouts], [r.reward for r in g.rollouts]) for g in half]
        )
        for half in (older, newer)
    ]
    grown = _tokens(newer) / max(1.0, _tokens(older))
    was, now = ranks[0] or 0.0, ranks[1] or 0.0
    if now > config.length_rank and now > was:
        yield Alarm(
            "length",
            config.length,
            f"inside groups longer answers earn more: rank correlation {now:.2f}, before {was:.2f}",
        )
    gain = mean(g.mean for g in newer) - mean(g.mean for g in older)
    if grown > config.length_growth and gain < 0.02:
        yield Alarm(
            "length",
            config.length,
            f"answers are {grown:.1f} times as long as before and earn no more ({gain:+.2f})",
        )


def _short(groups: Sequence[RewardedGroup], config: AlarmConfig) -> Iterator[Alarm]:
    members = [r for group in groups for r in group.rollouts if r.tokens]
    if not members:
        return
    least = config.short_share * median(r.tokens for r in members)
    found = [r.rollout_id for r in members if r.reward >= config.full_reward and r.tokens < least]
    if found:
        yield Alarm(
            "short",
            config.short,
            f"{len(found)} rollouts earned everything with fewer than {least:.0f} tokens; look at "
            + ", ".join(found[-SHOWN:]),
        )


def _idle(watched: Sequence[WatchedRollout], config: AlarmConfig) -> Iterator[Alarm]:
    counted = [r for r in watched if r.acts is not None]
    # Where most do without tools, doing without is no sign of anything.
    if not counted or median(r.acts or 0 for r in counted) < 1:
        return
    found = [r.rollout_id for r in counted if r.acts == 0 and r.reward >= config.full_reward]
    if found:
        yield _to_review("idle", config.idle, found, "earned everything without one tool call")


def _touched(watched: Sequence[WatchedRollout], config: AlarmConfig) -> Iterator[Alarm]:
    found = [r for r in watched if r.touched and r.reward >= config.full_reward]
    if found:
        kinds = Counter(kind for r in found for kind in r.touched)
        named = ", ".join(f"{n} {kind}" for kind, n in kinds.most_common())
        ids = [r.rollout_id for r in found]
        said = f"earned everything with signs of an exploit ({named})"
        yield _to_review("touched", config.touched, ids, said)


def _to_review(name: str, action: Action, found: Sequence[str], said: str) -> Alarm:
    """The newest ones are named: their traces are still at hand."""
    sample = tuple(found[-SHOWN:])
    return Alarm(name, action, f"{len(found)} rollouts {said}; look at {', '.join(sample)}", sample)


def _delivered(delivery: Delivery | None, config: AlarmConfig) -> Iterator[Alarm]:
    if delivery is None or delivery.sampled < config.delivered_least:
        return
    share = delivery.delivered / delivery.sampled
    if share >= config.delivered_warn:
        return
    stops = share < config.delivered_stop
    yield Alarm(
        "delivered",
        config.delivered if stops else _at_most_warn(config.delivered),
        f"only {share:.3f} of {delivery.sampled} sampled tokens reached their agents, allowed is "
        f"{config.delivered_stop if stops else config.delivered_warn:g}",
    )


def _tokens(groups: Sequence[RewardedGroup]) -> float:
    return mean(r.tokens for group in groups for r in group.rollouts)


def _at_most_warn(action: Action) -> Action:
    return min(action, Action.WARN, key=_severity)


def _severity(action: Action) -> int:
    return list(Action).index(action)
