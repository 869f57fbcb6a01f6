"""A trainer that goes back to an earlier version, once, whenever it dies."""

from __future__ import annotations

import shutil
from contextlib import closing

import pytest

from tradewind.ledger.ledger import Ledger
from tradewind.trainer import checkpoint, share
from tradewind.trainer.config import TrainerConfig
from tradewind.trainer.crew import Crew
from tradewind.trainer.learner import Learner
from tradewind.trainer.lineage import Lineage
from tradewind.trainer.loop import collect, train
from tradewind.trainer.run import Run
from tradewind.trainer.step import Trainer
from tradewind.types import RefusedWeights
from tradewind.types.returned import ReturnOrder
from tradewind.weights.bucket import Bucket
from tradewind.weights.checkpoint import read_folder
from tradewind.weights.follow import Follower
from tradewind.weights.publish import Publisher
from tradewind.weights.state import State

STEPS, PER_STEP, BEFORE = 5, 2, 3
CONFIG = TrainerConfig(
    steps=STEPS,
    groups_per_step=PER_STEP,
    max_staleness=9,
    lr=1e-2,
    checkpoint_every=2,
    lease_ttl_s=1.0,
    poll_s=0.01,
    wait_deadline_s=5.0,
    shortcut_span=0,
    dtype="fp32",
    threads=1,
)
ORDER = ReturnOrder(back_to=1, who="ana", why="it was hacked", at=7.0)


class Crash(Exception):
    pass


@pytest.fixture(scope="module")
def hacked(tiny, tmp_path_factory):
    """Three steps are done; four groups of version 1 and one of version 2 wait to be trained; the
    trainer shall go back to version 1, and go on.
    """
    folder = tmp_path_factory.mktemp("hacked")
    run = Run(workspace=folder, model=tiny.save_model(folder / "model"), run_id="tiny")
    ledger = tiny.fill(folder / "ledger.sqlite", BEFORE * PER_STEP)
    train(CONFIG.model_copy(update={"steps": BEFORE}), run)
    for number, version in ((6, 1), (7, 2), (8, 1), (9, 1), (10, 1)):
        tiny.add_group(ledger, number, version=version)
    ledger.ask_return(ORDER)
    ledger.resume_training(8.0, "ana")
    ledger.close()
    return run


@pytest.fixture
def run(hacked, tmp_path):
    """The same, to be gone on with."""
    folder = shutil.copytree(hacked.workspace, tmp_path / "run")
    return Run(workspace=folder, model=folder / "model", run_id="tiny")


def ledger_of(run):
    return closing(Ledger.open(run.workspace / "ledger.sqlite"))


def pool_of(run):
    """What a pool is that reads the bucket."""
    bucket = Bucket.open((run.workspace / "bucket").as_uri())
    return Follower(bucket, read_folder(run.model), run_id="tiny")


def outcome(run):
    """State id of every version, groups of every step, events; whatever happened, it is sound."""
    with ledger_of(run) as ledger:
        assert ledger.audit() == []
        assert ledger.return_order() is None
        versions, follower = ledger.versions(), pool_of(run)
        assert follower.newest() == versions[-1].version
        assert follower.stage(versions[-1].version).state_id == versions[-1].state_id
        steps = [(step.step, step.version, step.group_ids) for step in ledger.steps()]
        events = [event.kind for event in ledger.events()]
        return [version.state_id for version in versions], steps, events


@pytest.fixture(scope="module")
def undisturbed(hacked, tmp_path_factory):
    folder = shutil.copytree(hacked.workspace, tmp_path_factory.mktemp("undisturbed") / "run")
    run = Run(workspace=folder, model=folder / "model", run_id="tiny")
    train(CONFIG, run)
    return run, *outcome(run)


