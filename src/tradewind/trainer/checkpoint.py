"""Checkpoints: masters and moments of every rank, whole or not there.

    checkpoints/<stage>-<steps done>/state.json
                                     rank-0-of-1.safetensors

Written into a hidden folder, flushed to disk, then renamed: a crash at any point leaves either
the whole checkpoint or none. safetensors and JSON only (promise W7).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import torch

from tradewind.trainer.learner import Learner
from tradewind.trainer.master import MasterWeights
from tradewind.trainer.ranks import Ranks
from tradewind.types import Record, UserError
from tradewind.weights.checkpoint import read_file, write_file
from tradewind.weights.tensors import TensorSet


class CheckpointState(Record):
    """`state.json`."""

    stage: str
    """`midtrain` or `rl`."""
    steps_done: int
    """The next step is number `steps_done`."""
    world: int
    """How many ranks wrote it."""


def save(
    folder: Path, stage: str, steps_done: int, masters: MasterWeights, ranks: Ranks, keep: int
) -> None:
    """Write one checkpoint and delete all but the newest `keep` of this stage; on all `ranks`.

    Nothing may write to `masters` meanwhile.
    """
    final = _path(folder, stage, steps_done)
    part = folder / f".{final.name}"
    if ranks.first:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
    ranks.barrier()
    state = {name: tensor.cpu().numpy() for name, tensor in masters.state().items()}
    write_file(part / _shard(ranks.rank, ranks.world), TensorSet(state))
    ranks.barrier()
    if ranks.first:
        record = CheckpointState(stage=stage, steps_done=steps_done, world=ranks.world)
        _write(part / "state.json", record.model_dump_json())
        _flush(part)
        shutil.rmtree(final, ignore_errors=True)
        part.rename(final)
        _flush(folder)
        for old in found(folder, stage)[:-keep]:
            shutil.rmtree(_path(folder, stage, old))
    ranks.barrier()


def found(folder: Path, stage: str) -> list[int]:
    """`steps_done` of all complete checkpoints of a stage, ascending."""
    names = [path.name.rpartition("-") for path in folder.glob(f"{stage}-*")]
    return sorted(int(number) for head, _, number in names if head == stage and number.isdigit())


def load(folder: Path, stage: str, steps_done: int, learner: Learner) -> None:
    """Take over a checkpoint; on all ranks.

    Raises:
        UserError: it was written by another number of ranks, or is damaged.
    """
    path = _path(folder, stage, steps_done)
    state = CheckpointState.model_validate_json((path / "state.json").read_text())
    ranks = learner.ranks
    if state.world != ranks.world:
        raise UserError(
            f"the checkpoint was written by {state.world} ranks, there are {ranks.world} now",
            value=str(path),
            fix=f"start {state.world} ranks, or delete the checkpoint to replay from the start",
        )
    saved = read_file(path / _shard(ranks.rank, ranks.world))
    learner.masters.restore(
        {name: torch.from_numpy(np.array(array)) for name, array in saved.items()}
    )


def discard(folder: Path, stage: str, above: int = -1) -> None:
    """Delete the checkpoints of a stage with more than `above` steps done; first rank only."""
    for steps_done in found(folder, stage):
        if steps_done > above:
            shutil.rmtree(_path(folder, stage, steps_done))


def _path(folder: Path, stage: str, steps_done: int) -> Path:
    return folder / f"{stage}-{steps_done:08d}"


def _shard(rank: int, world: int) -> str:
    return f"rank-{rank}-of-{world}.safetensors"


def _write(file: Path, text: str) -> None:
    with file.open("w") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())


def _flush(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
