"""Side: `transformers.generate`, one batch.  python -m decode.hf LOAD DTYPE THREADS"""

from __future__ import annotations

import json
import sys

import torch
from common.machine import versions

from decode.load import Load, measure


def main() -> None:
    import transformers

    load = Load(**json.loads(sys.argv[1]))
    torch.set_num_threads(int(sys.argv[3]))
    model = transformers.AutoModelForCausalLM.from_pretrained(
        load.model, dtype=getattr(torch, sys.argv[2])
    ).eval()
    settings = transformers.GenerationConfig(
        max_new_tokens=load.tokens,
        min_new_tokens=load.tokens,
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        pad_token_id=0,
        eos_token_id=None,
    )

    def decode(prompts: list[list[int]]) -> int:
        ids = torch.tensor(prompts)
        mask = torch.ones_like(ids)
        out = model.generate(ids, attention_mask=mask, generation_config=settings)
        return (out.shape[1] - load.prompt) * len(prompts)

    measure(load, decode, versions("transformers", "torch"))


if __name__ == "__main__":
    main()
