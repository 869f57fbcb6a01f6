from __future__ import annotations

from pathlib import Path

import pytest

from tradewind.run.stages import Stages, read_stages

NAMES = ("base", "midtrain", "rl")


def make(file: Path, now: list[float]) -> Stages:
    return Stages(file, "main", NAMES, {"rl": 5}, clock=lambda: now[0])


def test_a_finished_stage_is_skipped_by_the_next_launcher(tmp_path: Path) -> None:
    file, now = tmp_path / "stages.json", [100.0]
    with make(file, now).run("base") as work:
        assert work
    again = make(file, now)
    with again.run("base") as work:
        assert not work
    with again.run("midtrain") as work:
        assert work


def test_a_stage_that_failed_is_done_again(tmp_path: Path) -> None:
    file, now = tmp_path / "stages.json", [100.0]
    with pytest.raises(RuntimeError), make(file, now).run("base"):
        raise RuntimeError
    with make(file, now).run("base") as work:
        assert work


def test_time_without_a_launcher_does_not_count(tmp_path: Path) -> None:
    file, now = tmp_path / "stages.json", [100.0]
    killed = make(file, now)
    never_left = killed.run("base")
    never_left.__enter__()
    now[0] = 110.0
    killed.tick("base")  # and then kill -9
    now[0] = 5000.0
    stages = make(file, now)
    with stages.run("base"):
        now[0] = 5007.0
    assert stages.seconds() == {"base": 17.0}
    (base, *_) = read_stages(file).stages
    assert (base.started_at, base.finished_at) == (100.0, 5007.0)


def test_all_stages_done_is_finished(tmp_path: Path) -> None:
    stages = make(tmp_path / "stages.json", [1.0])
    for name in NAMES:
        assert not stages.finished()
        with stages.run(name):
            pass
    assert stages.finished()
