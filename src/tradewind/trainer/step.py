"""One RL step in process: `Trainer.step(samples) -> metrics`.

    samples ──► skip zero advantage ──► micro-batches ──► forward, loss, backward ─┬─► clip, AdamW
    rows of the corpus, if any are to be rehearsed ───► forward, loss, backward ────┘

A sample whose advantage is zero adds exactly nothing to loss or gradient (the losses have no term
without the advantage), so it is not computed; its tokens still count in the normaliser. If no
sample is left, the weights stay as they are: neither momentum nor rehearsal alone moves them.

The loss is the sum over tokens divided by the number of sampled tokens of the step: one constant
for all samples, so no answer is weighed by its own length.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from functools import partial

from torch import Tensor

from tradewind.algo.losses.ratios import ratio_means, ratio_sums
from tradewind.algo.losses.registry import loss_named
from tradewind.algo.losses.terms import Terms
from tradewind.trainer.config import TrainerConfig
from tradewind.trainer.forest import Forest
from tradewind.trainer.learner import Learner
from tradewind.trainer.next_token import next_token
from tradewind.trainer.rehearsal import Rehearsal
from tradewind.trainer.schedule import rate
from tradewind.types import Sample, UserError

Metrics = dict[str, float]


class Trainer:
    """The optimiser's side of a run: weights at `version`, ready for the next step."""

    def __init__(
        self, learner: Learner, config: TrainerConfig, rehearsal: Rehearsal | None = None
    ) -> None:
        self.learner = learner
        self.config = config
        self.rehearsal = rehearsal or Rehearsal([], config)
        self._loss = loss_named(config.loss, config.loss_floats)

    def step(self, samples: Sequence[Sample], *, version: int = 0, number: int = 0) -> Metrics:
        """One update.

        Args:
            samples: of all groups of the step; every rank gets the same ones.
            version: the weight version that is being trained; no token may be newer.
            number: 0-based count of RL steps, for learning rate and errors.

        Returns:
            Finite metrics, `trainer/<noun>/<stat>`.

        Raises:
            UserError: a loss or gradient is not finite, or the k3 gate refuses the step. Weights
                and moments are unchanged then.
        """
        began = time.perf_counter()
        metrics = staleness(samples, version, self.config.max_staleness)
        trained = [s for s in samples if s.advantage != 0.0]
        tokens = sum(sum(s.mask) for s in samples)
        entries = sum(sum(s.mask) for s in trained)
        norm = 0.0
        if trained:
            sums = self.learner.backward(trained, version, self._objective, number)
            metrics |= self._report(sums, tokens)
            self._gate(metrics, number)
            metrics |= self._rehearse(tokens, number)
            backward_ended = time.perf_counter()
            lr = rate(self.config, number)
            norm = self.learner.update(lr, 1.0 / tokens, number)
            metrics["lr/value"] = lr
            metrics["update/seconds"] = time.perf_counter() - backward_ended
            metrics["backward/seconds"] = backward_ended - began
        seconds = time.perf_counter() - began
        metrics |= {
            "gradient/norm": norm,
            "samples/total": float(len(samples)),
            "samples/zero_advantage": float(len(samples) - len(trained)),
            "tokens/sampled": float(tokens),
            "tokens/trained": float(entries),
            "tokens/total": float(sum(len(s.ids) for s in samples)),
            "tokens/per_second": sum(len(s.ids) for s in samples) / seconds,
            "step/seconds": seconds,
        }
        return {f"trainer/{name}": value for name, value in metrics.items()}

    def _objective(
        self, forest: Forest, logp: Tensor, entropy: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        terms = Terms(logp, forest.behaviour, forest.advantage, forest.weight)
        loss, count, metrics = self._loss(terms)
        report = {f"loss/{name}": value for name, value in metrics.items()}
        report |= ratio_sums(terms, forest.same_version)
        report["entropy"] = entropy.sum()
        report["rows"] = loss.new_tensor(float(len(entropy)))
        report["entries"] = loss.new_tensor(float(count))
        return loss, report

    def _rehearse(self, tokens: int, number: int) -> Metrics:
        """Add the gradient of the corpus' rows to that of `tokens` sampled ones."""
        samples = self.rehearsal.samples(number)
        if not samples:
            return {}
        count = sum(sum(s.mask) for s in samples)
        # `update` will divide all by the sampled tokens
        scale = self.config.rehearsal_weight * tokens / count
        sums = self.learner.backward(samples, 0, partial(_scaled_next_token, scale), number)
        return {"rehearsal/loss": sums["loss"] / (scale * count), "rehearsal/tokens": float(count)}

    def _report(self, sums: Metrics, tokens: int) -> Metrics:
        entries = max(1.0, sums["entries"])
        out = {name: value / entries for name, value in sums.items() if name.startswith("loss/")}
        out |= ratio_means(sums)
        out["loss/value"] = sums["loss"] / max(1, tokens)
        out["entropy/mean"] = sums["entropy"] / max(1.0, sums["rows"])
        out["tokens/packed"] = sums["packed"]
        return out

    def _gate(self, metrics: Metrics, number: int) -> None:
        gate, mismatch = self.config.k3_gate, metrics.get("ratio/mismatch_k3", 0.0)
        if gate is not None and mismatch > gate:
            self.learner.masters.drop_gradients()
            raise UserError(
                f"at step {number} engine and trainer disagree about the same weights: mean k3 "
                f"exceeds {gate}",
                value=mismatch,
                fix="give pool and trainer the same dtype, or raise [trainer] k3_gate",
            )


def _scaled_next_token(
    scale: float, forest: Forest, logp: Tensor, entropy: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    loss, report = next_token(forest, logp, entropy)
    return scale * loss, report


def staleness(samples: Sequence[Sample], version: int, bound: int) -> Metrics:
    """How many versions each trained token is older than `version`; the bound is hard (R8).

    `staleness/tokens/<n>` counts tokens that are n versions old.
    """
    tokens = Counter(version - v for sample in samples for v in sample.versions if v >= 0)
    assert all(0 <= n <= bound for n in tokens), f"staleness {sorted(tokens)}: not in 0..{bound}"
    return {
        "staleness/bound": float(bound),
        "staleness/max": float(max(tokens, default=0)),
        "staleness/mean": sum(age * n for age, n in tokens.items()) / max(1, tokens.total()),
        **{f"staleness/tokens/{age}": float(n) for age, n in sorted(tokens.items())},
    }
