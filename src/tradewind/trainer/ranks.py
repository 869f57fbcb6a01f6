"""One process or several: the same program, with FSDP2 shards where there are several."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from tradewind.trainer.policy import Policy


@dataclass(frozen=True)
class Ranks:
    """This process's place among the trainer's processes."""

    rank: int = 0
    world: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @classmethod
    def join(cls) -> Ranks:
        """Read torchrun's environment and join its process group; alone without it."""
        cuda = torch.cuda.is_available()
        index = int(os.environ.get("LOCAL_RANK", "0"))
        device = torch.device("cuda", index) if cuda else torch.device("cpu")
        world = int(os.environ.get("WORLD_SIZE", "1"))
        if world > 1 and not dist.is_initialized():
            dist.init_process_group("nccl" if cuda else "gloo")
        return cls(int(os.environ.get("RANK", "0")), world, device)

    @property
    def first(self) -> bool:
        """Whether this process talks to ledger and bucket."""
        return self.rank == 0

    def shard(self, policy: Policy) -> None:
        """Split every layer's parameters over the ranks; gradients are averaged, in fp32."""
        if self.world == 1:
            return
        mesh = init_device_mesh(self.device.type, (self.world,))
        precision = MixedPrecisionPolicy(reduce_dtype=torch.float32)
        for module in [*policy.layers(), policy]:
            fully_shard(module, mesh=mesh, mp_policy=precision)

    def release(self, policy: Policy) -> None:
        """After a pass without gradients: FSDP keeps the root's parameters gathered for a backward
        pass that never comes, and would go on reading them after the shards have changed.
        """
        if isinstance(policy, FSDPModule):
            policy.reshard()

    def sums(self, values: Mapping[str, float]) -> dict[str, float]:
        """Each value summed over all ranks; the names must be the same everywhere."""
        if self.world == 1:
            return dict(values)
        names = sorted(values)
        tensor = torch.tensor([values[n] for n in names], dtype=torch.float64, device=self.device)
        dist.all_reduce(tensor)
        return dict(zip(names, tensor.tolist(), strict=True))

    def broadcast(self, text: str) -> str:
        """The first rank's text, on every rank; sent as bytes, so nothing is unpickled."""
        if self.world == 1:
            return text
        raw = torch.frombuffer(bytearray(text.encode() or b" "), dtype=torch.uint8)
        size = torch.tensor([len(raw)], device=self.device)
        dist.broadcast(size, 0)
        data = raw.to(self.device) if self.first else raw.new_zeros(int(size), device=self.device)
        dist.broadcast(data, 0)
        return bytes(data.cpu().tolist()).decode()

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self.world > 1:
            dist.barrier()
