"""What the walls stop, from the inside; and what the parent does with a child that misbehaves."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from boxes import need

from tradewind.rewards.sandbox import cgroup
from tradewind.rewards.sandbox import measure as measuring
from tradewind.rewards.sandbox.box import Box
from tradewind.rewards.sandbox.fair import PolicysFault, fairly
from tradewind.rewards.sandbox.level import Level
from tradewind.rewards.sandbox.limits import Limits
from tradewind.rewards.sandbox.measure import Measured, measure, reaches, report, require
from tradewind.rewards.sandbox.orphans import bury_strangers, own_folder
from tradewind.rewards.sandbox.process import KillableProcess, NoAnswer
from tradewind.rewards.sandbox.seccomp import filter_program
from tradewind.rewards.signal import VerifierFailed
from tradewind.types import UserError

CHILD = """
import json, os, sys
for line in sys.stdin.buffer:
    space = {"os": os, "sys": sys}
    try:
        exec(json.loads(line)["do"], space)
        said = space.get("said")
    except BaseException as error:
        said = type(error).__name__
    sys.stdout.write(json.dumps({"said": said}) + "\\n")
    sys.stdout.flush()
"""


@pytest.fixture
def inside(tmp_path):
    """Do something in a box; what it leaves in `said` comes back."""
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    opened = []

    def start(level: Level, **limits: int) -> KillableProcess:
        opened.append(KillableProcess(Box(level, Limits(**limits)), script))
        return opened[-1]

    yield start
    for process in opened:
        process.close()


def do(process: KillableProcess, code: str, deadline_s: float = 10.0):
    return process.ask({"do": code}, deadline_s)["said"]


def test_the_machine_of_the_tests_reaches_what_it_says():
    assert reaches(measure().level)
    assert reaches(Level.L1)
    assert report().startswith(str(measure()))
    assert "L4" in report()


@pytest.fixture
def afresh(monkeypatch):
    """What was measured before counts for nothing, and nothing else counts for it."""
    for name in ("measure", "no_kernel"):
        monkeypatch.setattr(measuring, name, functools.cache(getattr(measuring, name).__wrapped__))


def test_without_bubblewrap_and_gvisor_the_level_is_one_and_the_fixes_are_named(
    monkeypatch, afresh
):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert replace(measuring.measure(), landlock=False) == Measured(
        Level.L1, "bubblewrap is not installed (apt-get install bubblewrap)"
    )
    with pytest.raises(UserError, match=r"needs isolation L2.*Fix: apt-get install bubblewrap"):
        require(Level.L2, "verifier 'python'")
    with pytest.raises(
        UserError,
        match=r"isolation L4.*not L4: gVisor is not installed.*Fix: apt-get install runsc",
    ):
        require(Level.L4, "verifier 'python'")


def test_where_namespaces_are_forbidden_bubblewraps_own_words_are_the_reason(
    monkeypatch, tmp_path, afresh
):
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'bwrap: No permissions' >&2\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    measured = measuring.measure()
    assert (measured.level, measured.because) == (Level.L1, "bwrap: No permissions")


def test_a_stand_in_for_gvisor_that_runs_on_our_kernel_is_no_fourth_level(
    monkeypatch, tmp_path, afresh
):
    """It starts what it is told to in no walls at all."""
    stand_in = """#!/bin/sh -
