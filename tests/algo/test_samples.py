import math

import pytest

from tradewind.algo.samples import branches, samples_of
from tradewind.types import (
    ClosedGroup,
    Completion,
    GradedRollout,
    Group,
    Task,
    Turn,
    VersionSpan,
)

TASK = Task(task_id="t", kind="k", split="train", input={}, reference={})
GROUP = Group(
    group_id="g000000", task_id="t", purpose="train", size=2, opened_version=0, state="closed"
)


def turn(index, prompt, output, *, parent=None, rollout="g000000-r0", state="done", **changes):
    completion = Completion(
        output_ids=output,
        logprobs=changes.get("logprobs", tuple(-0.5 for _ in output)),
        spans=changes.get("spans", (VersionSpan(version=3, count=len(output)),)),
        finish_reason="stop",
        pool="paris",
    )
    return Turn(
        turn_id=f"{rollout}-t{index}",
        rollout_id=rollout,
        index=index,
        parent=None if parent is None else f"{rollout}-t{parent}",
        state=state,
        prompt_ids=prompt,
        completion=completion if state == "done" else None,
        temperature=changes.get("temperature", 1.0),
        messages=(),
        started_at=0.0,
    )


def closed(*rollouts, advantage=0.5):
    return ClosedGroup(
        group=GROUP,
        task=TASK,
        rollouts=tuple(
            GradedRollout(
                rollout_id=f"g000000-r{i}",
                turns=tuple(turns),
                scores=(),
                reward=None if advantage is None else 1.0,
                advantage=advantage,
            )
            for i, turns in enumerate(rollouts)
        ),
    )


def test_chain_of_turns_is_cut_into_pieces():
    turns = [turn(0, (1, 2), (3, 4)), turn(1, (1, 2, 3, 4, 5), (6,), parent=0)]
    (sample,) = samples_of(closed(turns)).samples
    assert sample.ids == (1, 2, 3, 4, 5, 6)
    assert sample.mask == (False, False, True, True, False, True)
    assert sample.logprobs == (0, 0, -0.5, -0.5, 0, -0.5)
    assert sample.versions == (-1, -1, 3, 3, -1, 3)
    assert sample.weight == 1.0


def test_token_shared_by_two_branches_is_trained_twice():
    turns = [
        turn(0, (1,), (2,)),
        turn(1, (1, 2, 7), (3,), parent=0),
        turn(2, (1, 2, 8), (4,), parent=0),
    ]
    first, second = samples_of(closed(turns)).samples
    assert first.mask == (False, True, False, True)
    assert second.mask == (False, False, False, True)
    assert second.logprobs[1] == 0.0 and second.versions[1] == -1
    assert first.weight == second.weight == 0.5


def test_forks_earn_more_weight_than_a_single_branch():
    forked = [turn(i, (1, 9 - i), (2,)) for i in range(4)]
    assert math.isclose(sum(s.weight for s in samples_of(closed(forked)).samples), 1.0)


@pytest.mark.parametrize("parent", [None, 0])
def test_branch_with_nothing_to_train_takes_weight_from_the_others(parent):
    prompt = (1, 2, 7) if parent == 0 else (5,)
    turns = [turn(0, (1,), (2,)), turn(1, (1, 2, 8), (3,), parent=0), turn(2, prompt, ())]
    turns[2] = turns[2].model_copy(update={"parent": turns[0].turn_id if parent == 0 else None})
    collected = samples_of(closed(turns))
    assert collected.excluded == {"empty": 1}
    (sample,) = collected.samples
    assert sample.weight == 1.0 and sample.mask == (False, True, False, True)


def test_lost_turn_does_not_taint_its_chain():
    turns = [
        turn(0, (1,), (2,)),
        turn(1, (1, 2, 3), (4,), parent=0, state="lost"),
        turn(2, (1, 2, 3), (5,), parent=0),
    ]
    collected = samples_of(closed(turns))
    assert collected.excluded == {"lost": 1}
    (sample,) = collected.samples
    assert sample.ids == (1, 2, 3, 5) and sample.weight == 1.0


def test_child_of_a_lost_turn_is_trained():
    turns = [turn(0, (1,), (2,), state="lost"), turn(1, (1, 2, 3), (4,), parent=0)]
    collected = samples_of(closed(turns))
    assert not collected.samples and collected.excluded == {"lost": 1}


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"logprobs": (-0.1,)}, "misaligned"),
        ({"spans": (VersionSpan(version=1, count=3),)}, "misaligned"),
        ({"logprobs": (-0.1, math.nan)}, "nonfinite"),
        ({"logprobs": (-0.1, -math.inf)}, "nonfinite"),
        ({"logprobs": (-0.1, 0.7)}, "nonfinite"),
        ({"temperature": 0.0}, "temperature"),
    ],
)
def test_damaged_turn_is_trained(changes, cause):
    collected = samples_of(closed([turn(0, (1,), (2, 3), **changes)], [turn(0, (1,), (4,))]))
    assert collected.excluded == {cause: 1}
    assert [s.ids for s in collected.samples] == [(1, 4)]


def test_prompt_that_does_not_extend_its_parent_is_trained():
    turns = [turn(0, (1,), (2,)), turn(1, (1, 9, 3), (4,), parent=0)]
    assert samples_of(closed(turns)).excluded == {"broken_prefix": 1}


def test_parent_that_nobody_knows_is_ignored():
    assert samples_of(closed([turn(1, (1,), (4,), parent=0)])).excluded == {"broken_prefix": 1}


def test_null_rollout_is_trained():
    collected = samples_of(closed([turn(0, (1,), (2,))], advantage=None))
    assert not collected.samples and collected.excluded == {"null": 1}


def test_version_spans_are_spread_over_the_wrong_tokens():
    spans = (VersionSpan(version=4, count=1), VersionSpan(version=5, count=2))
    (sample,) = samples_of(closed([turn(0, (1,), (2, 3, 4), spans=spans)])).samples
    assert sample.versions == (-1, 4, 5, 5)


def test_branches_come_out_of_the_order_of_arrival():
    turns = [turn(2, (5,), (6,)), turn(0, (1,), (2,)), turn(1, (3,), (4,))]
    assert [chain[-1].index for chain, _ in branches(turns)] == [0, 1, 2]
