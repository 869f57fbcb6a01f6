"""What every side decodes: equally long prompts of random ids, all ends of text ignored."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from common.machine import peak_rss_mb
from common.side import report


@dataclass(frozen=True)
class Load:
    """Equal lengths, so that no side pays for padding; different prompts, so that none is shared
    unless `shared` leading ids are.
    """

    model: str
    requests: int
    prompt: int
    tokens: int
    rounds: int
    shared: int = 0

    def prompts(self, round_: int) -> list[list[int]]:
        """(requests, prompt) ids; other ones in every round, so that no cache of KV helps."""
        config = json.loads((Path(self.model) / "config.json").read_text(encoding="utf-8"))
        rng, vocab = random.Random(round_), int(config["vocab_size"])
        head = [rng.randrange(vocab) for _ in range(self.shared)]
        rest = self.prompt - self.shared
        return [head + [rng.randrange(vocab) for _ in range(rest)] for _ in range(self.requests)]

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def measure(load: Load, decode: Callable[[list[list[int]]], int], versions: dict[str, str]) -> None:
    """Reports each round's seconds and tokens, after a short round that only warms up.

    `decode` samples `load.tokens` ids after each prompt and returns how many ids there were.
    """
    report("ready", versions=versions)
    decode(load.prompts(0)[:4])
    for round_ in range(1, load.rounds + 1):
        prompts = load.prompts(round_)
        begin, cpu = time.perf_counter(), time.process_time()
        tokens = decode(prompts)
        seconds, cpu_s = time.perf_counter() - begin, time.process_time() - cpu
        assert tokens == load.requests * load.tokens, f"{tokens} tokens came back"
        report("round", seconds=seconds, tokens_per_s=tokens / seconds, cpu_s=cpu_s)
    report("peak", mb=peak_rss_mb())
