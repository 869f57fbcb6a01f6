"""The customer's side: lease a rollout, run the agent, report the outcome."""
