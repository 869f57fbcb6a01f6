"""The instruments of the storm can fail: each notices what it is there to notice."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import curve
from lines import Lines
from phases import PHASES
from setting import PROCESSES
from storm import forecast
from watch import StallWatch

from tradewind.ledger.ledger import Ledger
from tradewind.types import Beat, Event

LINES = ("worker to gateway", "pool to controller", "grader to ledger", "trainer to ledger")
KINDS = [
    *((fault, name) for fault in ("kill", "freeze") for name in PROCESSES),
    *((fault, line) for fault in ("cut", "swallow") for line in LINES),
    ("lock", "ledger"),
]


def test_eight_rounds_hit_every_process_and_line_in_every_phase_by_every_fault() -> None:
    volleys = forecast(len(PHASES), 3, KINDS)
    hits = {(i.fault, i.victim, i.phase) for (i,) in volleys}
    assert len(volleys) == len(hits) == len(KINDS) * len(PHASES)
    assert forecast(2, 3, KINDS) == forecast(2, 3, KINDS) != forecast(2, 4, KINDS)


def test_three_faults_at_once_have_three_victims_and_one_phase() -> None:
    volleys = forecast(4, 3, KINDS, at_once=3)
    hits = Counter((i.fault, i.victim) for volley in volleys for i in volley)
    assert hits == dict.fromkeys(KINDS, 4), "each as often as any other"
    assert max(map(len, volleys)) == 3
    for volley in volleys:
        assert (
            len({i.victim for i in volley}) == len(volley) and len({i.phase for i in volley}) == 1
        )


@pytest.fixture
def echo():
    """A server that sends back what it gets; its port."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                conn, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(conn,), daemon=True).start()

    def answer(conn: socket.socket) -> None:
        with conn:
            while data := conn.recv(100):
                conn.sendall(data)

    threading.Thread(target=serve, daemon=True).start()
    yield server.getsockname()[1]
    server.shutdown(socket.SHUT_RDWR)
    server.close()


def is_broken(conn: socket.socket) -> bool:
    """Whether the other end has hung up."""
    try:
        return conn.recv(10) == b""
    except ConnectionResetError:
        return True


def test_a_line_carries_breaks_swallows_and_heals(echo: int) -> None:
    with Lines() as lines:
        line = lines.to(echo)
        with socket.create_connection(("127.0.0.1", line.port), 5) as kept:
            kept.sendall(b"one")
            assert kept.recv(10) == b"one"
            line.swallow()
            kept.sendall(b"two")
            kept.settimeout(0.2)
            with pytest.raises(TimeoutError):
                kept.recv(10)
            line.heal()
            kept.settimeout(5)
            assert kept.recv(10) == b"two", "what was swallowed for a while is not lost"
            line.cut()
            assert is_broken(kept)
        with socket.create_connection(("127.0.0.1", line.port), 5) as refused:
            assert is_broken(refused)
        line.heal()
        with socket.create_connection(("127.0.0.1", line.port), 5) as again:
            again.sendall(b"four")
            assert again.recv(10) == b"four"


@pytest.mark.parametrize("said", ["nothing", "an event", "a beat"])
def test_a_stall_that_nobody_explains_is_noticed(tmp_path: Path, said: str) -> None:
    ledger = Ledger.open(tmp_path / "l.sqlite")
    watch = StallWatch(ledger, limit_s=0.05, look_s=0.0)
    watch.look()
    now = time.time()
    if said == "an event":
        event = {"at": now, "process": "controller", "kind": "run.stalled", "subject": "pool"}
        ledger.event(Event(**event, detail="no pool serves"))
    if said == "a beat":
        beat = {"process": "trainer", "doing": "step 1", "since": now, "at": now}
        ledger.beat(Beat(**beat, waiting_for="2 more closed groups", owner="grader"))
    time.sleep(0.1)
    watch.close()
    ledger.close()
    assert len(watch.stalls) == 1
    assert len(watch.unexplained) == (1 if said == "nothing" else 0)


def test_a_policy_that_earns_what_it_should_passes_and_a_bias_is_noticed() -> None:
    fair = [(n, "t", float(n % 2)) for n in range(1000)]
    assert abs(curve.excess(fair, {"t": 0.5})) < 0.1
    shift = curve.detectable(1000)
    biased = [(n, "t", float(n % 1000 < 1000 * (0.5 + shift))) for n in range(1000)]
    assert curve.excess(biased, {"t": 0.5}) > curve.Z_LIMIT


def test_a_curve_beside_another_is_noticed() -> None:
    rising = [0.5 + 0.02 * n for n in range(14)]
    noise = [0.03 * (-1) ** n for n in range(14)]
    assert curve.same_curve(rising, [r + e for r, e in zip(rising, noise, strict=True)]) > 0.5
    assert curve.same_curve(rising, [r - 0.1 for r in rising]) < 0.001
