"""`python first_token.py MODEL < {task: question} > {task: probability}`; needs torch."""

from __future__ import annotations

import json
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def main(folder: str) -> None:
    """One forward pass per question."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    letters = {i: tokenizer.decode([i]) for i in range(len(tokenizer))}
    ascii_ids = [i for i, text in letters.items() if text and text[0].isascii() and len(text) == 1]
    found = {}
    for task, question in json.load(sys.stdin).items():
        chat = [{"role": "user", "content": question}]
        ids = tokenizer.apply_chat_template(
            chat, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )["input_ids"]
        with torch.no_grad():
            logits = model(ids).logits[0, -1]
        found[task] = float(logits.softmax(-1)[ascii_ids].sum())
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
