"""The instruments of the storm can fail: each notices what it is there to notice."""

from __future__ import annotations

import math
import random
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
    assert len(watch.stalls) == 1 and watch.longest == watch.stalls[0]
    assert len(watch.unexplained) == (1 if said == "nothing" else 0)


def test_a_policy_that_earns_what_it_should_passes_and_a_bias_is_noticed() -> None:
    assert abs(curve.excess((float(n % 2), 0.5) for n in range(1000))) < 0.1
    shift = curve.detectable(1000)
    biased = [(float(n < 1000 * (0.5 + shift)), 0.5) for n in range(1000)]
    assert curve.excess(biased) > curve.Z_LIMIT


def coins(seed: int, rate: float = 0.06, loses: float = 0.0) -> curve.Run:
    """25 steps of 8 coins, learning from luck; of wrong answers `loses` are sampled again."""
    draw, score, earned, means = random.Random(seed), 0.0, [], [0.5]
    for _ in range(25):
        step = list[float]()
        while len(step) < 8:
            reward = float(draw.random() < means[-1])
            if reward or draw.random() >= loses:
                step.append(reward)
        earned += [(reward, means[-1]) for reward in step]
        score += rate * sum(reward - 0.4 for reward in step)
        means.append(1 / (1 + math.exp(-score)))
    return curve.Run(earned, means)


def test_the_luck_of_a_run_that_learns_is_no_excess_and_a_loss_by_reward_is() -> None:
    runs = [coins(seed) for seed in range(200)]
    squares = [curve.excess(run.earned) ** 2 for run in runs]
    ends = [run.means[-1] for run in runs]
    assert max(ends) - min(ends) > 0.2, "luck moves a whole run"
    assert 0.7 < sum(squares) / len(squares) < 1.3, "and the variance of z is 1 all the same"
    lossy = [pair for seed in range(4) for pair in coins(seed, loses=0.5).earned]
    assert curve.excess(lossy) > curve.Z_LIMIT


def test_runs_of_one_kind_pass_in_spite_of_their_luck_and_slower_ones_are_noticed() -> None:
    ends = [coins(seed).means[-1] for seed in range(320)]
    ps = [curve.same(ends[n : n + 3], ends[n + 3 : n + 16]) for n in range(0, 320, 16)]
    assert min(ps) > 0.001 and 0.3 < sum(ps) / len(ps) < 0.7, "p is uniform"
    slower = [coins(seed, rate=0.012).means[-1] for seed in range(400, 404)]
    assert curve.same(slower, ends[:20]) < 0.001
