"""One optimiser step at a time: claim, step, publish, commit; and mid-training."""
