"""An OpenAI-compatible endpoint, asked politely: slots, rate, deadline, retries, budget.

    complete(messages, schema, until)
        │ breaker ── open ──► JudgeFailed(away)
        │ a slot of `parallel`, a place in the rate ── too late ──► JudgeFailed(busy)
        │ budget ── spent ──► JudgeFailed(budget)
        ▼
      POST /chat/completions ── 429, 5xx, silence ──► pause, again, up to `attempts`

One object serves all threads of a process. Every wait ends with `until`.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import httpx

from tradewind.rewards.judges.breaker import Away, Breaker
from tradewind.rewards.judges.failure import FailureKind, JudgeFailed, TryAgain
from tradewind.rewards.judges.options import EndpointOptions
from tradewind.rewards.judges.store import Budget, Store
from tradewind.types.errors import UserError
from tradewind.types.record import Json, Record

MOST_BYTES = 2_000_000
"""Of an answer that is read."""
LONGEST_PAUSE_S = 30.0
CHARACTERS_PER_TOKEN = 4
"""Estimate where an endpoint reports no usage, and before it does."""

Message = dict[str, str]


class Completion(Record):
    """A reply, with what it cost and who says to have given it."""

    text: str | None
    model: str
    """As reported, which may be more exact than the name that was asked for."""
    fingerprint: str | None
    finish_reason: str | None
    prompt_tokens: int
    completion_tokens: int
    estimated: bool
    """Whether the tokens are our estimate."""
    usd: float
    seconds: float
    attempts: int


class Endpoint:
    """Thread-safe. `sleep` and `clock` are replaced by tests only."""

    def __init__(
        self,
        options: EndpointOptions,
        store: Store,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Raises `UserError` if the endpoint, model or key is not named or not there."""
        self._options, self._clock, self._sleep = options, clock, sleep
        self.budget = Budget(options, store)
        url = httpx.URL(_needed(options.url, "url"))
        _needed(options.model, "model")
        self._http = httpx.Client(
            headers=_authorization(options.key_env),
            follow_redirects=False,
            trust_env=url.host not in ("127.0.0.1", "localhost", "::1"),  # no proxy to ourselves
            verify=url.scheme == "https",  # without TLS no certificates need to be loaded
            limits=httpx.Limits(
                max_connections=options.parallel, max_keepalive_connections=options.parallel
            ),
        )
        self._slots = threading.BoundedSemaphore(options.parallel)
        self._rate = _Rate(options.calls_per_s, clock)
        self._breaker = Breaker(options.breaker_s, clock)

    @property
    def now(self) -> float:
        """Seconds of the clock that `until` is meant by."""
        return self._clock()

    def away(self) -> Away | None:
        """Since when it is not asked, if it is not."""
        return self._breaker.away()

    def complete(self, messages: Sequence[Message], schema: Json, until: float) -> Completion:
        """A reply before `until`, held to `schema` if the options say so; raises `JudgeFailed`."""
        body = self._body(messages, schema)
        guess = sum(len(m["content"]) for m in messages) // CHARACTERS_PER_TOKEN
        failed: JudgeFailed | None = None
        for attempt in range(1, self._options.attempts + 1):
            try:
                return self._one_call(body, guess, until, attempt)
            except TryAgain as again:
                failed = again.failed
                self._pause(attempt, again.retry_after_s, until, failed)
        assert failed is not None
        raise JudgeFailed(failed.kind, f"{failed.why}, {self._options.attempts} times")

    def close(self) -> None:
        """Close every connection."""
        self._http.close()

    def _one_call(self, body: bytes, guess: int, until: float, attempt: int) -> Completion:
        self._breaker.check()
        with _Slot(self._slots, until - self._clock()):
            wait = self._rate.reserve(until)
            self._sleep(wait)
            bill = self.budget.reserve(guess, self._options.max_tokens)
            began = self._clock()
            try:
                with self._breaker.call():
                    status, headers, data = self._post(body, until)
                    answer = _answer(status, headers, data)
            except TryAgain as again:
                if again.failed.kind is not FailureKind.TIMEOUT:  # that one may be charged for
                    bill.settle(0, 0)
                raise
            except JudgeFailed:
                bill.settle(0, 0)
                raise
            completion = self._completion(answer, guess, self._clock() - began, attempt)
            bill.settle(completion.prompt_tokens, completion.completion_tokens)
            return completion

    def _body(self, messages: Sequence[Message], schema: Json) -> bytes:
        options = self._options
        body: dict[str, Any] = {
            "model": options.model,
            "messages": list(messages),
            "temperature": options.temperature,
            "max_tokens": options.max_tokens,
        }
        if options.response_format != "text":
            body["response_format"] = {"type": options.response_format}
        if options.response_format == "json_schema":
            body["response_format"]["json_schema"] = {"name": "verdict", "schema": schema}
        return json.dumps(body).encode()

    def _post(self, body: bytes, until: float) -> tuple[int, httpx.Headers, bytes]:
        """The whole answer before the call's limit, however slowly its bytes trickle.

        A server that hangs in accepting and then again in answering can take twice the limit.
        """
        limit = min(until, self._clock() + self._options.timeout_s)
        received = bytearray()
        try:
            with self._http.stream(
                "POST",
                f"{self._options.url}/chat/completions",
                content=body,
                headers={"Content-Type": "application/json"},
                timeout=max(0.001, limit - self._clock()),
            ) as response:
                for piece in response.iter_bytes():
                    received += piece
                    if len(received) > MOST_BYTES:
                        raise JudgeFailed(
                            FailureKind.MALFORMED, f"it answered more than {MOST_BYTES} bytes"
                        )
                    if self._clock() > limit:
                        raise httpx.ReadTimeout("the answer trickles")
                return response.status_code, response.headers, bytes(received)
        except httpx.TimeoutException as error:
            raise TryAgain(FailureKind.TIMEOUT, "it did not answer in time") from error
        except httpx.HTTPError as error:
            raise TryAgain(
                FailureKind.UNREACHABLE, f"the connection failed ({type(error).__name__})"
            ) from error

    def _completion(
        self, answer: dict[str, Any], guess: int, seconds: float, attempt: int
    ) -> Completion:
        try:
            choice = answer["choices"][0]
            text = choice["message"].get("content")
            usage = _usage(answer)
            sent, got = usage or (guess, len(text or "") // CHARACTERS_PER_TOKEN)
            return Completion(
                text=text,
                model=str(answer.get("model") or self._options.model),
                fingerprint=answer.get("system_fingerprint"),
                finish_reason=choice.get("finish_reason"),
                prompt_tokens=sent,
                completion_tokens=got,
                estimated=usage is None,
                usd=self.budget.price(sent, got),
                seconds=seconds,
                attempts=attempt,
            )
        except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
            raise TryAgain(FailureKind.MALFORMED, "it answered no chat completion") from error

    def _pause(self, attempt: int, asked_s: float, until: float, failed: JudgeFailed) -> None:
        if attempt == self._options.attempts:
            return
        backoff = self._options.backoff_s * 2 ** (attempt - 1) * random.uniform(0.5, 1.0)
        pause = max(asked_s, min(backoff, LONGEST_PAUSE_S))
        if self._clock() + pause >= until:
            raise JudgeFailed(failed.kind, f"{failed.why}, {attempt} times until the deadline")
        self._sleep(pause)


class _Slot:
    """One of the calls that may go on at the same time."""

    def __init__(self, slots: threading.BoundedSemaphore, wait_s: float) -> None:
        self._slots, self._wait_s = slots, wait_s

    def __enter__(self) -> None:
        if self._wait_s <= 0 or not self._slots.acquire(timeout=self._wait_s):
            raise JudgeFailed(FailureKind.BUSY, "no call could begin before the deadline")

    def __exit__(self, *_: object) -> None:
        self._slots.release()


class _Rate:
    """Places in a row, one each `1 / per_s` seconds."""

    def __init__(self, per_s: float | None, clock: Callable[[], float]) -> None:
        self._gap = 1 / per_s if per_s else 0.0
        self._clock, self._lock, self._next = clock, threading.Lock(), 0.0

    def reserve(self, until: float) -> float:
        """Seconds to wait for one's place; raises `JudgeFailed` if it comes after `until`."""
        with self._lock:
            now = self._clock()
            place = max(now, self._next)
            if place > until:
                raise JudgeFailed(FailureKind.BUSY, "the rate limit leaves no place in time")
            self._next = place + self._gap
            return place - now


def _answer(status: int, headers: httpx.Headers, data: bytes) -> dict[str, Any]:
    if status == 429 or status >= 500:
        raise TryAgain(FailureKind.OVERLOADED, f"it answered {status}", _retry_after(headers))
    if status != 200:
        said = data[:200].decode(errors="replace")
        raise JudgeFailed(FailureKind.REFUSED, f"it answered {status} ({said})")
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise TryAgain(FailureKind.MALFORMED, "it answered no JSON") from error
    if not isinstance(answer, dict):
        raise TryAgain(FailureKind.MALFORMED, "it answered no chat completion")
    return answer


def _usage(answer: dict[str, Any]) -> tuple[int, int] | None:
    """Tokens of prompt and reply as reported; None if that is no pair of counts."""
    usage = answer.get("usage") or {}
    sent, got = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if isinstance(sent, int) and isinstance(got, int) and min(sent, got) >= 0:
        return sent, got
    return None


def _retry_after(headers: httpx.Headers) -> float:
    """Seconds; a date, which few send, counts as nothing asked."""
    said = headers.get("retry-after", "")
    return float(said) if said.replace(".", "", 1).isdigit() else 0.0


def _needed(value: str, name: str) -> str:
    if not value:
        raise UserError(f"a judge has no {name}", fix=f'set {name} = "..." in its options')
    return value


def _authorization(variable: str | None) -> dict[str, str]:
    if variable is None:
        return {}
    key = os.environ.get(variable, "").strip()
    if not key:
        raise UserError(
            "the environment variable with the judge's key is not set",
            value=variable,
            fix=f"export {variable}, or name another one in key_env",
        )
    return {"Authorization": f"Bearer {key}"}