for word; do case $word in --bundle=*) bundle=${word#--bundle=}; esac; done
exec python3 - "$bundle/config.json" 3<&0 <<'end'
import json, os, sys
os.dup2(3, 0)
command = json.load(open(sys.argv[1]))["process"]["args"]
os.execv(command[0], command)
end
"""
    (tmp_path / "runsc").write_text(stand_in)
    (tmp_path / "runsc").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert "L4 was not tried" in measuring.report()
    assert not measuring.reaches(Level.L4)
    assert "not L4: the child " in measuring.report()


@need(Level.L4)
def test_a_kernel_of_its_own_has_the_walls_of_the_levels_below(inside, tmp_path):
    (tmp_path / "answers.json").write_text("[42]")
    child = inside(Level.L4, file_mb=64, scratch_mb=2, processes=8)
    assert do(child, "said = os.uname().version") != os.uname().version
    assert do(child, f"said = os.path.exists({str(tmp_path / 'answers.json')!r})") is False
    assert do(child, "said = os.getuid()") != 0
    assert do(child, "open('mine', 'w').write('x'); said = os.listdir('.')") == ["mine"]
    assert do(child, "open('big', 'wb').write(bytes(1 << 23))") == "OSError"
    assert do(child, "import site; open(site.__file__, 'w')") in ("PermissionError", "OSError")
    child.kill()
    assert do(child, "said = os.listdir('.')") == []


@need(Level.L4)
def test_a_killed_kernel_leaves_no_process_and_no_folder(inside, buried):
    child = inside(Level.L4)
    for _ in range(2):
        with pytest.raises(NoAnswer, match="in time"):
            do(child, "import time; os.fork(); time.sleep(60)", 1.0)
    assert buried()
    child.close()
    assert not list(Path(tempfile.gettempdir()).glob(f"tradewind-runsc-{os.getpid()}-*"))


KILLED = """
import os, signal, sys
from pathlib import Path
from tradewind.rewards.sandbox.box import Box
from tradewind.rewards.sandbox.level import Level
from tradewind.rewards.sandbox.process import KillableProcess

child = KillableProcess(Box(Level[sys.argv[1]]), Path(sys.argv[2]))
child.ask({"do": "said = 1"}, 20)
os.write(child._running.child.stdin.fileno(), b'{"do": "import time; time.sleep(600)"}\\n')
print(child.pid, os.getpid(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    "level", [pytest.param(name, marks=need(Level[name])) for name in ("L2", "L4")]
)
def test_a_grader_that_is_killed_takes_its_boxes_along_and_the_next_one_its_folders(
    level: str, tmp_path
):
    """Seen here: a program that slept in gVisor lived on, and its bundle lay around."""
    (tmp_path / "child.py").write_text(CHILD)
    command = [sys.executable, "-c", KILLED, level, str(tmp_path / "child.py")]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    outermost, grader = map(int, ran.stdout.split())
    deadline = time.monotonic() + 20.0
    while lives(outermost) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not lives(outermost)
    left = [path.name for path in tmp_path.glob(f"tradewind-runsc-{grader}-*")]
    assert len(left) == (level == "L4")


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_folders_of_the_dead_are_removed_by_who_makes_the_next_one(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    mine = own_folder("runsc")
    (tmp_path / "tradewind-runsc-4194399-abc" / "root").mkdir(parents=True)
    (tmp_path / "tradewind-runsc-mine-abc").mkdir()
    (tmp_path / "tradewind-sql-4194399-abc").mkdir()
    second = own_folder("runsc")
    assert {path.name for path in tmp_path.iterdir()} == {
        mine.name, second.name, "tradewind-runsc-mine-abc", "tradewind-sql-4194399-abc",
    }  # fmt: skip


needs_landlock = pytest.mark.skipif(not measure().landlock, reason="this kernel has no Landlock")


@needs_landlock
def test_landlock_alone_closes_files_and_tcp_but_not_to_the_users_own_code(tmp_path):
    script, secret = tmp_path / "child.py", tmp_path / "answers.json"
    script.write_text(CHILD)
    secret.write_text("[42]")
    read = f"said = open({str(secret)!r}).read()"
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        call = f"import socket; socket.create_connection({server.getsockname()!r}, 5); said = 1"
        tried = [read, call, f"open({str(tmp_path / 'new')!r}, 'w')", "said = os.listdir('/proc')"]
        for confined, expected in ((True, ["PermissionError"] * 4), (False, ["[42]", 1])):
            process = KillableProcess(Box(Level.L1, confined=confined), script)
            with closing(process):
                assert [do(process, code) for code in tried[: len(expected)]] == expected


@needs_landlock
@need(Level.L2)
def test_landlock_stands_behind_the_walls_of_bubblewrap(inside):
    """TCP to itself is what a network of its own would still allow."""
    code = """
import socket
with socket.socket() as listener:
    listener.bind(("127.0.0.1", 0))
"""
    assert do(inside(Level.L2), code) == "PermissionError"


@pytest.mark.parametrize("level", [Level.L1, pytest.param(Level.L2, marks=need(Level.L2))])
def test_the_environment_is_empty_and_memory_is_bounded(inside, level, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    child = inside(level, memory_mb=256)
    assert do(child, "said = 'OPENAI_API_KEY' in os.environ") is False
    assert do(child, "bytearray(1 << 32)") == "MemoryError"


@need(Level.L2)
def test_from_the_second_level_on_nothing_of_ours_is_in_sight(inside, tmp_path):
    (tmp_path / "answers.json").write_text("[42]")
    child = inside(Level.L2)
    assert do(child, f"said = os.path.exists({str(tmp_path / 'answers.json')!r})") is False
    assert do(child, f"said = os.path.exists({__file__!r})") is False
    assert do(child, f"said = os.path.exists('/proc/{os.getpid()}')") is False
    assert do(child, "said = os.getuid()") != 0
    assert do(child, "open('/usr/x', 'w')") in ("PermissionError", "OSError")
    assert do(child, "import socket; socket.create_connection(('127.0.0.1', 9), 1)") in (
        "ConnectionRefusedError",
        "OSError",
        "PermissionError",
    )
    assert do(child, "said = [name for _, name in __import__('socket').if_nameindex()]") == ["lo"]


@need(Level.L2)
def test_the_scratch_folder_is_small_and_forgotten(inside):
    child = inside(Level.L2, file_mb=64, scratch_mb=2)
    assert do(child, "open('mine', 'w').write('x'); said = os.listdir('.')") == ["mine"]
    for place in ("/scratch/big", "/tmp/big", "/dev/shm/big"):
        assert (
            do(child, f"f = open({place!r}, 'wb'); f.write(bytes(1 << 23)); f.flush()") == "OSError"
        )
    child.kill()
    assert do(child, "said = os.listdir('.')") == []


@need(Level.L2)
def test_a_fork_bomb_ends_at_the_users_own_limit(inside):
    child = inside(Level.L2, processes=12)
    bomb = """
import signal
said = 0
try:
    while True:
        if os.fork() == 0:
            signal.pause()
        said += 1
except OSError:
    pass
"""
    assert 8 <= do(child, bomb) < 12
    child.kill()
    assert 8 <= do(child, bomb) < 12, "nothing of the first one is left that counts"


@need(Level.L3)
@pytest.mark.parametrize(
    "call",
    [
        "unshare(0x10000000)",
        "ptrace(0, 0, 0, 0)",
        "mount(b'none', b'/tmp', b'tmpfs', 0, None)",
        "syscall(425, 8, 0)",
        "memfd_create(b'x', 0)",
        "socket(2, 1, 0)",
        "socket(16, 3, 0)",
        "shmget(0, 4096, 0o1600)",
    ],
)
def test_roads_into_the_kernel_are_closed(inside, call):
    libc = "import ctypes; libc = ctypes.CDLL(None, use_errno=True)"
    code = f"{libc}\nsaid = [libc.{call}, ctypes.get_errno()]"
    assert do(inside(Level.L3), code) == [-1, 1]


@need(Level.L3)
def test_threads_and_socket_pairs_of_honest_programs_work_behind_the_filter(inside):
    code = """
import asyncio, threading
found = []
t = threading.Thread(target=lambda: found.append(1)); t.start(); t.join()
async def main():
    await asyncio.sleep(0)
    found.append(2)
asyncio.run(main())
said = found
"""
    assert do(inside(Level.L3), code) == [1, 2]


def test_the_filter_is_known_for_two_architectures_and_no_other():
    assert len(filter_program("x86_64") or b"") == len(filter_program("aarch64") or b"") > 0
    assert filter_program("riscv64") is None


@need(Level.L2)
def test_many_processes_together_keep_to_the_memory_of_one(inside):
    """Each stays far below its own limit."""
    child = inside(Level.L2, processes=12, memory_mb=256)
    code = """
import time
for _ in range(8):
    if os.fork() == 0:
        hoard = b"x" * (60 << 20)
        time.sleep(600)
time.sleep(600)
"""
    with pytest.raises(NoAnswer, match="and what it started took more than 256 MiB"):
        do(child, code, 30.0)


@need(Level.L2)
def test_a_box_that_is_killed_before_it_has_begun_leaves_nothing(inside, buried):
    child = inside(Level.L2)
    for _ in range(20):
        with pytest.raises(NoAnswer):
            do(child, "said = 1", 0.0)
    assert buried()


@need(Level.L2)
def test_boxes_that_end_by_themselves_do_not_fill_their_count(inside, buried):
    """Seen here: after a dozen hard exits, nothing could be started in the box any more."""
    child = inside(measure().level, processes=4)
    for _ in range(14):
        with pytest.raises(NoAnswer, match="died"):
            do(child, "os._exit(0)")
    assert do(child, "said = 1") == 1
    assert buried()


@pytest.fixture
def buried():
    """Whether all that died in boxes since the test began is buried.

    On a busy machine a process may end after its box was given up; the next run buries it then.
    """
    before = dead_children()

    def look() -> bool:
        deadline = time.monotonic() + 20.0
        while dead_children() - before and time.monotonic() < deadline:
            bury_strangers()
        return not dead_children() - before

    return look


def dead_children() -> set[str]:
    ours = ["ps", "-o", "stat=,pid=", "--ppid", str(os.getpid())]
    said = subprocess.run(ours, capture_output=True, text=True).stdout.splitlines()
    return {line.split()[1] for line in said if line.strip().startswith("Z")}


@need(Level.L2)
def test_killed_runs_leave_no_zombie_that_would_fail_honest_ones_later(inside, buried):
    """Seen elsewhere: after 14 to 18 killed runs honest solutions could not fork any more."""
    child = inside(Level.L2, processes=8)
    for _ in range(14):
        with pytest.raises(NoAnswer):
            do(child, "import time; os.fork(); os.setsid; time.sleep(60)", 0.05)
    assert buried()
    assert do(child, "said = os.waitpid(os.fork() or os._exit(0), 0)[1]") == 0


@need(Level.L2)
def test_a_box_that_ends_while_it_is_being_killed_is_no_error(inside, monkeypatch):
    """Seen once in thousands of attacks: it ended between two looks, and a thread with it."""
    child = inside(Level.L2)
    assert do(child, "said = 1") == 1
    bwrap = child._running.child

    def too_late(number: int) -> None:
        os.kill(bwrap.pid, signal.SIGKILL)
        bwrap.wait()

    monkeypatch.setattr(bwrap, "send_signal", too_late)
    child.kill()
    assert do(child, "said = 2") == 2


@need(Level.L2)
def test_a_daemon_dies_with_its_box(inside, tmp_path):
    child = inside(Level.L2)
    code = """
r, w = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(w, b'1')
        import time
        time.sleep(600)
    os._exit(0)
os.read(r, 1)
said = os.getuid()
"""
    uid = do(child, code)
    child.kill()
    if os.getuid() == 0:
        left = subprocess.run(["pgrep", "-U", str(uid)], capture_output=True, text=True).stdout
        assert left == ""


def test_an_answer_without_end_is_cut(inside):
    child = inside(Level.L1, answer_bytes=1 << 16)
    with pytest.raises(NoAnswer, match="more than 65536 bytes"):
        do(child, "while True: os.write(1, bytes(4096).replace(b'\\0', b'x'))")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("nonsense", "not JSON"),
        ("[1]", "not an object"),
        ("[" * 100_000, "not JSON"),
        ("1" * 5000, "not JSON"),
    ],
)
def test_an_answer_that_is_none_is_refused(inside, said, why):
    child = inside(Level.L1)
    with pytest.raises(NoAnswer, match=why):
        do(child, f"os.write(1, {said!r}.encode() + b'\\n'); import time; time.sleep(9)")


def test_a_late_or_dead_child_says_which(inside):
    child = inside(Level.L1)
    with pytest.raises(NoAnswer, match="in time") as late:
        do(child, "import time; time.sleep(60)", 0.1)
    with pytest.raises(NoAnswer, match="died") as dead:
        do(child, "os._exit(0)")
    assert (late.value.timed_out, dead.value.timed_out) == (True, False)
    assert do(child, "said = 1") == 1, "the next question starts a new one"


def test_nobody_is_blamed_for_one_failure():
    deadlines = []

    def slow_once(deadline_s):
        deadlines.append(deadline_s)
        if len(deadlines) == 1:
            raise NoAnswer("late", timed_out=True)
        return "answer"

    assert fairly(slow_once, lambda: None, 1.0) == "answer"
    assert deadlines == [1.0, 2.0], "the machine may be busy"


def test_two_failures_are_the_policys_if_the_sandbox_works():
    def dies(deadline_s):
        raise NoAnswer("the process died before it answered")

    def does_not_work():
        raise NoAnswer("bwrap: no space left")

    with pytest.raises(PolicysFault, match="died before it answered, twice"):
        fairly(dies, lambda: None, 1.0)
    with pytest.raises(VerifierFailed, match="no space left"):
        fairly(dies, does_not_work, 1.0)


def test_groups_of_graders_that_were_killed_are_removed(monkeypatch, tmp_path):
    (tmp_path / "tradewind-4194399-0").mkdir()
    (tmp_path / f"tradewind-{os.getpid()}-0").mkdir()
    (tmp_path / "somebody-elses").mkdir()
    monkeypatch.setattr(cgroup, "_own_groups", lambda: [tmp_path])
    count = cgroup.make_group(7, 1 << 20)
    assert count is not None
    assert (count.folder / "pids.max").read_text() == "7"
    assert (count.folder / "memory.max").read_text() == "1048576"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["somebody-elses", f"tradewind-{os.getpid()}-0", count.folder.name]
    )
