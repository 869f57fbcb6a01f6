import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tradewind.ledger.ledger import Ledger
from tradewind.trainer import checkpoint, crew, loop, share
from tradewind.trainer.config import TrainerConfig
from tradewind.trainer.loop import train
from tradewind.trainer.progress import MetricsFile
from tradewind.trainer.run import Run
from tradewind.types import Conflict, RefusedWeights, Stalled, UserError
from tradewind.types.trust import Pause
from tradewind.weights import collect
from tradewind.weights.bucket import Bucket
from tradewind.weights.checkpoint import read_folder
from tradewind.weights.follow import Follower
from tradewind.weights.ladder import Ladder
from tradewind.weights.manifest import MAX_MANIFEST, Manifest, unpack
from tradewind.weights.publish import Publisher
from tradewind.weights.shortcut import ends_of

STEPS, PER_STEP = 5, 2
CONFIG = {
    "steps": STEPS,
    "groups_per_step": PER_STEP,
    "max_staleness": 9,
    "lr": 1e-2,
    "checkpoint_every": 2,
    "lease_ttl_s": 1.0,
    "poll_s": 0.01,
    "wait_deadline_s": 0.2,
    "dtype": "fp32",
    "threads": 1,
}


class Crash(Exception):
    pass


@pytest.fixture
def run(tiny, tmp_path):
    model = tiny.save_model(tmp_path / "model")
    tiny.fill(tmp_path / "ledger.sqlite", STEPS * PER_STEP).close()
    return Run(workspace=tmp_path, model=model, run_id="tiny")


def outcome(run):
    """What may not depend on how often the trainer died."""
    ledger = Ledger.open(run.workspace / "ledger.sqlite")
    assert ledger.audit() == []
    bucket = Bucket.open((run.workspace / "bucket").as_uri())
    follower = Follower(bucket, read_folder(run.model), run_id="tiny")
    newest = ledger.versions()[-1]
    assert follower.newest() == newest.version
    assert follower.stage(newest.version).state_id == newest.state_id
    curve = [
        (step.step, step.version, step.group_ids, step.metrics["trainer/loss/value"])
        for step in ledger.steps()
    ]
    states = [version.state_id for version in ledger.versions()]
    lines = MetricsFile(run.workspace, "rl").read()
    assert [line["step"] for line in lines] == [step.step for step in ledger.steps()]
    events = [event.kind for event in ledger.events()]
    ledger.close()
    return curve, states, events


@pytest.fixture(scope="module")
def undisturbed(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    tiny.fill(folder / "ledger.sqlite", STEPS * PER_STEP).close()
    run = Run(workspace=folder, model=tiny.save_model(folder / "model"), run_id="tiny")
    train(TrainerConfig(**CONFIG), run)
    curve, states, _ = outcome(run)
    assert len(curve) == STEPS and len(set(states)) == STEPS + 1
    return curve, states


POINTS = {
    "claim": (Ledger, "claimable"),
    "step": (crew.Crew, "step"),
    "probe": (crew.Crew, "probe"),
    "upload": (share, "upload"),
    "reports": (crew.Crew, "upload"),
    "manifest": (Publisher, "seal"),
    "checkpoint": (checkpoint, "save"),
    "commit": (Ledger, "commit_step"),
    "announce": (Publisher, "announce"),
    "metrics": (MetricsFile, "append"),
    "base": (Ledger, "commit_version"),
    "replay": (Ledger, "groups_of_step"),
    "load": (crew.Crew, "load"),
}


class Overlap:
    """Lets a publication go on only when the next step has begun."""

    def __init__(self, patch):
        self.begun, self.news, self.publishing = set(), threading.Condition(), threading.local()
        step, publish = crew.Crew.step, loop.Loop.publish

        def stepping(crew, samples, version, number):
            with self.news:
                self.begun.add(number)
                self.news.notify_all()
            return step(crew, samples, version, number)

        def publishing(loop, made, probes):
            self.publishing.number = made.step
            publish(loop, made, probes)

        patch.setattr(crew.Crew, "step", stepping)
        patch.setattr(loop.Loop, "publish", publishing)

    def wait(self):
        """Called in the thread that publishes; elsewhere it does nothing."""
        number = getattr(self.publishing, "number", None)
        if number is not None and number + 1 < STEPS:
            with self.news:
                assert self.news.wait_for(lambda: number + 1 in self.begun, 60)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("point", POINTS)
def test_crash_changes_the_curve_or_trains_a_group_twice(
    run, undisturbed, monkeypatch, point, after
):
    owner, name = POINTS[point]
    original = getattr(owner, name)
    calls = 0

    def crashing(*args, **kwargs):
        nonlocal calls
        calls += 1
        crash = calls % 3 == 1
        overlap.wait()
        if crash and not after:
            raise Crash(point)
        result = original(*args, **kwargs)
        if crash:
            raise Crash(point)
        return result

    crashes = 0
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, crashing)
        overlap = Overlap(patch)
        for _ in range(4 * STEPS):
            overlap.begun.clear()
            try:
                train(TrainerConfig(**CONFIG), run)
                break
            except Crash:
                crashes += 1
        else:
            pytest.fail("the run never ended")
    if point not in ("replay", "load"):
        assert crashes
    curve, states, events = outcome(run)
    assert (curve, states) == undisturbed
    assert "replay.diverged" not in events


