"""What both sides do, to the letter: one file that the benchmark writes and each side reads.

Standard library only: it is imported in the environment of the peer too.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Plan:
    """One training run. Every field means the same on both sides."""

    model: str
    """Folder of a checkpoint: safetensors, tokenizer.json, chat template."""
    prompts: tuple[tuple[dict[str, str], ...], ...]
    """Messages of each prompt, in the order of use: `prompts_per_step` of them a step."""
    reward: str
    """Name in `rewards.REWARDS`."""
    steps: int
    prompts_per_step: int = 4
    group: int = 8
    new_tokens: int = 64
    learning_rate: float = 1e-5
    """Constant; AdamW with betas 0.9, 0.999, epsilon 1e-8, no decay; gradient norm clipped at 1."""
    threads: int = 1
    """Of each process; the asynchronous mode has two processes on the same cores."""
    seed: int = 0

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @staticmethod
    def read(path: Path) -> Plan:
        fields = json.loads(path.read_text(encoding="utf-8"))
        fields["prompts"] = tuple(tuple(messages) for messages in fields["prompts"])
        return Plan(**fields)

    def batch(self, step: int) -> tuple[tuple[dict[str, str], ...], ...]:
        """The prompts of `step` (0-based)."""
        start = step * self.prompts_per_step
        return self.prompts[start : start + self.prompts_per_step]
