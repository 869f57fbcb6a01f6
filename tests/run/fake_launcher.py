"""`tradewind run` with stand-ins for the processes: `python fake_launcher.py run RECIPE ...`."""

from __future__ import annotations

import sys
from pathlib import Path

from tradewind.run import cli
from tradewind.run.process import ProcessSpec
from tradewind.run.topology import Topology

FAKE = str(Path(__file__).with_name("fake_processes.py"))


def serving(self: Topology) -> list[ProcessSpec]:
    argv = (sys.executable, FAKE, "world", str(self.workspace.folder))
    return [ProcessSpec(name="world", argv=argv)]


def trainer(self: Topology, stage: str) -> ProcessSpec:
    steps = self.recipe.midtrain.steps if stage == "midtrain" else self.recipe.trainer.steps
    argv = (sys.executable, FAKE, "trainer", str(self.workspace.folder), stage, str(steps))
    return ProcessSpec(name="trainer", argv=argv, lasting=False)


if __name__ == "__main__":
    Topology.serving = serving  # type: ignore[method-assign]
    Topology.trainer = trainer  # type: ignore[method-assign]
    cli.main()
