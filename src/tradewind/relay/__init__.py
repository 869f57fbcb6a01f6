"""The regional relay: one copy of the weight stream for all pools of a region."""
