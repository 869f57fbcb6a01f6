"""The two sides of `grpo_vs_trl.py`, and the task that both of them train on."""
