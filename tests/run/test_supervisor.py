from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tradewind.http.listening import free_port
from tradewind.run.interruption import Interruption
from tradewind.run.process import PidRecord, ProcessSpec, end_stale, last_sentence, start_mark
from tradewind.run.supervisor import ProcessFailed, Supervisor
from tradewind.types import UserError


def spec(code: str, *, lasting: bool = True, name: str = "dummy") -> ProcessSpec:
    return ProcessSpec(name=name, argv=(sys.executable, "-c", code), lasting=lasting)


def poll_until(supervisor: Supervisor, happened: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        supervisor.poll()
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)


FOREVER = "import time; time.sleep(600)"


def test_a_crashed_process_is_started_again_and_counted(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    code = (
        f"import pathlib, sys, time; p = pathlib.Path({str(mark)!r})\n"
        "if not p.exists(): p.touch(); sys.exit('first try failed')\n"
        "p.write_text('second'); time.sleep(600)"
    )
    events: list[str] = []
    with Supervisor(tmp_path, backoff_s=0.01, on_event=lambda _, text: events.append(text)) as s:
        s.start(spec(code))
        poll_until(s, lambda: mark.exists() and mark.read_text() == "second")
        assert s.restarts() == {"dummy": 1}
        assert "first try failed" in events[0]


def test_exit_code_2_stops_the_run_with_the_processes_own_sentence(tmp_path: Path) -> None:
    code = "import sys; print('the key is wrong. Fix: use the right one.'); sys.exit(2)"
    with Supervisor(tmp_path) as s:
        s.start(spec(code))
        with pytest.raises(ProcessFailed, match="the dummy stopped: the key is wrong"):
            poll_until(s, lambda: False)


def test_a_process_that_only_crashes_is_given_up_with_its_last_line(tmp_path: Path) -> None:
    with Supervisor(tmp_path, backoff_s=0.001, max_quick_crashes=3) as s:
        s.start(spec("raise SystemExit('out of ideas')"))
        with pytest.raises(ProcessFailed, match=r"crashed 3 times in a row.*out of ideas"):
            poll_until(s, lambda: False)


def test_a_process_that_may_end_is_done_at_exit_code_0(tmp_path: Path) -> None:
    with Supervisor(tmp_path) as s:
        s.start(spec("pass", lasting=False))
        poll_until(s, lambda: s.done("dummy"))
        assert s.restarts() == {"dummy": 0}


def test_exit_code_0_of_a_lasting_process_is_a_crash(tmp_path: Path) -> None:
    with Supervisor(tmp_path, backoff_s=0.001, max_quick_crashes=2) as s:
        s.start(spec("pass"))
        with pytest.raises(ProcessFailed, match="crashed 2 times"):
            poll_until(s, lambda: False)


def test_stop_kills_what_ignores_sigterm_and_its_children(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    code = (
        "import pathlib, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"child = subprocess.Popen([sys.executable, '-c', {FOREVER!r}])\n"
        f"pathlib.Path({str(ready)!r}).write_text(str(child.pid) + '.')\n"
        "time.sleep(600)"
    )
    s = Supervisor(tmp_path)
    s.start(spec(code))
    poll_until(s, lambda: ready.exists() and ready.read_text().endswith("."))
    pid = s.children["dummy"].popen.pid  # type: ignore[union-attr]
    grandchild = int(ready.read_text().rstrip("."))
    s.stop(grace_s=0.2)
    assert start_mark(pid) is None
    deadline = time.monotonic() + 10
    while start_mark(grandchild) is not None:  # reparented: init reaps it in its own time
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert list((tmp_path / "pids").iterdir()) == []


def test_a_launcher_that_was_killed_leaves_children_that_the_next_one_ends(tmp_path: Path) -> None:
    s = Supervisor(tmp_path)
    s.start(spec(FOREVER))
    popen = s.children["dummy"].popen
    assert popen is not None
    assert end_stale(tmp_path / "pids") == ["dummy"]
    assert popen.wait(10) == -signal.SIGTERM
    s.children.clear()


def test_a_recycled_pid_is_left_alone(tmp_path: Path) -> None:
    stranger = subprocess.Popen([sys.executable, "-c", FOREVER], start_new_session=True)
    try:
        record = PidRecord(name="dummy", pid=stranger.pid, mark="another start")
        (tmp_path / "dummy.json").write_text(record.model_dump_json())
        assert end_stale(tmp_path) == []
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_the_last_sentence_skips_empty_lines_and_survives_a_missing_log(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    assert last_sentence(log) == "it left no log"
    log.write_text("one\ntwo\n\n")
    assert last_sentence(log) == "two"


def test_a_port_in_use_gets_a_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UserError, match="the gateway cannot listen"):
            free_port("127.0.0.1", taken.getsockname()[1], "gateway")
    assert free_port("127.0.0.1", 0, "gateway") > 0


def test_an_interrupt_that_python_dropped_is_still_asked_for() -> None:
    class Last:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            for _ in range(1000):  # the handler runs here, and what it raises is dropped
                pass

    with Interruption() as interruption:
        interruption.check()
        with pytest.raises(KeyboardInterrupt):
            sys.unraisablehook, before = (lambda _: None), sys.unraisablehook
            try:
                Last()
            finally:
                sys.unraisablehook = before
            interruption.check()