def test_groups_of_a_step_in_flight_are_claimed_again(run, undisturbed, monkeypatch):
    """Each step is committed only when the next one has claimed its groups."""
    overlap, commit = Overlap(monkeypatch), Ledger.commit_step

    def late(ledger, step, version):
        overlap.wait()
        commit(ledger, step, version)

    monkeypatch.setattr(Ledger, "commit_step", late)
    train(TrainerConfig(**CONFIG), run)
    assert outcome(run)[:2] == undisturbed


def test_synchronous_mode_waits_for_groups_that_wait_for_it(tiny, tmp_path, monkeypatch):
    """No group of a version is there before the version is announced."""
    ledger = tiny.fill(tmp_path / "ledger.sqlite", PER_STEP)
    run = Run(workspace=tmp_path, model=tiny.save_model(tmp_path / "model"), run_id="tiny")
    announce = Publisher.announce

    def answered(publisher, version):
        announce(publisher, version)
        for number in range(PER_STEP if version.version else 0):
            tiny.add_group(ledger, 100 * version.version + number, version=version.version)

    monkeypatch.setattr(Publisher, "announce", answered)
    train(TrainerConfig(**{**CONFIG, "max_staleness": 0, "steps": 3, "wait_deadline_s": 60}), run)
    assert [s.metrics["trainer/staleness/max"] for s in ledger.steps()] == [0.0] * 3
    assert ledger.audit() == []
    ledger.close()


@pytest.mark.parametrize("meanwhile", ["trains", "waits"])
def test_a_failed_upload_does_not_end_the_run_or_later_steps_are_committed(
    run, undisturbed, monkeypatch, meanwhile
):
    """Versions 0 to 2 can be written, and the trainer has gone on when the next one cannot."""
    put, claimable = Bucket.put_new, Ledger.claimable
    ledger = Ledger.open(run.workspace / "ledger.sqlite")

    def full(bucket, key, data):
        if key.startswith("frames/") and len(ledger.versions()) == 3:
            if meanwhile == "trains":
                overlap.wait()
            raise UserError("the bucket cannot be written", fix="make room")
        put(bucket, key, data)

    def no_more(ledger, n, version, *rest):
        return claimable(ledger, n, version, *rest) if version < 3 else []

    with monkeypatch.context() as patch:
        overlap = Overlap(patch)
        patch.setattr(Bucket, "put_new", full)
        if meanwhile == "waits":
            patch.setattr(Ledger, "claimable", no_more)
        with pytest.raises(UserError, match="the bucket cannot be written"):
            train(TrainerConfig(**{**CONFIG, "wait_deadline_s": 60.0}), run)
    assert len(ledger.versions()) == 3 and ledger.last_step().step == 1
    assert ledger.closed() == (STEPS - 2) * PER_STEP and ledger.audit() == []
    (beat,) = ledger.beats()
    assert "ended: the bucket cannot be written" in beat.doing
    train(TrainerConfig(**CONFIG), run)
    assert outcome(run)[:2] == undisturbed
    ledger.close()


def test_a_publication_that_never_ends_is_waited_for_for_ever(run, monkeypatch):
    over = threading.Event()
    monkeypatch.setattr(Ledger, "commit_step", lambda *_: over.wait(60) and None)
    monkeypatch.setattr("tradewind.trainer.behind.LINGER_S", 0.01)
    with pytest.raises(Stalled, match=r"publication of step 0 \(owner: bucket\)"):
        train(TrainerConfig(**CONFIG, publish_deadline_s=0.1), run)
    over.set()
    for thread in threading.enumerate():
        if thread.name == "publish-0":
            thread.join(60)


def test_replay_is_wrong_but_goes_unnoticed(run, undisturbed, monkeypatch):
    def crash(*_):
        raise Crash

    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(checkpoint, "save", lambda *_: None)
        patch.setattr(MetricsFile, "append", crash)
        train(TrainerConfig(**CONFIG), run)
    train(TrainerConfig(**{**CONFIG, "lr": 3e-2}), run)  # as if on another machine
    curve, states, events = outcome(run)
    assert events.count("replay.diverged") == 1
    assert curve[0] == undisturbed[0][0] and states[:2] == undisturbed[1][:2]


