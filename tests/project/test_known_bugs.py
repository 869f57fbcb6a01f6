"""What users of other systems of this kind reported, and the test that would see it here.

A row is a public thread, its symptom in our words, and a test (file:name, below `tests`). Threads
about weights, caches, numerics and rewards have their tests beside the parts; these are about
tokens and masks, waiting, staleness, resuming and environments. `ELSEWHERE` says why a few of them
cannot happen here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

BUGS = {
    # Token identity and loss masks.
    "verl#3720": (
        "the separator after an answer is lost, all later turns are misaligned",
        "render/test_extend.py:test_canonical_ids_extend_to_exactly_the_full_rendering",
    ),
    "verl#3960": (
        "what is trained differs from what was generated, because calls were parsed away",
        "gateway/test_tools.py:test_call_is_parsed_and_its_result_extends_the_same_ids",
    ),
    "rllm#352": (
        "a break in the history masks out the whole trajectory",
        "gateway/test_pitfalls.py:test_compaction_and_sub_agents_are_roots_of_their_own",
    ),
    "rllm#816": (
        "ids and log-probabilities of two tokenisations are paired",
        "gateway/test_capture.py:test_misaligned_logprobs_are_never_trained_but_the_agent_goes_on",
    ),
    "trl#5144": (
        "the mask is longer than the completion",
        "algo/test_samples.py:test_damaged_turn_is_trained",
    ),
    "trl#4974": (
        "tokens of the environment are in the loss, or are not attended to",
        "trainer/test_masks.py:test_tokens_of_the_environment_are_in_the_loss",
    ),
    "trl PR#4975": (
        "the loss mask is used as attention mask",
        "trainer/test_masks.py:test_what_is_not_trained_is_not_read_either",
    ),
    "slime#2288": (
        "eight rollouts become sixty-four rows, and weigh as much",
        "algo/test_samples.py:test_forks_earn_more_weight_than_a_single_branch",
    ),
    "slime#2338": (
        "tokens are zeroed and nobody hears of it",
        "gateway/test_pitfalls.py:test_tokens_that_do_not_arrive_raise_an_alarm_in_log_and_status",
    ),
    "slime#1563": (
        "the mask of several turns is taken for one span",
        "algo/test_samples.py:test_chain_of_turns_is_cut_into_pieces",
    ),
    "verifiers#37": (
        "a template that strips reasoning makes mask and ids differ in length",
        "render/test_extend.py:test_reasoning_that_the_template_strips_forks",
    ),
    "eval-protocol PR#457": (
        "log-probabilities are off by one against their ids",
        "vllm/test_engine.py:test_a_sampled_id_has_the_logprob_with_which_it_was_sampled",
    ),
    "RAGEN#71": (
        "the gradient goes to states and not to actions",
        "trainer/test_masks.py:test_gradient_goes_to_states_instead_of_actions",
    ),
    # Hung or starved pipelines.
    "SkyRL#1173": (
        "a buffer stands a few short of full for a day",
        "controller/test_waits.py:test_a_wait_names_its_cause_and_its_owner",
    ),
    "NeMo-RL#3488": (
        "the collector died and the trainer waits on",
        "controller/test_waits.py:test_a_process_that_falls_silent_is_named_once_and_its_return_too",
    ),
    "verl#7155": (
        "a step never ends because one prompt was lost",
        "controller/test_controller.py:test_a_lost_lease_is_leased_again_as_a_refill",
    ),
    "verl#3895": (
        "a run hangs right after its start",
        "run/test_launch.py:test_a_whole_run_leaves_results_a_report_and_a_table",
    ),
    "verl#5815": (
        "the example that is shipped hangs",
        "gateway/test_node_worker.py:test_a_worker_in_javascript_plays_real_leases",
    ),
    "verl-omni#433": (
        "a dead engine counts as an empty success",
        "gateway/test_pools.py:test_pool_that_dies_after_the_last_token_has_answered",
    ),
    "slime#699": (
        "nothing happens at the start, and no log says why",
        "run/test_prepare.py:test_preflight_tells_of_everything_that_fails_at_once",
    ),
    "verl#2445": (
        "one long rollout holds up all the others",
        "ledger/test_life_of_a_group.py:test_one_long_rollout_holds_up_its_own_group_and_no_other",
    ),
    "tinker-cookbook#234": (
        "hours without progress, then an exception",
        "controller/test_waits.py:test_a_stall_is_told_once_and_so_is_its_end",
    ),
    # Staleness.
    "verl#4449": (
        "the setting says on-policy, and everything is one step old",
        "chaos/test_synchronous.py:test_without_staleness_every_version_is_that_of_a_straight_loop",
    ),
    "prime-rl PR#491": (
        "the trainer ran ahead and trained old rollouts",
        "trainer/test_step.py:test_sample_outside_the_staleness_bound_is_trained",
    ),
    "torchforge#279": (
        "a request meets a policy that is too old for it",
        "gateway/test_pools.py:test_pool_with_weights_too_old_for_the_group_is_left_out",
    ),
    # Checkpoint and resume.
    "NeMo-RL PR#3599": (
        "prompts are skipped at every restart, the long ones first",
        "ledger/test_many_processes.py:"
        "test_killed_at_any_statement_the_run_goes_on_and_no_prompt_is_skipped",
    ),
    "OpenRLHF#1322": (
        "rollouts in the buffer are lost, or episodes repeat",
        "trainer/test_loop.py:test_crash_changes_the_curve_or_trains_a_group_twice",
    ),
    "prime-rl PR#1299": (
        "the only checkpoint is deleted before the next one is complete",
        "trainer/test_checkpoint.py:"
        "test_only_checkpoint_is_deleted_before_the_next_one_is_complete",
    ),
    "prime-rl PR#2219": (
        "files of an earlier run are used again",
        "run/test_launch.py:test_a_run_that_began_is_continued_or_put_aside_but_never_mixed",
    ),
    "open-instruct PR#1823": (
        "the flag for resuming does nothing",
        "run/test_launch.py:test_a_run_whose_launcher_was_killed_goes_on_where_it_was",
    ),
    # Environments.
    "prime-rl PR#2581": (
        "what fails every time is scheduled for ever",
        "ledger/test_invalid.py:"
        "test_a_task_that_always_fails_is_set_aside_by_name_while_others_are_trained",
    ),
    "prime-rl PR#2503": (
        "a bad task counts as reward zero",
        "controller/test_nulls.py:test_the_three_null_statuses_are_taken_as_reported",
    ),
    "prime-rl PR#3139": (
        "minutes of waiting for a dead server, its error somewhere else",
        "run/test_supervisor.py:test_a_process_that_only_crashes_is_given_up_with_its_last_line",
    ),
    "prime-rl PR#1801": (
        "evaluation and training lock each other out",
        "controller/test_controller.py:test_an_evaluation_goes_first_and_reports_its_interval",
    ),
    "verifiers PR#589": (
        "a sandbox that cannot be made ends the run",
        "grader/test_grader.py:test_a_verifier_that_fails_is_tried_again_and_null_only_in_the_end",
    ),
    "prime-rl PR#2846": (
        "one damaged rollout ends the run",
        "ledger/test_payloads.py:"
        "test_a_group_whose_tokens_are_lost_is_rejected_by_name_and_its_prompt_comes_again",
    ),
    "prime-rl PR#1622": (
        "a short outage of the network is an empty batch and a crash",
        "worker/test_worker.py:test_a_controller_that_is_away_for_a_while_loses_nothing",
    ),
    "agent-lightning#218": (
        "a rollout that timed out and was given away comes back",
        "ledger/test_rollouts_end.py:"
        "test_a_lost_lease_is_null_and_refilled_and_its_outcome_comes_too_late",
    ),
    "slime#1562": (
        "one generation that takes too long ends training",
        "gateway/test_pools.py:test_silent_pool_is_left_for_another",
    ),
    "stitch PR#146": (
        "a session that cannot be opened ends the producer",
        "envs/test_push.py:test_a_server_that_is_away_is_waited_for_and_then_null",
    ),
    "fireworks cookbook PR#692": (
        "groups stay one short of full",
        "controller/test_controller.py:test_a_null_is_refilled_and_too_many_reject_the_group",
    ),
}

ELSEWHERE = {
    "unsloth#3302": "trainer and engine share no memory: resuming wakes nothing",
    "agent-lightning#504": "an agent's tools run at the customer's; a slow one costs its deadline",
}


@pytest.mark.parametrize("thread", BUGS)
def test_known_bug_has_its_test(thread):
    _symptom, where = BUGS[thread]
    file, _, name = where.partition(":")
    assert f"def {name}(" in (TESTS / file).read_text(encoding="utf-8")


def test_no_thread_is_answered_twice():
    assert not BUGS.keys() & ELSEWHERE.keys()
