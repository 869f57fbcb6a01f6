"""Claims finished rollouts, runs verifiers, writes scores."""
