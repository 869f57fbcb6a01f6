"""Our gateway with a ledger and a model folder of its own: `python -m gateways.ours FOLDER URL`.

Prints one line of JSON: its URL and the keys of as many leased rollouts as were asked for.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tradewind.ledger.ledger import Ledger
from tradewind.ledger.rollouts import LeaseTerms
from tradewind.types import PoolReport, Task, WeightVersion

MARKS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
POOL_KEY = "pool-key"


def write_model(folder: Path) -> Tokenizer:
    """A byte tokenizer and a template; prompts are as many ids as they have characters."""
    folder.mkdir(parents=True)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(mark, special=True) for mark in MARKS])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"eos_token": MARKS[2], "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    (folder / "config.json").write_text('{"max_position_embeddings": 8192}', encoding="utf-8")
    return tokenizer


def write_ledger(path: Path, pool_url: str, rollouts: int) -> list[str]:
    """A run with one pool and so many running rollouts; their keys."""
    ledger = Ledger.open(path)
    ledger.create_run({"run_id": "bench", "seed": 7})
    ledger.add_tasks([Task(task_id="t", kind="k", split="train", input={}, reference={})])
    ledger.commit_version(
        WeightVersion(
            version=0,
            state_id="b3:0",
            parent_state_id=None,
            manifest="m",
            stage="base",
            bytes_shipped=1,
            bytes_full=1,
        )
    )
    ledger.record_pool(
        PoolReport(
            pool="fake",
            url=pool_url,
            base_state_id="b3:0",
            version=0,
            state="serving",
            max_batch=4096,
            running=0,
            waiting=0,
            tokens_per_s=0.0,
            dtype="float32",
            at=time.time(),
        )
    )
    terms = LeaseTerms(ttl_s=1e6, deadline_s=1e6, max_running=1 << 30)
    ledger.open_training_group(rollouts)
    leases = [ledger.lease_next("w", time.time(), terms, ()) for _ in range(rollouts)]
    ledger.close()
    return [lease.model_key for lease in leases if lease is not None]
