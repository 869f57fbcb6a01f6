"""fp32 master weights and AdamW beside parameters that hold bf16-exact values.

    gradient ──► clip by global norm ──► AdamW on fp32 masters ──► round to bf16 ──► parameter

Small updates survive in the masters until they move a bf16 value; pools and trainer always see the
same rounded weights. Works on local tensors: the shards of FSDP2 or the whole of one rank.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from tradewind.trainer.config import OptimiserConfig
from tradewind.types import UserError


def local(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


class MasterWeights:
    """The optimiser of one rank.

    Between two steps nobody writes to parameters, masters and moments: whoever publishes or saves
    them beside the next forward and backward pass copies nothing. `release` is called before they
    change, and returns when nobody reads them any more.
    """

    def __init__(
        self, trained: Sequence[tuple[str, nn.Parameter]], config: OptimiserConfig
    ) -> None:
        self.names = [name for name, _ in trained]
        self._parameters = [parameter for _, parameter in trained]
        self._clip = config.clip
        self.release: Callable[[], None] = lambda: None
        self.masters = [
            local(p.detach()).to(torch.float32, copy=True).requires_grad_()
            for p in self._parameters
        ]
        self._adamw = torch.optim.AdamW(
            self.masters,
            lr=config.lr,
            betas=config.betas,
            eps=config.eps,
            weight_decay=config.weight_decay,
            fused=True,
        )

    def trained(self) -> list[tuple[str, Tensor]]:
        """Names and parameters, this rank's part of each; the same beside a pass through the model,
        for which FSDP puts whole parameters into the modules.
        """
        return [(n, p.data) for n, p in zip(self.names, self._parameters, strict=True)]

    def accumulate(self) -> None:
        """Move the gradients of one micro-batch into fp32 (a no-op where they are fp32 already).

        bf16 parameters get bf16 gradients, and a sum over micro-batches would be rounded at each.
        """
        for parameter, master in zip(self._parameters, self.masters, strict=True):
            if parameter.grad is None or parameter.grad.dtype == torch.float32:
                continue
            gradient = local(parameter.grad)
            if master.grad is None:
                master.grad = gradient.float()
            else:
                master.grad.add_(gradient)
            parameter.grad = None

    @torch.no_grad()
    def step(self, lr: float, scale: float, number: int) -> float:
        """One AdamW update with gradients times `scale`; returns their norm before clipping.

        Raises:
            UserError: the norm is not finite. Nothing has been changed then, nor if `release`
                raises.
        """
        self.accumulate()
        for parameter, master in zip(self._parameters, self.masters, strict=True):
            if parameter.grad is not None:
                master.grad = local(parameter.grad)
                parameter.grad = None
        norm = scale * self._norm()
        if not math.isfinite(norm):
            self.drop_gradients()
            raise UserError(
                f"the gradient norm of step {number} is not finite",
                value=norm,
                fix="lower lr, or look for extreme rewards in this step's groups; nothing was "
                "committed, and a restart goes on from the last committed step",
            )
        self.release()
        factor = scale * min(1.0, self._clip / norm) if norm > 0 else scale
        gradients = [m.grad for m in self.masters if m.grad is not None]
        if gradients:
            torch._foreach_mul_(gradients, factor)
        for group in self._adamw.param_groups:
            group["lr"] = lr
        self._adamw.step()
        self.drop_gradients()
        self.round()
        return norm

    @torch.no_grad()
    def round(self) -> None:
        """Write the masters, rounded to bf16, into the parameters."""
        for parameter, master in zip(self._parameters, self.masters, strict=True):
            local(parameter.data).copy_(master.to(torch.bfloat16))

    @torch.no_grad()
    def adopt(self, published: dict[str, Tensor], *, afresh: bool = False) -> int:
        """Take over published bf16 weights (this rank's part); returns how many values differed.

        A master that already rounds to the published value keeps its hidden digits. `afresh`: none
        does, and AdamW begins anew, so that what is here depends on `published` alone.
        """
        changed = 0
        for name, master in zip(self.names, self.masters, strict=True):
            differs = master.to(torch.bfloat16) != published[name]
            changed += int(differs.sum())
            master.copy_(torch.where(differs | afresh, published[name].float(), master))
        if afresh:
            self._adamw.state.clear()
        self.round()
        return changed

    def drop_gradients(self) -> None:
        """Forget all gradients, here and on the parameters."""
        for parameter, master in zip(self._parameters, self.masters, strict=True):
            parameter.grad = master.grad = None

    def state(self) -> dict[str, Tensor]:
        """Masters and moments under `<kind>.<name>`, sharing memory with this object."""
        out = {}
        for name, master in zip(self.names, self.masters, strict=True):
            moments = self._adamw.state.get(master) or _empty_moments(master)
            out[f"master.{name}"] = master.detach()
            out[f"first.{name}"] = moments["exp_avg"]
            out[f"second.{name}"] = moments["exp_avg_sq"]
            out[f"count.{name}"] = moments["step"].reshape(1)
        return out

    @torch.no_grad()
    def restore(self, state: dict[str, Tensor]) -> None:
        """Take over what `state()` returned, and round it into the parameters."""
        for name, master in zip(self.names, self.masters, strict=True):
            saved = state[f"master.{name}"]
            assert saved.shape == master.shape, f"{name}: {saved.shape} is not {master.shape}"
            master.copy_(saved)
            self._adamw.state[master] = {
                "step": state[f"count.{name}"].reshape(()).to(master.device, copy=True),
                "exp_avg": state[f"first.{name}"].to(master.device, copy=True),
                "exp_avg_sq": state[f"second.{name}"].to(master.device, copy=True),
            }
        self.round()

    def _norm(self) -> float:
        """Global 2-norm of all gradients over all ranks, in fp32."""
        gradients = [m.grad for m in self.masters if m.grad is not None]
        squares = torch.zeros((), dtype=torch.float64, device=self.masters[0].device)
        for norm in torch._foreach_norm(gradients) if gradients else ():
            squares += norm.double() ** 2
        if dist.is_initialized():
            dist.all_reduce(squares)
        return float(squares.sqrt())


def _empty_moments(master: Tensor) -> dict[str, Tensor]:
    return {
        "step": torch.zeros(()),
        "exp_avg": torch.zeros_like(master),
        "exp_avg_sq": torch.zeros_like(master),
    }
