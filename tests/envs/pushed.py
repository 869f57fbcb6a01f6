"""What a push server is asked to play."""

from __future__ import annotations

import time

from tradewind.types.assignment import Assignment, hash_of


def assignment(name: str, question: str = "x") -> Assignment:
    """A rollout of a task that asks `question`; each call has another deadline."""
    task = {"q": question}
    policy = {"base_url": "http://x/v1", "api_key": "the-model-key", "model": "m"}
    fields = {"protocol": 1, "rollout_id": name, "task_id": "t", "task": task, "seed": 1}
    fields |= {"task_hash": hash_of(task), "policy": policy}
    return Assignment(**fields, deadline=time.time() + 60, lease_s=60.0)
