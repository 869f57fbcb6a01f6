"""Side: the embedded engine.  python -m decode.ours LOAD DTYPE THREADS"""

from __future__ import annotations

import json
import sys
import threading

import numpy as np
from common.machine import versions
from common.side import report

from decode.load import Load, measure
from tradewind.pool.engines.embedded.engine import EmbeddedEngine
from tradewind.types import GenerateChunk, GenerateRequest


class Side:
    def __init__(self, load: Load, engine: EmbeddedEngine) -> None:
        self._load, self._engine = load, engine
        self._asked = 0

    def decode(self, prompts: list[list[int]]) -> int:
        left, tokens = threading.Semaphore(0), [0]

        def on_chunk(chunk: GenerateChunk) -> None:
            assert chunk.error is None, chunk.error
            tokens[0] += len(chunk.ids)
            if chunk.finish_reason is not None:
                left.release()

        for prompt in prompts:
            self._asked += 1
            request = GenerateRequest(
                request_id=str(self._asked),
                prompt_ids=tuple(prompt),
                max_tokens=self._load.tokens,
                stop_ids=(),
            )
            self._engine.submit(request, on_chunk)
        for _ in prompts:
            assert left.acquire(timeout=600)
        return tokens[0]

    def swap(self) -> None:
        """Every matrix changes in its last bit, as after an RL step; decoding runs meanwhile."""
        tensors = self._engine.tensors()
        changed = {n: t ^ np.uint16(1) for n, t in tensors.items() if t.dtype == np.uint16}
        runner = threading.Thread(target=self.decode, args=(self._load.prompts(99)[:8],))
        runner.start()
        pause = self._engine.swap(changed, 1)
        runner.join()
        report("swap", pause_ms=pause * 1e3)


def main() -> None:
    load = Load(**json.loads(sys.argv[1]))
    engine = EmbeddedEngine.open(
        load.model,
        dtype=sys.argv[2],
        threads=int(sys.argv[3]),
        max_batch=load.requests,
        max_tokens=load.requests * max(128, 2 * (load.prompt + load.tokens)),
    )
    engine.start()
    side = Side(load, engine)
    measure(load, side.decode, versions("tradewind", "torch", "numpy"))
    side.swap()
    report("dtype", dtype=engine.load().dtype)
    engine.stop()


if __name__ == "__main__":
    main()
