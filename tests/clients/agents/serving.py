"""An agent's process: one rollout per line of JSON in, one line out; rollouts run side by side."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def serve(play: Callable[[dict[str, Any]], Any]) -> None:
    """`play` is given a rollout (name, base_url, key, folder, ...) and returns what came of it."""
    out = sys.stdout
    sys.stdout = sys.stderr  # agents print

    def one(line: str) -> str:
        rollout = json.loads(line)
        try:
            result = {"name": rollout["name"], "result": play(rollout)}
        except Exception as error:  # noqa: BLE001  # boundary: the test shows what an agent died of
            result = {"name": rollout["name"], "error": f"{type(error).__name__}: {error}"}
        return json.dumps(result)

    def say(future: Any) -> None:
        out.write(future.result() + "\n")
        out.flush()

    with contextlib.suppress(KeyboardInterrupt), ThreadPoolExecutor(8) as threads:
        for line in sys.stdin:
            threads.submit(one, line).add_done_callback(say)
