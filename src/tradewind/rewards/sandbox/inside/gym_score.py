"""What reasoning-gym's own scorer says, in a child that can be killed.

stdin   {"dataset": str, "seed": int, "index": int, "config": {...}, "answer": str | null}
stdout  {"score": float, "question": str, "oracle": str | null} | {"error": str}
"""

from __future__ import annotations

import functools
import json
from typing import Any

from channel import open_channel  # type: ignore[import-not-found]  # beside this script
from reasoning_gym import create_dataset


@functools.lru_cache(maxsize=64)
def dataset(name: str, seed: int, size: int, config: str) -> Any:
    """A dataset, made again from its seed."""
    return create_dataset(name, seed=seed, size=size, **json.loads(config))


def score(asked: dict[str, Any]) -> dict[str, Any]:
    """One question's answer."""
    config = json.dumps(asked["config"], sort_keys=True)
    data = dataset(asked["dataset"], asked["seed"], asked["size"], config)
    entry = data[asked["index"]]
    oracle = entry.get("answer")
    return {
        "score": float(data.score_answer(asked["answer"], entry)),
        "question": entry["question"],
        "oracle": oracle if isinstance(oracle, str) else None,
    }


def main() -> None:
    """Answer until the parent closes the pipe."""
    questions, answer = open_channel()
    for question in questions:
        try:
            said = score(question)
        except Exception as error:  # noqa: BLE001  # boundary: another package's code
            said = {"error": f"{type(error).__name__}: {error}"[:500]}
        answer(said)


if __name__ == "__main__":
    main()
