"""A filter of system calls, as the program that bubblewrap loads.

What a program that computes needs goes through. Refused with EPERM: looking into other processes,
mounting, new namespaces, kernel modules, BPF, keys, io_uring and the like, memory outside the
address space's count (System V shared memory, memfd), and every socket that is not AF_UNIX.
`clone3` answers ENOSYS, since its flags lie behind a pointer; libraries then use `clone`.

The program is classic BPF over `struct seccomp_data` (include/uapi/linux/seccomp.h):
nr at 0, arch at 4, the low half of argument 0 at 16.
"""

from __future__ import annotations

import platform
import struct

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _ENOSYS = 1, 38
_NR, _ARCH, _ARGUMENT = 0, 4, 16
_AF_UNIX = 1
_NEW_NAMESPACES = 0x7E020080
"""CLONE_NEWUSER, NEWPID, NEWNET, NEWIPC, NEWUTS, NEWCGROUP, NEWNS and NEWTIME."""
_X32 = 0x40000000

_ARCHES = {
    "x86_64": (0xC000003E, {"clone": 56, "socket": 41}),
    "aarch64": (0xC00000B7, {"clone": 220, "socket": 198}),
}
_CLONE3 = 435
_REFUSED = {
    # name: (x86_64, aarch64)
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "userfaultfd": (323, 282),
    "init_module": (175, 105),
    "delete_module": (176, 106),
    "finit_module": (313, 273),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "personality": (135, 92),
    "quotactl": (179, 60),
    "acct": (163, 89),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "memfd_create": (319, 279),
}
_REFUSED_EVERYWHERE = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "pidfd_getfd": 438,
    "process_madvise": 440,
    "mount_setattr": 442,
    "memfd_secret": 447,
}
"""Calls since Linux 5.0 have one number on every architecture."""


def filter_program(machine: str | None = None) -> bytes | None:
    """The filter for this machine (or one named as `uname -m` does); None where we have none."""
    machine = machine or platform.machine()
    if machine not in _ARCHES:
        return None
    arch, numbers = _ARCHES[machine]
    column = list(_ARCHES).index(machine)
    refused = [pair[column] for pair in _REFUSED.values()] + list(_REFUSED_EVERYWHERE.values())
    program = [
        _load(_ARCH),
        _jump(_EQUAL, arch, 1, 0),
        _answer(_KILL),
        _load(_NR),
        _jump(_AT_LEAST, _X32, 0, 1),
        _answer(_ERRNO | _ENOSYS),
        _jump(_EQUAL, _CLONE3, 0, 1),
        _answer(_ERRNO | _ENOSYS),
    ]
    for number in refused:
        program += [_jump(_EQUAL, number, 0, 1), _answer(_ERRNO | _EPERM)]
    program += _if_argument(numbers["clone"], _jump(_ANY_BIT, _NEW_NAMESPACES, 1, 0))
    program += _if_argument(numbers["socket"], _jump(_EQUAL, _AF_UNIX, 0, 1))
    return b"".join([*program, _answer(_ALLOW)])


def _if_argument(number: int, test: bytes) -> list[bytes]:
    """For one call: allow if `test` on argument 0 falls through, refuse if it jumps."""
    return [
        _jump(_EQUAL, number, 0, 4),
        _load(_ARGUMENT),
        test,
        _answer(_ALLOW),
        _answer(_ERRNO | _EPERM),
    ]


def _load(offset: int) -> bytes:
    return struct.pack("=HBBI", _LOAD, 0, 0, offset)


def _jump(test: int, value: int, if_true: int, if_false: int) -> bytes:
    return struct.pack("=HBBI", test, if_true, if_false, value)


def _answer(value: int) -> bytes:
    return struct.pack("=HBBI", _RETURN, 0, 0, value)
