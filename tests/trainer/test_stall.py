"""The clock of the main thread: every second is counted once, as what it was."""

from tradewind.trainer.stall import Clock


class Hands:
    def __init__(self):
        self.at = 0.0

    def __call__(self):
        return self.at


def test_a_second_is_counted_twice_or_as_something_else():
    now = Hands()
    clock = Clock(now)
    now.at = 100.0
    clock.start()
    with clock.of("read"):
        now.at += 1
    with clock.of("wait"):
        now.at += 10
    with clock.of("step"):
        now.at += 20
        with clock.of("settle"):  # within the step, before the update
            now.at += 3
        now.at += 4
    now.at += 0.5  # belongs to nothing
    with clock.of("probe"):
        now.at += 2
    assert clock.turn() == 40.5
    assert clock.metrics() == {
        "trainer/read/seconds": 1.0,
        "trainer/wait/seconds": 10.0,
        "trainer/settle/seconds": 3.0,
        "trainer/probe/seconds": 2.0,
        "trainer/stall/seconds": 6.5,
    }


def test_a_turn_begins_with_what_the_last_one_left():
    now = Hands()
    clock = Clock(now)
    with clock.of("wait"):
        now.at += 5
    clock.turn()
    now.at += 1
    assert clock.turn() == 1.0
    assert clock.metrics()["trainer/wait/seconds"] == 0.0
    assert clock.metrics()["trainer/stall/seconds"] == 1.0
