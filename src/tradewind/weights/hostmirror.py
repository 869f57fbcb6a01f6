"""The mirror of a host: pools on one machine decode each version once and map the same bytes.

    pool 1 ── lock ──► stage ──► <run>-<version>.safetensors ──► mapped
    pool 2 ── waits ─────────────► mapped, hashed, state id equal? ──► no frame fetched or decoded

A file gets its name when it is whole, and nobody believes it: whoever maps it hashes all of it, and
what does not have the version's state id is removed and made again. The lock is the kernel's: that
of a process that died is free. A file that nobody needs any more is unlinked; who has mapped it
keeps it. Give a folder in memory (`/dev/shm/...`): every version is written there as a dense copy.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tradewind.types.errors import UserError
from tradewind.weights.checkpoint import read_file, write_file
from tradewind.weights.digest import digest_bytes
from tradewind.weights.state import State
from tradewind.weights.tensors import TensorSet

log = logging.getLogger(__name__)

KEEP = 1
"""Newest versions that keep their names: each is a dense copy, and nobody goes to an older one."""
WAIT_S = 120.0
"""For another pool that makes a version, in seconds; then it is staged without the mirror."""
LOOK_S = 0.02
"""Between two tries to get the lock, in seconds."""


class HostMirror:
    """The files of one run in `folder`. Raises UserError if it cannot be made."""

    def __init__(self, folder: Path, run_id: str, *, wait_s: float = WAIT_S) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"the mirror's folder cannot be made ({error.strerror})",
                value=str(folder),
                fix="give a folder that this user may write to, or no mirror",
            ) from error
        self._folder, self._wait_s = folder, wait_s
        self._run = digest_bytes(run_id.encode())[:16]

    @contextmanager
    def locked(self) -> Iterator[bool]:
        """Whether this process alone may write now; False if another did for too long."""
        import fcntl  # not on every platform that can read this file

        handle = os.open(self._folder / f"{self._run}.lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            deadline = time.monotonic() + self._wait_s
            held = False
            while not held:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    held = True
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        log.warning(
                            "the mirror in %s is locked for %.0f s", self._folder, self._wait_s
                        )
                        break
                    time.sleep(LOOK_S)
            yield held
        finally:
            os.close(handle)  # which unlocks it

    def find(self, version: int) -> TensorSet | None:
        """The tensors that stand for `version`, mapped and not verified; None if there are none."""
        path = self._path(version)
        if not path.exists():
            return None
        try:
            return read_file(path)
        except (UserError, OSError) as error:
            self.drop(version, str(error))
            return None

    def drop(self, version: int, why: str) -> None:
        """Takes the file of `version` away."""
        log.warning("the mirror of version %d is made again: %s", version, why)
        self._path(version).unlink(missing_ok=True)

    def share(self, state: State) -> State:
        """`state` over mapped files; itself, with a warning, if they cannot be written."""
        path = self._path(state.version)
        try:
            write_file(path, state.tensors)
            path.chmod(0o444)
            tensors = read_file(path)
        except (UserError, OSError) as error:
            log.warning("version %d is not mirrored: %s", state.version, error)
            with suppress(OSError):
                path.with_name(path.name + ".part").unlink(missing_ok=True)
            return state
        self._forget(state.version)
        return State(state.version, tensors, state.leaves, state.state_id, state.probes)

    def _forget(self, newest: int) -> None:
        files = sorted(self._folder.glob(f"{self._run}-*.safetensors"))
        keep = {self._path(newest), *files[-KEEP:]}
        for path in files:
            if path not in keep:
                path.unlink(missing_ok=True)

    def _path(self, version: int) -> Path:
        return self._folder / f"{self._run}-{version:08d}.safetensors"
