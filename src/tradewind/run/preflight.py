"""What can be known to fail before anything starts, as sentences."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from tradewind.http.listening import free_port
from tradewind.ledger.ledger import Ledger
from tradewind.run.recipe import Recipe
from tradewind.run.workspace import Workspace
from tradewind.types import UserError
from tradewind.weights.bucket import Bucket

DISK_COPIES = 12
"""Space for a run, in bf16 copies of the model: checkpoints hold fp32 masters and moments twice."""
MEMORY_COPIES = 10
"""Memory for a run, in bf16 copies: trainer about eight, and one or two per pool."""


def check_run(recipe: Recipe, workspace: Workspace, model: Path, bucket_url: str) -> None:
    """Make every check and raise one UserError that tells of all that failed."""
    weights = sum(file.stat().st_size for file in model.glob("*.safetensors"))
    checks: list[Callable[[], None]] = [
        lambda: check_entry(recipe),
        lambda: check_bucket(bucket_url),
        lambda: check_ledger(recipe),
        lambda: check_ports(recipe),
        lambda: check_disk(workspace.folder, DISK_COPIES * weights),
        lambda: check_memory((MEMORY_COPIES + len(recipe.pools)) * weights),
    ]
    faults: list[UserError] = []
    for check in checks:
        try:
            check()
        except UserError as error:
            faults.append(error)
    if len(faults) == 1:
        raise faults[0]
    if faults:
        first, *rest = faults
        also = " ".join(str(error) for error in rest)
        raise UserError(f"{first} {also}".rstrip("."), fix="correct these before the run")


def check_entry(recipe: Recipe) -> None:
    """The environment names its function."""
    if not recipe.env.entry:
        raise UserError(
            "[env] entry is missing",
            fix="write entry = 'my_env.py', the file with `async def rollout(task, policy)`",
        )


def check_bucket(url: str) -> None:
    """The bucket can be written to."""
    Bucket.open(url).check_writable()


def check_ledger(recipe: Recipe) -> None:
    """The databases of both arms answer, where the recipe names any."""
    for database in filter(None, (recipe.run.ledger, recipe.control.ledger)):
        Ledger.open(database).close()


def check_ports(recipe: Recipe) -> None:
    """Ports that the recipe sets are free."""
    for section in ("controller", "gateway"):
        config = getattr(recipe, section)
        if "port" in config.model_fields_set and config.port:
            free_port(recipe.launch.host, config.port, section)


def check_disk(folder: Path, needed: int) -> None:
    """There is room for checkpoints and versions."""
    at = folder
    while not at.exists():
        at = at.parent
    free = shutil.disk_usage(at).free
    if free < needed:
        raise UserError(
            f"the disk has {free / 1e9:.1f} GB free and the run needs about {needed / 1e9:.1f} GB",
            value=str(folder),
            fix="free some space, or run elsewhere with --runs DIR",
        )


def check_memory(needed: int) -> None:
    """The machine has the memory; where it cannot be measured, nothing is said."""
    available = available_memory()
    if available is not None and available < needed:
        raise UserError(
            f"the machine has {available / 1e9:.1f} GB of memory available and the run needs "
            f"about {needed / 1e9:.1f} GB",
            fix="end other programs, or use a smaller model",
        )


def available_memory() -> int | None:
    """Bytes that can be had without swapping; None where the system does not say."""
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None
