"""A judge's verdict on one criterion: from evidence to a level, or a null with its cause.

    exhibit ── checker named ────────────────────────────► level, without any call
            ── nothing there, a master key, an echo ─────► 0
            ── too long to be read ──────────────────────► the worst value
            ── read before ── store ─────────────────────► the reading, cached
            ── call ── reply ── quotes found ────────────► a reading
                         └ unusable ── reminder, once ── unusable ──► null
      near the bar, or readings differ ── another reading, while it is worth it ──► the middle one

What the policy can cause is graded. Only the judge's own failure is null.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import ValidationError

from tradewind.rewards.criteria.criterion import Criterion, Rubric
from tradewind.rewards.criteria.exhibit import Exhibit
from tradewind.rewards.judges.breaker import Away
from tradewind.rewards.judges.endpoint import Completion, Endpoint, Message
from tradewind.rewards.judges.failure import NULL_CLASS, SPARED_S, FailureKind, JudgeFailed
from tradewind.rewards.judges.options import JudgeOptions
from tradewind.rewards.judges.prompt import TEMPLATE_HASH, messages_for, reminder, schema_of
from tradewind.rewards.judges.repeats import correlation, worth_another
from tradewind.rewards.judges.reply import Reply, Unusable, read_reply
from tradewind.rewards.judges.settled import Judgement, about, without_a_judge
from tradewind.rewards.judges.store import Store
from tradewind.rewards.trust.statistics.noise import effective_repeats
from tradewind.types.digest import digest_of
from tradewind.types.record import Json, Record

log = logging.getLogger("judge")

SHOWN_REPLY = 2000
"""Characters of an unusable reply that go back to the judge, and into the evidence."""


class Reading(Record):
    """One usable reply, and how it came."""

    reply: Reply
    raw: str
    completion: Completion
    calls: int
    """Of the endpoint, a reminder included."""
    usd: float
    tokens: int


class Judge:
    """One endpoint, for any criterion. Thread-safe; equal options share one (`shared.py`)."""

    def __init__(self, options: JudgeOptions, endpoint: Endpoint, store: Store) -> None:
        self._options, self._endpoint, self._store = options, endpoint, store
        self._flights: dict[str, tuple[threading.Lock, int]] = {}
        self._guard = threading.Lock()
        asked = {"url", "model", "temperature", "max_tokens", "response_format"}
        self.identity = digest_of(options.model_dump(mode="json", include=asked))
        """16 hex digits over what can change a reply: endpoint, model, sampling."""

    def decide(self, rubric: Rubric, criterion: Criterion, exhibit: Exhibit) -> Judgement:
        """The verdict; never raises for anything the rollout or the judge can do."""
        context = self._about(rubric, criterion)
        settled = without_a_judge(rubric, criterion, exhibit, self._options.max_chars)
        if settled is not None:
            return settled.model_copy(update={"evidence": {**context, **settled.evidence}})
        until = self._endpoint.now + self._options.deadline_s
        readings: list[Reading] = []
        cached, ended = 0, None
        try:
            while not readings or self._wants_another(rubric, criterion, readings):
                number = len(readings)
                found, old = self._read_once(rubric, criterion, exhibit, number, until)
                readings.append(found)
                cached += old
        except JudgeFailed as failed:
            if not readings:
                return self._null(context, failed)
            ended = str(failed)
        rho = self._rho(rubric, criterion) if len(readings) > 1 else self._options.correlation
        shown = {"cached": cached == len(readings), "repeats_ended": ended, "correlation": rho}
        return _verdict(criterion, readings, {**context, **shown})

    def read(
        self,
        rubric: Rubric,
        criterion: Criterion,
        exhibit: Exhibit,
        number: int = 0,
        *,
        fresh: bool = False,
    ) -> Reading:
        """Reading `number` of an exhibit, from the store if it is there; raises `JudgeFailed`.

        `fresh` asks the endpoint whatever the store holds, and stores nothing: for anchors, whose
        verdicts are compared with those of another day.
        """
        until = self._endpoint.now + self._options.deadline_s
        if fresh:
            return self._ask(criterion, exhibit, until)
        return self._read_once(rubric, criterion, exhibit, number, until)[0]

    def away(self) -> Away | None:
        """Since when its endpoint is not asked, if it is not."""
        return self._endpoint.away()

    def close(self) -> None:
        """Close connections and store."""
        self._endpoint.close()
        self._store.close()

    def _about(self, rubric: Rubric, criterion: Criterion) -> Json:
        return {
            **about(rubric, criterion),
            "judge": self._options.model,
            "judge_id": self.identity,
            "prompt_hash": TEMPLATE_HASH,
        }

    def _read_once(
        self, rubric: Rubric, criterion: Criterion, exhibit: Exhibit, number: int, until: float
    ) -> tuple[Reading, bool]:
        """The reading, and whether it was stored; equal exhibits at the same time are one call."""
        family = digest_of([self.identity, TEMPLATE_HASH, rubric.key(criterion)])
        key = digest_of([family, exhibit.model_dump(mode="json")], 64)
        with self._flight(f"{key} {number}", until):
            stored = self._stored(key, number)
            if stored is not None:
                return stored, True
            found = self._ask(criterion, exhibit, until)
            value = criterion.value(found.reply.level)
            self._store.keep(key, number, family, value, found.model_dump_json())
            return found, False

    def _ask(self, criterion: Criterion, exhibit: Exhibit, until: float) -> Reading:
        messages: list[Message] = messages_for(criterion, exhibit.shown, exhibit.task)
        spent: list[Completion] = []
        fault = ""
        for _ in range(2):
            completion = self._endpoint.complete(messages, schema_of(criterion), until)
            spent.append(completion)
            try:
                reply = _reply(completion, criterion, exhibit)
            except Unusable as error:
                fault = str(error)
                said = (completion.text or "")[:SHOWN_REPLY]
                messages = [*messages, {"role": "assistant", "content": said}]
                messages.append(reminder(criterion, fault))
                continue
            return Reading(
                reply=reply,
                raw=completion.text or "",
                completion=completion,
                calls=sum(one.attempts for one in spent),
                usd=sum(one.usd for one in spent),
                tokens=sum(one.prompt_tokens + one.completion_tokens for one in spent),
            )
        said = (spent[-1].text or "")[:SHOWN_REPLY]
        raise JudgeFailed(
            FailureKind.INVALID, f"{fault}, also after a reminder; it said {said[:200]!r}"
        )

    def _stored(self, key: str, number: int) -> Reading | None:
        text = self._store.reading(key, number)
        if text is None:
            return None
        try:
            return Reading.model_validate_json(text)
        except ValidationError:  # of an older version of this program: asked again
            return None

    def _wants_another(self, rubric: Rubric, criterion: Criterion, readings: list[Reading]) -> bool:
        options = self._options
        if len(readings) >= options.repeats:
            return False
        places = [_place(criterion, reading) for reading in readings]
        near = options.near_low < sum(places) / len(places) < options.near_high
        if not near and len({reading.reply.level for reading in readings}) == 1:
            return False
        rho = self._rho(rubric, criterion)
        if not worth_another(len(readings), rho, options.least_gain):
            return False
        return self._endpoint.budget.allows_repeats()

    def _rho(self, rubric: Rubric, criterion: Criterion) -> float:
        family = digest_of([self.identity, TEMPLATE_HASH, rubric.key(criterion)])
        found = correlation(self._store.repeated(family))
        return self._options.correlation if found is None else found

    def _null(self, context: Json, failed: JudgeFailed) -> Judgement:
        evidence = {**context, "settled_by": "failure", NULL_CLASS: failed.kind.value}
        if failed.kind is FailureKind.AWAY:
            evidence[SPARED_S] = self._options.deadline_s
        if failed.kind.alarming:
            evidence["alarm"] = str(failed)
        log.warning("%s %s: %s", context["judge"], context["criterion"], failed)
        return Judgement(value=None, cause=str(failed), evidence=evidence)

    @contextmanager
    def _flight(self, key: str, until: float) -> Iterator[None]:
        with self._guard:
            lock, waiting = self._flights.get(key, (threading.Lock(), 0))
            self._flights[key] = (lock, waiting + 1)
        try:
            if not lock.acquire(timeout=max(0.0, until - self._endpoint.now)):
                raise JudgeFailed(FailureKind.BUSY, "the same question is still being asked")
            try:
                yield
            finally:
                lock.release()
        finally:
            with self._guard:
                lock, waiting = self._flights.pop(key)
                if waiting > 1:
                    self._flights[key] = (lock, waiting - 1)


def _reply(completion: Completion, criterion: Criterion, exhibit: Exhibit) -> Reply:
    try:
        return read_reply(completion.text, criterion, exhibit.shown)
    except Unusable:
        if completion.finish_reason == "length":
            raise Unusable("it was cut off at max_tokens") from None
        raise


def _place(criterion: Criterion, reading: Reading) -> float:
    """Where a reading stands between lowest and highest level; a yes counts by its confidence."""
    levels, reply = criterion.levels, reading.reply
    place = levels.index(reply.level) / (len(levels) - 1)
    if len(levels) > 2:
        return place
    return place * reply.confidence + (1 - place) * (1 - reply.confidence)


def _verdict(criterion: Criterion, readings: list[Reading], context: Json) -> Judgement:
    """The middle reading; of two in the middle that which serves the policy less."""
    ordered = sorted(readings, key=lambda r: criterion.value(r.reply.level))
    lower = criterion.weight > 0
    middle = ordered[(len(ordered) - 1) // 2 if lower else len(ordered) // 2]
    reply, last = middle.reply, middle.completion
    agree = sum(r.reply.level == reply.level for r in readings) / len(readings)
    evidence = {
        **context,
        "settled_by": "judge",
        "reported_model": last.model,
        "fingerprint": last.fingerprint,
        "level": reply.level,
        "confidence": reply.confidence,
        "quotes": [quote.model_dump() for quote in reply.quotes],
        "raw": middle.raw,
        "latency_s": round(sum(r.completion.seconds for r in readings), 4),
        "usage": _usage(readings),
        "readings": [r.reply.level for r in readings],
        "agreement": agree,
        "effective_readings": round(effective_repeats(len(readings), context["correlation"]), 3),
    }
    return Judgement(
        value=criterion.value(reply.level),
        level=reply.level,
        cause=f"{reply.level}: {reply.reason or 'no reason given'}"[:400],
        evidence=evidence,
    )


def _usage(readings: list[Reading]) -> Json:
    """What the readings cost when they were made; a cached verdict costs nothing again."""
    return {
        "calls": sum(r.calls for r in readings),
        "tokens": sum(r.tokens for r in readings),
        "usd": round(sum(r.usd for r in readings), 8),
        "estimated": any(r.completion.estimated for r in readings),
    }