def test_what_follows_a_return_is_what_a_new_optimiser_makes_of_the_old_weights(undisturbed):
    run, states, steps, events = undisturbed
    assert states[4] == states[1] and len(set(states)) == 6
    assert [version for _, version, _ in steps] == [1, 2, 3, 5, 6]
    assert events.count("trainer.returned") == 1
    pool = pool_of(run)
    for version in range(1, 5):  # it follows the chain, delta by delta
        pool.commit(pool.stage(version))
    assert State.of(4, pool.mirror).state_id == states[1]
    learner = Learner.open(run.model, CONFIG)
    learner.adopt(dict(pool_of(run).stage(1).state.tensors))
    trainer = Trainer(learner, CONFIG)
    with ledger_of(run) as ledger:
        assert [v.stage for v in ledger.versions()] == ["base", *["rl"] * 3, "return", *["rl"] * 2]
        (withdrawn,) = [e for e in ledger.events() if e.kind == "group.rejected"]
        assert "withdrawn: it was sampled across version 2" in withdrawn.detail
        for step in ledger.steps()[BEFORE:]:
            samples, _ = collect(ledger.groups_of_step(step.step))
            trainer.step(samples, version=step.version - 1, number=step.step)
    assert State.of(6, learner.weights()).state_id == states[6]


CRASHES = {
    "before the old weights are fetched": (Lineage, "at", False),
    "with the old weights in memory": (Crew, "adopt", True),
    "with frames that no manifest names": (share, "upload", True),
    "with a manifest that nobody points at": (Publisher, "seal", True),
    "before the commit": (Ledger, "commit_return", False),
    "between commit and announcement": (Ledger, "commit_return", True),
    "after the announcement": (Lineage, "announce", True),
    "before the commit of the first step after it": (Ledger, "commit_step", False),
    "before the first checkpoint after it is whole": (checkpoint, "save", False),
    "after it": (checkpoint, "save", True),
}


@pytest.mark.parametrize(("owner", "name", "after"), CRASHES.values(), ids=CRASHES)
def test_crash_returns_twice_or_never(run, undisturbed, monkeypatch, owner, name, after):
    original = getattr(owner, name)

    def crashing(*args, **kwargs):
        if after:
            original(*args, **kwargs)
        raise Crash

    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(owner, name, crashing)
        train(CONFIG, run)
    train(CONFIG, run)
    _, states, steps, _ = undisturbed
    assert outcome(run)[:2] == (states, steps)
    events = outcome(run)[2]
    assert events.count("trainer.returned") == 1 and "replay.diverged" not in events


def test_an_order_in_the_middle_of_a_step_withdraws_that_step_too(run, monkeypatch):
    """Nothing is trained in the pause that comes with it."""
    step, seen = Crew.step, []
    with ledger_of(run) as ledger:

        def asked(crew, samples, version, number):
            if number == BEFORE:
                ledger.ask_return(ORDER.model_copy(update={"back_to": 2, "at": 9.0}))
            return step(crew, samples, version, number)

        def waiting(self, what, waiting_for, owner):
            if owner == "you":
                seen.append((waiting_for, len(ledger.steps()), ledger.versions()[-1].version))
                ledger.resume_training(10.0, "ana")

        monkeypatch.setattr(Crew, "step", asked)
        monkeypatch.setattr("tradewind.trainer.pulse.Pulse.waiting", waiting)
        train(CONFIG, run)
        assert seen == [("a person: a person has paused training", BEFORE + 1, 6)]
        assert [(made.version, made.back_to) for made in ledger.returns()] == [(4, 1), (6, 2)]
        states = [version.state_id for version in ledger.versions()]
        assert states[6] == states[2] and ledger.audit() == []


def test_a_version_that_is_gone_from_the_bucket_is_refused_and_training_goes_on(run, monkeypatch):
    def gone(lineage, version):
        raise RefusedWeights("frames of it are missing", value=version.version, fix="another one")

    with monkeypatch.context() as patch:
        patch.setattr(Lineage, "at", gone)
        train(CONFIG, run)
    states, _, events = outcome(run)
    assert len(set(states)) == 6 and "trainer.returned" not in events
    assert events.count("return.refused") == 1


def test_an_order_that_comes_with_the_last_step_is_heeded(run):
    last = CONFIG.model_copy(update={"steps": BEFORE})
    for _ in range(2):  # and a trainer that starts again finds nothing to do
        train(last, run)
        states, steps, events = outcome(run)
        assert (len(states), len(steps), events.count("trainer.returned")) == (5, BEFORE, 1)
