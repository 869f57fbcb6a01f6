"""The durable record: every claim, lease, turn, score, step and version of a run."""
