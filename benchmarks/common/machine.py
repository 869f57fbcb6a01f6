"""The machine in words, and the versions of what ran on it."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

_UNITS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")


def machine() -> str:
    """For example `2 cores AMD EPYC 7R13 (avx2; no bf16 units), 24 GB, Linux x86_64`."""
    info = _first_fields(Path("/proc/cpuinfo"))
    flags = info.get("flags", "").split()
    units = ", ".join(unit for unit in _UNITS if unit in flags) or "flags unknown"
    if not {"avx512_bf16", "amx_bf16"} & set(flags):
        units += "; no bf16 units"
    name = info.get("model name") or platform.processor() or platform.machine()
    system = f"{platform.system()} {platform.machine()}"
    return f"{cores()} cores {name} ({units}), {_memory_gb()} GB, {system}"


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def versions(*packages: str) -> dict[str, str]:
    """Python and the named distributions; one that is not installed is left out."""
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def peak_rss_mb() -> float:
    """Most resident memory this process has held so far, in MB (10^6 bytes)."""
    import resource  # not on every platform that can read this file

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if platform.system() == "Darwin" else 1024) / 1e6


def _memory_gb() -> int:
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return round(pages / 2**30)


def _first_fields(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    fields: dict[str, str] = {}
    for line in path.read_text().splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    return fields
