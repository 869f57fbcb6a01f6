"""Where an interrupted run goes on: newest checkpoint, then replay of the committed steps.

    base or mid-trained ── step ── step ── ... ── return ── step ── checkpoint ── step ── step
                                                  (begins)          or, if there is one, here

RL begins with the newest version that no step has made. Nothing before it is needed any more: its
weights are in the bucket, its optimiser was new.
"""

from __future__ import annotations

from tradewind.algo.samples import samples_of
from tradewind.ledger.ledger import Ledger
from tradewind.trainer import checkpoint
from tradewind.trainer.crew import Crew
from tradewind.trainer.lineage import Lineage
from tradewind.trainer.pulse import Pulse
from tradewind.types import Step, WeightVersion
from tradewind.weights.digest import root

STAGE = "rl"


def restore(crew: Crew, ledger: Ledger, lineage: Lineage, pulse: Pulse) -> int:
    """Bring model and moments to the last committed step; returns the number of the next one.

    A checkpoint that is ahead of the ledger belongs to a step that was never committed and is
    deleted; one from before a return is not looked at. Steps after the checkpoint are trained again
    from the groups that they consumed; each must reproduce the state id that was published. If one
    does not (another machine, another library), the published weights are taken over and an event
    says so: pools serve those.
    """
    last = ledger.last_step()
    done = 0 if last is None else last.step + 1
    checkpoint.discard(crew.checkpoints, STAGE, above=done)
    versions = {version.version: version for version in ledger.versions()}
    steps = ledger.steps()
    begins = max(number for number, version in versions.items() if version.stage != STAGE)
    before = sum(step.version < begins for step in steps)
    saved = [number for number in checkpoint.found(crew.checkpoints, STAGE) if number > before]
    if saved:
        crew.load(STAGE, saved[-1])
    else:
        crew.adopt(dict(lineage.at(versions[begins])), afresh=True)
    for step in steps[saved[-1] if saved else before :]:
        pulse.doing(f"replay step {step.step}")
        _replay(crew, ledger, step)
        _compare(crew, lineage, pulse, versions[step.version])
    if saved and saved[-1] == done:
        _compare(crew, lineage, pulse, versions[last.version] if last else lineage.version)
    lineage.resume(crew.begin(lineage.twins(crew.names)), crew.tensors())
    return done


def _replay(crew: Crew, ledger: Ledger, step: Step) -> None:
    samples = [s for group in ledger.groups_of_step(step.step) for s in samples_of(group).samples]
    crew.step(samples, step.version - 1, step.step)


def _compare(crew: Crew, lineage: Lineage, pulse: Pulse, version: WeightVersion) -> None:
    """The weights in memory are those of `version`, or become them."""
    reached = root(crew.begin(lineage.twins(crew.names)))
    if reached == version.state_id:
        return
    differed = crew.adopt(dict(lineage.at(version)))
    pulse.event(
        "replay.diverged",
        f"version {version.version}",
        f"the replay reached {reached}, published is {version.state_id}; the published weights "
        f"were taken over ({differed} values differed)",
    )
