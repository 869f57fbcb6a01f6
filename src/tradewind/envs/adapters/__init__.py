"""Environments of other ecosystems as rollout functions.

Each adapter is an object that a file of yours makes; the file then serves as environment, as source
of tasks and as verifier alike::

    # puzzles.py
    from tradewind.envs.adapters.reasoning_gym import ReasoningGym
    env = ReasoningGym("chain_sum", size=200, seed=1)

    tradewind worker puzzles.py:env --controller URL        # its method `rollout`
    [[grader.signals]]
    use = "puzzles.py:env"                                  # its method `score`

None of them is imported by the product itself; what they need is in the extra `envs`.
"""
