"""What the policy would earn; needs torch, so it is called in a process of its own."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def chances(folder: Path, questions: dict[str, str]) -> dict[str, float]:
    """Per task: the probability of a first token with which an ASCII text begins."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    letters = {i: tokenizer.decode([i]) for i in range(len(tokenizer))}
    ascii_ids = [i for i, text in letters.items() if text and text[0].isascii() and len(text) == 1]
    found = {}
    for task, question in questions.items():
        chat = [{"role": "user", "content": question}]
        ids = tokenizer.apply_chat_template(
            chat, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )["input_ids"]
        with torch.no_grad():
            logits = model(ids).logits[0, -1]
        found[task] = float(logits.softmax(-1)[ascii_ids].sum())
    return found
