"""The first thing in every child: gives up rights, takes on limits, then becomes a script of ours.

python -P -s -S launch.py LIMITS PACKAGES SCRIPT [ARG...]

LIMITS is JSON (see `Limits.as_json`), PACKAGES are folders to import from. With `open`, a pair of
lists of paths to read and to write, everything else is closed by Landlock.

Limits are set here and not in a `preexec_fn`, which may deadlock in a process with threads. The
script runs in this interpreter: a second one would cost as much as a verdict.
"""

from __future__ import annotations

import json
import os
import resource
import sys


def give_up_rights(uid: int) -> None:
    """Become a user that nobody else is; the group of the same number, no others."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def take_limits(limits: dict[str, int | None]) -> None:
    """Hard limits on this process and what it starts; `None` leaves one as it is."""
    for name, most in limits.items():
        if most is not None:
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))


def main() -> None:
    """Run the script; the arguments become its own."""
    told, packages, script, *rest = sys.argv[1:]
    with open(script, "rb") as file:  # noqa: PTH123  pathlib is slow to import
        code = compile(file.read(), script, "exec")
    limits = json.loads(told)
    uid, paths = limits.pop("uid"), limits.pop("open")
    if uid is not None:
        give_up_rights(uid)
    here = __file__.rpartition("/")[0]
    sys.path.insert(0, here)
    if paths is not None:
        from landlock import restrict  # type: ignore[import-not-found]  # beside this script

        restrict(*paths)
    if script.rpartition("/")[0] != here:  # scripts of ours share modules; others see none of them
        sys.path.remove(here)
    take_limits(limits)
    sys.argv = [script, *rest]
    sys.path += [folder for folder in packages.split(os.pathsep) if folder]
    exec(code, {"__name__": "__main__", "__file__": script, "__builtins__": __builtins__})


if __name__ == "__main__":
    main()
