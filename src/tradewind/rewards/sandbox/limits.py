"""What a child may use."""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Of one child and everything it starts."""

    memory_mb: int = 1024
    """Address space of each process, in MiB."""
    cpu_s: int = 3600
    """CPU seconds of each process."""
    processes: int = 16
    """Processes and threads at the same time; from L2 on."""
    file_mb: int = 0
    """The largest file that can be written, in MiB; pipes do not count."""
    scratch_mb: int = 16
    """The scratch folder's size, in MiB; from L2 on."""
    open_files: int = 64
    """Descriptors of each process."""
    answer_bytes: int = 4_000_000
    """The longest answer that is read."""

    def as_json(
        self,
        uid: int | None,
        *,
        count_processes: bool,
        paths: tuple[list[str], list[str]] | None = None,
    ) -> str:
        """What `inside/launch.py` is told; `paths` may be read and written, all are if None.

        NPROC means something only with a user of one's own.
        """
        return json.dumps(
            {
                "uid": uid,
                "open": paths,
                "AS": self.memory_mb << 20,
                "CPU": self.cpu_s,
                "NPROC": self.processes if count_processes else None,
                "FSIZE": self.file_mb << 20,
                "NOFILE": self.open_files,
                "CORE": 0,
            }
        )