def test_second_trainer_works_beside_the_first(run):
    ledger = Ledger.open(run.workspace / "ledger.sqlite")
    asked = 0

    class Living:
        """Renews its place whenever the newcomer looks."""

        def acquire(self, real, owner, now, ttl):
            nonlocal asked
            asked += 1
            ledger_acquire(ledger, "trainer@elsewhere", now + asked, 60.0)
            return real(owner, now, ttl)

    ledger_acquire = Ledger.acquire_trainer
    living = Living()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            Ledger,
            "acquire_trainer",
            lambda self, *a: living.acquire(lambda *b: ledger_acquire(self, *b), *a),
        )
        with pytest.raises(Conflict, match="another trainer"):
            train(TrainerConfig(**CONFIG), run)
    assert ledger.last_step() is None and 2 <= asked <= 3
    ledger.close()


def test_place_of_a_dead_trainer_is_never_free_again(run):
    ledger = Ledger.open(run.workspace / "ledger.sqlite")
    ledger.acquire_trainer("trainer@dead", time.time(), 0.3)
    train(TrainerConfig(**{**CONFIG, "steps": 1}), run)
    assert ledger.last_step().step == 0 and ledger.trainer() is None
    ledger.close()


def test_wait_for_groups_is_silent_or_endless(run):
    config = TrainerConfig(**{**CONFIG, "steps": STEPS + 1})
    with pytest.raises(Stalled, match=r"2 more closed groups for step 5.*controller"):
        train(config, run)
    ledger = Ledger.open(run.workspace / "ledger.sqlite")
    (beat,) = ledger.beats()
    assert beat.process == "trainer" and "2 more closed groups" in beat.doing
    assert ledger.trainer() is None
    ledger.close()


def test_wait_does_not_end_when_the_last_group_closes(run, tiny, monkeypatch):
    ledger = Ledger.open(run.workspace / "ledger.sqlite")
    seen = []

    def waiting(self, what, waiting_for, owner):
        if owner == "controller":
            seen.append(waiting_for)
            tiny.add_group(ledger, 100 + len(seen))

    monkeypatch.setattr("tradewind.trainer.pulse.Pulse.waiting", waiting)
    train(TrainerConfig(**{**CONFIG, "steps": STEPS + 1}), run)
    assert seen == [f"{n} more closed groups for step {STEPS}" for n in (2, 1)]
    ledger.close()


def test_a_pause_outlasts_every_deadline_and_ends_with_a_person(run, monkeypatch):
    ledger = Ledger.open(run.workspace / "ledger.sqlite")
    ledger.pause_training(Pause(alarm="nulls", cause="31 of 100 were null", at=1.0))
    seen = []

    def waiting(self, what, waiting_for, owner):
        if owner == "you":
            assert ledger.closed() == STEPS * PER_STEP, "nothing is claimed meanwhile"
            seen.append(waiting_for)
            if len(seen) == 3:
                ledger.resume_training(2.0, "a person")

    monkeypatch.setattr("tradewind.trainer.pulse.Pulse.waiting", waiting)
    train(TrainerConfig(**{**CONFIG, "wait_deadline_s": 1e-9}), run)
    assert seen == ["a person: the alarm 'nulls' has paused training"] * 3
    assert ledger.last_step().step == STEPS - 1
    ledger.close()


def test_stale_group_is_trained(run):
    with pytest.raises(Stalled):
        train(TrainerConfig(**{**CONFIG, "max_staleness": 1}), run)
    ledger = Ledger.open(run.workspace / "ledger.sqlite")
    assert [s.metrics["trainer/staleness/max"] for s in ledger.steps()] == [0.0, 1.0]
    ledger.close()


def test_numbers_that_are_not_finite_are_committed(run, monkeypatch):
    def poisoned(self, samples, *rest):
        bad = [s.model_copy(update={"advantage": float("nan")}) for s in samples]
        return original(self, bad, *rest)

    original = crew.Crew.step
    monkeypatch.setattr(crew.Crew, "step", poisoned)
    with pytest.raises(UserError, match=r"loss of step 0 is not finite: nan.*nothing was"):
        train(TrainerConfig(**CONFIG), run)
    ledger = Ledger.open(run.workspace / "ledger.sqlite")
    assert ledger.last_step() is None and ledger.closed() == STEPS * PER_STEP
    ledger.close()


