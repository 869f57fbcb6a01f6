"""One process or several: the same program, with FSDP2 shards where there are several."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

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
    group: dist.ProcessGroup | None = None
    """Who talks to whom; None: all, in the order of the steps."""

    @classmethod
    def join(cls) -> Ranks:
        """Read torchrun's environment and join its process group; alone without it."""
        cuda = torch.cuda.is_available()
        index = int(os.environ.get("LOCAL_RANK", "0"))
        device = torch.device("cuda", index) if cuda else torch.device("cpu")
        if cuda:
            torch.cuda.set_device(device)  # NCCL would put every rank on the first one
        world = int(os.environ.get("WORLD_SIZE", "1"))
        if world > 1 and not dist.is_initialized():
            dist.init_process_group("nccl" if cuda else "gloo")
        return cls(int(os.environ.get("RANK", "0")), world, device)

    @staticmethod
    def leave() -> None:
        """The last thing that a process of several does: one that ends with gloo's threads at work
        may be aborted, and torchrun then calls a run that is complete a failure.
        """
        if dist.is_initialized():
            dist.destroy_process_group()

    def beside(self) -> Ranks:
        """The same ranks with lines of their own, for a thread beside the steps; on all ranks."""
        if self.world == 1:
            return self
        return replace(self, device=torch.device("cpu"), group=dist.new_group(backend="gloo"))

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
        dist.all_reduce(tensor, group=self.group)
        return dict(zip(names, tensor.tolist(), strict=True))

    def broadcast(self, text: str) -> str:
        """The first rank's text, on every rank; sent as bytes, so nothing is unpickled."""
        if self.world == 1:
            return text
        raw = torch.frombuffer(bytearray(text.encode() or b" "), dtype=torch.uint8)
        size = torch.tensor([len(raw)], device=self.device)
        dist.broadcast(size, 0, group=self.group)
        data = raw.to(self.device) if self.first else raw.new_zeros(int(size), device=self.device)
        dist.broadcast(data, 0, group=self.group)
        return data.cpu().numpy().tobytes().decode()

    def gather(self, data: bytes) -> list[bytes]:
        """Every rank's bytes, on the first rank; elsewhere nothing. Only `beside` the steps."""
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.world)]
        dist.all_gather(sizes, torch.tensor([len(data)]), group=self.group)
        if not self.first:
            dist.send(torch.frombuffer(bytearray(data), dtype=torch.uint8), 0, group=self.group)
            return []
        out = [data]
        for rank in range(1, self.world):
            received = torch.empty(int(sizes[rank]), dtype=torch.uint8)
            dist.recv(received, rank, group=self.group)
            out.append(received.numpy().tobytes())
        return out

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self.world > 1:
            dist.barrier(group=self.group)
