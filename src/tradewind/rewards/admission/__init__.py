"""Which tasks may train: what is known to be right passes, what is known to be wrong does not."""