def test_another_base_is_trained_on(run, tiny, tmp_path):
    train(TrainerConfig(**{**CONFIG, "steps": 1}), run)
    other = tiny.save_model(tmp_path / "other", seed=5)
    with pytest.raises(UserError, match="not the base of this run"):
        train(TrainerConfig(**CONFIG), Run(run.workspace, other, "tiny"))


def test_k3_alarm_is_not_raised(run):
    train(TrainerConfig(**{**CONFIG, "k3_alarm": 1e-6}), run)
    ledger = Ledger.open(run.workspace / "ledger.sqlite")
    (first, *_) = [e for e in ledger.events() if e.kind == "ratio.alarm"]
    assert first.subject == "step 0" and "mismatch_k3" in first.detail
    ledger.close()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kills", [(2,), pytest.param((1, 2, 4), marks=pytest.mark.slow)])
def test_kill_9_changes_the_curve(run, undisturbed, kills):
    """Killed for real as soon as so many lines of metrics are there, then left to end."""
    config = run.workspace / "trainer.json"
    config.write_text(json.dumps(CONFIG))
    argv = [sys.executable, "-m", "tradewind.trainer", "--stage", "rl",
            "--workspace", str(run.workspace), "--config", str(config)]  # fmt: skip
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    lines = run.workspace / "metrics" / "rl.jsonl"
    for kill_at in (*kills, None):
        process = subprocess.Popen(argv, env=env, stderr=subprocess.PIPE)
        while process.poll() is None:
            done = lines.read_bytes().count(b"\n") if lines.exists() else 0
            if kill_at is not None and done >= kill_at:
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(0.001)
        _, said = process.communicate()
        assert process.returncode == (0 if kill_at is None else -signal.SIGKILL), said.decode()
    assert outcome(run)[:2] == undisturbed


def test_late_pools_find_no_shortcuts(run, monkeypatch):
    """Behind the steps: from the base to each rung, from there to each version, twice the same."""
    offer = Ladder.offer

    def patient(ladder, version, tensors):  # steps of a tiny model would overtake it
        offer(ladder, version, tensors)
        assert ladder.settle(60).finished

    monkeypatch.setattr(Ladder, "offer", patient)
    for _ in range(2):
        train(TrainerConfig(**CONFIG, shortcut_span=2), run)
    bucket = Bucket.open((run.workspace / "bucket").as_uri())
    ends = sorted(ends_of(key) for key in bucket.list("shortcuts/"))
    assert ends == [(0, 2), (0, 4), (2, 4)]
    staged = Follower(bucket, read_folder(run.model), run_id="tiny").stage(STEPS)
    assert (staged.objects, staged.detours) == (2, ())


def test_a_run_without_a_ladder_publishes_shortcuts(run):
    train(TrainerConfig(**CONFIG, shortcut_span=0), run)
    assert Bucket.open((run.workspace / "bucket").as_uri()).list("shortcuts/") == []


def test_shortcuts_that_cannot_be_written_stop_the_run_or_are_not_told(run, monkeypatch):
    put = Bucket.put_new

    def full(bucket, key, data):
        if key.startswith("shortcuts/"):
            raise UserError("the disk is full", fix="make room")
        put(bucket, key, data)

    monkeypatch.setattr(Bucket, "put_new", full)
    train(TrainerConfig(**CONFIG), run)
    curve, _, events = outcome(run)
    assert len(curve) == STEPS and "shortcuts.failed" in events


def test_what_no_pool_needs_leaves_the_bucket_while_the_run_goes_on(run, monkeypatch):
    """A run of a thousand versions would fill its bucket; a fresh pool still reaches the newest."""
    monkeypatch.setattr(
        "tradewind.trainer.lineage.Collector",
        lambda *args: collect.Collector(*args, keep=1, grace_s=0.0),
    )
    train(TrainerConfig(**CONFIG, shortcut_span=2, collect_span=STEPS), run)
    bucket = Bucket.open((run.workspace / "bucket").as_uri())
    frames = {item.key for item in bucket.objects("frames/")}
    named = set()
    for key in bucket.list("manifests/"):
        manifest = Manifest.parse(unpack(bucket.get(key, limit=MAX_MANIFEST)))
        named |= {frame.key for frame in manifest.frames}
    assert named - frames, "the first steps went"
    outcome(run)


def test_a_collection_that_fails_is_an_event_and_not_the_end_of_the_run(run, monkeypatch):
    def damaged(*_, **__):
        raise RefusedWeights("a manifest is damaged", value="manifests/x", fix="restore it")

    monkeypatch.setattr(collect, "find_garbage", damaged)
    train(TrainerConfig(**CONFIG, collect_span=1), run)
    curve, _, events = outcome(run)
    assert len(curve) == STEPS and events.count("collection.failed") == STEPS
