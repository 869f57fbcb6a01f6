"""Counts of what the agent did, as signals: each small, each logged apart.

    effort        what the answer cost in work, as C(x)
    tool-errors   share of tool calls that failed, or could not be read as a call
    repeats       share of tool calls that repeat an earlier one and got the same result
    format        1 if the last answer has the wanted form, else 0
    length        how far the sampled tokens go into the forbidden zone

They say nothing about the result. `format` is meant as a gate or with a weight, the others as
penalties.
"""
