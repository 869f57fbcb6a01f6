"""What the policy would earn; needs torch, so it is called in a process of its own."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tradewind.trainer.bits import from_bits
from tradewind.trainer.learner import Bits
from tradewind.weights.bucket import Bucket
from tradewind.weights.checkpoint import read_folder
from tradewind.weights.follow import Follower


class Chances:
    """Of a checkpoint folder's policy, or of another with other weights."""

    def __init__(self, folder: Path, questions: dict[str, str]) -> None:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        letters = {i: tokenizer.decode([i]) for i in range(len(tokenizer))}
        self._ascii = [i for i, t in letters.items() if len(t) == 1 and t.isascii()]
        self._tasks = tuple(questions)
        chats = [[{"role": "user", "content": question}] for question in questions.values()]
        prompts = [
            tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True)
            for chat in chats
        ]
        ids = [torch.tensor(prompt["input_ids"]) for prompt in prompts]
        self._last = torch.tensor([len(prompt) - 1 for prompt in ids])
        self._ids = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)

    @torch.no_grad()
    def of(self, weights: Bits | None = None) -> dict[str, float]:
        """Per task: the probability of a first token with which an ASCII text begins."""
        if weights is not None:
            tensors = {name: from_bits(array).float() for name, array in weights.items()}
            strange = self._model.load_state_dict(tensors, strict=False)
            assert strange.missing_keys in ([], ["lm_head.weight"]), "a tied head, and no other"
        logits = self._model(self._ids).logits  # what pads comes after, and nothing looks ahead
        last = logits[torch.arange(len(self._last)), self._last]
        found = last.softmax(-1)[:, self._ascii].sum(-1)
        return dict(zip(self._tasks, found.tolist(), strict=True))


def chances(folder: Path, questions: dict[str, str]) -> dict[str, float]:
    """Per task, of the folder's policy."""
    return Chances(folder, questions).of()


def along(
    folder: Path, questions: dict[str, str], bucket: str, run_id: str, versions: int
) -> list[dict[str, float]]:
    """Per version from the base on, and per task: of the weights that the run published."""
    policy = Chances(folder, questions)
    follower = Follower(Bucket.open(bucket), read_folder(folder), run_id=run_id)
    found = [policy.of()]
    for version in range(1, versions):
        staged = follower.stage(version)
        follower.commit(staged)
        found.append(policy.of(dict(staged.state.tensors)))
    return found
