"""vLLM's events as chunks: each token under the weights that sampled it."""

from __future__ import annotations

from typing import Any

import pytest
from events import event

from tradewind.pool.engines.vllm.client import VllmFailed
from tradewind.pool.engines.vllm.pending import Pending
from tradewind.types import FinishReason, GenerateChunk, GenerateRequest, Priority


def pending(priority: Priority, **more: Any) -> tuple[Pending, list[GenerateChunk]]:
    chunks: list[GenerateChunk] = []
    request = GenerateRequest(
        request_id="t", prompt_ids=(1, 2), max_tokens=9, stop_ids=(7,), priority=priority, **more
    )
    return Pending(request, chunks.append, 4, 9), chunks


def said(chunks: list[GenerateChunk]) -> list[tuple[tuple[int, ...], int]]:
    return [(chunk.ids, chunk.version) for chunk in chunks if chunk.ids]


def test_without_a_swap_tokens_are_delivered_as_they_come() -> None:
    asked, chunks = pending(Priority.ROLLOUT)
    asked.hear(event([1]), 0)
    asked.hear(event([2, 3]), 0)
    assert said(chunks) == [((1,), 0), ((2, 3), 0)]
    asked.hear(event([4], "stop", [(0, 0, 4)]), 0)
    assert said(chunks)[2:] == [((4,), 0)]
    assert chunks[-1].finish_reason is FinishReason.STOP
    assert [p for c in chunks for p in c.logprobs] == [-1, -2, -3, -4]


def test_a_rollouts_tokens_after_a_swap_wait_for_their_versions() -> None:
    asked, chunks = pending(Priority.ROLLOUT)
    asked.hear(event([1, 2]), 0)
    asked.straddles = True
    asked.hear(event([3, 4, 5]), 1)
    assert said(chunks) == [((1, 2), 0)]
    assert chunks[-1].ids == () and chunks[-1].finish_reason is None, "a sign of life"
    asked.hear(event([6], "length", [(0, 0, 4), (1, 4, 6)]), 1)
    assert said(chunks) == [((1, 2), 0), ((3, 4), 0), ((5, 6), 1)]
    assert (chunks[-1].finish_reason, chunks[-1].version) == (FinishReason.LENGTH, 1)


def test_a_user_does_not_wait() -> None:
    asked, chunks = pending(Priority.USER)
    asked.straddles = True
    asked.hear(event([1]), 0)
    asked.hear(event([2]), 1)
    assert said(chunks) == [((1,), 0), ((2,), 1)]
    asked.hear(event([3], "length", [(0, 0, 1), (1, 1, 3)]), 1)
    assert said(chunks)[2:] == [((3,), 1)]


def test_a_token_that_other_weights_sampled_than_was_said_is_an_error() -> None:
    asked, _ = pending(Priority.ROLLOUT)
    asked.hear(event([1, 2]), 0)
    asked.straddles = True
    with pytest.raises(VllmFailed, match="other weights"):
        asked.hear(event([3], "stop", [(0, 0, 1), (1, 1, 3)]), 1)


@pytest.mark.parametrize("spans", [None, [(0, 0, 1)]])
def test_a_token_without_a_version_is_an_error(spans: Any) -> None:
    asked, chunks = pending(Priority.ROLLOUT)
    with pytest.raises(VllmFailed, match="did not say"):
        asked.hear(event([1, 2], "stop", spans), 0)
    assert all(chunk.finish_reason is None for chunk in chunks)


def test_a_logprob_that_is_not_finite_is_an_error() -> None:
    asked, chunks = pending(Priority.ROLLOUT)
    with pytest.raises(VllmFailed, match="log-probability"):
        asked.hear(event([9999]), 0)
    assert chunks == []


def test_an_abort_that_nobody_asked_for_is_an_error() -> None:
    asked, _ = pending(Priority.ROLLOUT)
    with pytest.raises(VllmFailed, match="abort"):
        asked.hear(event([], "abort", []), 0)
    asked.cancelled = True
    again, chunks = pending(Priority.ROLLOUT)
    again.cancelled = True
    again.hear(event([], "abort", []), 0)
    assert chunks[-1].finish_reason is FinishReason.CANCELLED


def test_there_is_one_last_chunk() -> None:
    asked, chunks = pending(Priority.ROLLOUT)
    asked.finish(FinishReason.CANCELLED, 3)
    asked.fail("late", 3)
    asked.finish(FinishReason.CANCELLED, 3)
    assert [(c.finish_reason, c.error) for c in chunks] == [(FinishReason.CANCELLED, None)]


def test_a_listener_that_fails_is_not_called_again() -> None:
    calls: list[GenerateChunk] = []

    def listen(chunk: GenerateChunk) -> None:
        calls.append(chunk)
        raise ValueError("no")

    request = GenerateRequest(request_id="t", prompt_ids=(1,), max_tokens=9, stop_ids=())
    asked = Pending(request, listen, 0, 9)
    asked.hear(event([1]), 0)
    asked.hear(event([2]), 0)
    assert asked.deaf and len(calls) == 1


def test_what_is_asked_of_vllm() -> None:
    asked, _ = pending(Priority.EVAL, temperature=0.5, top_p=0.9, seed=3)
    body = asked.body("1.7")
    sampling = body["sampling_params"]
    assert (body["token_ids"], body["cache_salt"], body["priority"]) == ([1, 2], "1.7", 1)
    assert body["request_id"] == "4-t"
    assert (sampling["temperature"], sampling["top_p"], sampling["max_tokens"]) == (0.5, 0.9, 9)
    assert (sampling["stop_token_ids"], sampling["ignore_eos"]) == ([7], True)


def test_a_continued_request_does_not_see_the_same_random_numbers() -> None:
    first, _ = pending(Priority.ROLLOUT, seed=3)
    request = first.request.model_copy(update={"prompt_ids": (1, 2, 3)})
    again = Pending(request, lambda _: None, 0, 9)
    seeds = [p.body("0")["sampling_params"]["seed"] for p in (first, again)]
    assert seeds[0] != seeds[1]
    assert all(0 <= seed < 2**63 for seed in seeds)
