"""The peer: TRL's `GRPOTrainer` on the CPU, set as its authors mean it and as fast as it goes here.

    python -m grpo.trl_side PLAN {fp32,bf16,bf16_weights}

- `fp32`: everything in fp32.
- `bf16`: fp32 weights and AdamW state, bf16 autocast (what TRL does by default).
- `bf16_weights`: weights, gradients and AdamW state in bf16; small updates round away.

Reports one `step` event a step. A step's seconds run from the end of the step before it.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from common.machine import peak_rss_mb, versions
from common.side import report
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from grpo.plan import Plan
from grpo.rewards import REWARDS


class Clock(TrainerCallback):
    """Counts what the reward function saw and reports it at the end of each step."""

    def __init__(self, plan: Plan) -> None:
        self.score = REWARDS[plan.reward]
        self.rewards: list[float] = []
        self.tokens = 0
        self.generated_s = 0.0
        self.since = self.cpu = 0.0

    def reward(self, completions: list[Any], completion_ids: list[Any], **_: Any) -> list[float]:
        self.rewards = [self.score(messages[0]["content"]) for messages in completions]
        self.tokens = sum(len(ids) for ids in completion_ids)
        return self.rewards

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        report("start", rss_mb=peak_rss_mb())
        self.since, self.cpu = time.perf_counter(), time.process_time()

    def on_step_end(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
        now, cpu = time.perf_counter(), time.process_time()
        report(
            "step",
            step=state.global_step - 1,
            seconds=now - self.since,
            cpu_s=cpu - self.cpu,
            generate_s=self.generated_s,
            reward=sum(self.rewards) / len(self.rewards),
            tokens=self.tokens,
        )
        self.since, self.cpu = now, cpu


def settings(plan: Plan, dtype: str, folder: str) -> GRPOConfig:
    """The plan in TRL's words; what it does not name keeps TRL's default."""
    weights = torch.bfloat16 if dtype == "bf16_weights" else torch.float32
    return GRPOConfig(
        output_dir=folder,
        use_cpu=True,
        bf16=dtype != "fp32",
        model_init_kwargs={"dtype": weights, "attn_implementation": "sdpa"},
        per_device_train_batch_size=plan.prompts_per_step * plan.group,
        gradient_accumulation_steps=1,
        steps_per_generation=1,
        num_iterations=1,
        num_generations=plan.group,
        max_completion_length=plan.new_tokens,
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        beta=0.0,
        loss_type="dr_grpo",
        scale_rewards="none",
        learning_rate=plan.learning_rate,
        lr_scheduler_type="constant",
        weight_decay=0.0,
        max_grad_norm=1.0,
        max_steps=plan.steps,
        shuffle_dataset=False,
        seed=plan.seed,
        gradient_checkpointing=False,
        dataloader_pin_memory=False,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )


def main() -> None:
    plan, dtype = Plan.read(Path(sys.argv[1])), sys.argv[2]
    torch.set_num_threads(plan.threads)
    report("versions", versions=versions("torch", "transformers", "trl", "accelerate"))
    clock = Clock(plan)
    rows = [{"prompt": list(messages)} for messages in plan.prompts]
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=plan.model,
            reward_funcs=clock.reward,
            args=settings(plan, dtype, folder),
            train_dataset=Dataset.from_list(rows),
            callbacks=[clock],
        )
        generate = trainer._generate_single_turn

        def timed(*args: Any, **kwargs: Any) -> Any:
            begun = time.perf_counter()
            made = generate(*args, **kwargs)
            clock.generated_s = time.perf_counter() - begun
            return made

        trainer._generate_single_turn = timed
        trainer.train()
    report("end", peak_rss_mb=peak_rss_mb())


if __name__ == "__main__":
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    main()
