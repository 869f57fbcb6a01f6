"""Prompts of a run: questions of the order desk in a seeded order."""

from __future__ import annotations

import random

SYSTEM = "Answer with one ```sql query."


def prompts(count: int, seed: int) -> tuple[tuple[dict[str, str], ...], ...]:
    """Messages of `count` prompts; they repeat where there are fewer questions."""
    from orderdesk.kinds import KINDS

    draw = random.Random(f"grpo {seed}")
    questions = []
    for kind in KINDS:
        fillings = draw.sample(kind.fillings(), min(8, len(kind.fillings())))
        questions += [draw.choice(kind.questions).format(**filling) for filling in fillings]
    draw.shuffle(questions)
    questions = (questions * (count // len(questions) + 1))[:count]
    return tuple(
        ({"role": "system", "content": SYSTEM}, {"role": "user", "content": question})
        for question in questions
    )
