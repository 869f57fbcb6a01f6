"""One arm of a run, from the base checkpoint to its last evaluation.

consumes     recipe, model folder, data
produces     a ledger and a bucket with the arm's history, stages.json, waits.json
waits for    its own processes; each wait has a deadline and names its owner
unblocked by rows in the ledger: results of an evaluation, steps, the trainer's end
"""

from __future__ import annotations

import time
from pathlib import Path

from tradewind.ledger.ledger import Ledger
from tradewind.rewards.admission.record import register_file
from tradewind.run.admission import admitted_tasks
from tradewind.run.interruption import Interruption
from tradewind.run.judged import judge_notes
from tradewind.run.live import View
from tradewind.run.prepare import link_model, open_run, publish_base, read_tasks
from tradewind.run.process import end_stale
from tradewind.run.recipe import Recipe
from tradewind.run.report import duration, rate_words
from tradewind.run.stages import Stages
from tradewind.run.supervisor import Supervisor
from tradewind.run.topology import Topology
from tradewind.run.watch import Watch
from tradewind.run.workspace import Workspace
from tradewind.types import PoolState, Task

MAIN_STAGES = ("base", "eval-base", "midtrain", "eval-midtrained", "rl", "eval-rl")
CONTROL_STAGES = ("base", "rl", "eval-control")
_STALL_SLACK_S = 60.0
"""The trainer itself gives up first and knows better why."""


class Arm:
    """Plays the stages that are not done yet; `play` is all that a caller needs."""

    def __init__(
        self, name: str, recipe: Recipe, workspace: Workspace, folder: Path, view: View
    ) -> None:
        self._name, self._recipe, self._workspace = name, recipe, workspace
        self._folder, self._view = folder, view
        names: tuple[str, ...] = CONTROL_STAGES if name == "control" else MAIN_STAGES
        if not recipe.midtrain.steps:
            names = tuple(n for n in names if n not in ("midtrain", "eval-midtrained"))
        planned = {"midtrain": recipe.midtrain.steps, "rl": recipe.trainer.steps}
        self._order = names
        self.stages = Stages(workspace.stages, name, names, planned)

    def play(self, model: Path, interruption: Interruption) -> None:
        """Play what is left; raises UserError, Stalled or ProcessFailed, and can be called again
        after any interruption.
        """
        if self.stages.finished():
            return
        for name in end_stale(self._workspace.folder / "pids"):
            self._view.say(f"ended the {name} that an earlier launcher left behind")
        topology = Topology.plan(self._recipe, self._workspace, self._folder)
        with self._base(topology, model) as ledger, self._supervisor() as processes:
            watch = Watch(self._workspace, self.stages, processes, self._view, interruption)
            for spec in topology.serving():
                processes.start(spec)
            ready = False
            for stage in self._order[1:]:
                with self.stages.run(stage) as work:
                    if not work:
                        continue
                    if not ready:
                        self._await_pools(stage, ledger, watch)
                        if users := topology.users():
                            processes.start(users)
                        ready = True
                    if stage.startswith("eval-"):
                        self._evaluate(stage, ledger, watch)
                    else:
                        self._train(stage, topology, ledger, processes, watch)
            processes.stop(["users"])  # first, so that nobody is cut off by the gateway's end

    def _supervisor(self) -> Supervisor:
        return Supervisor(
            self._workspace.folder,
            max_quick_crashes=self._recipe.launch.max_quick_crashes,
            on_event=lambda name, text: self._view.say(f"{name}: {text}", process=name),
        )

    def _base(self, topology: Topology, model: Path) -> Ledger:
        """Ledger, tasks and version 0."""
        with self.stages.run("base") as work:
            if work:
                link_model(self._workspace, model)
                tasks = self._open()
                publish_base(self._workspace, model, topology.bucket_url, self._run_id)
                heldout = sum(task.split == "heldout" for task in tasks)
                self._view.say(
                    f"{self._name}: {len(tasks) - heldout} training tasks, {heldout} held out"
                )
        return Ledger.open(self._workspace.ledger)

    def _open(self) -> list[Task]:
        """The ledger with the tasks that may be drawn; the main arm says which may not."""
        taskset = self._folder / self._recipe.tasks.path
        found = admitted_tasks(self._recipe, taskset, read_tasks(taskset), self._folder)
        left_out = found.sentence()
        if self._name == "main" and left_out is not None:
            self._view.say(f"{left_out}; all are in {register_file(taskset)}")
        for note in judge_notes(self._recipe.grader) if self._name == "main" else ():
            self._view.say(note)
        open_run(self._recipe, self._workspace, found.tasks, self._run_id, left_out)
        return found.tasks

    @property
    def _run_id(self) -> str:
        return f"{self._recipe.run.name}-{self._name}"

    def _await_pools(self, stage: str, ledger: Ledger, watch: Watch) -> None:
        """Until every pool of the recipe has said that it serves."""
        began, names = time.time(), {pool.name for pool in self._recipe.pools}

        def serving() -> set[str]:
            reports = ledger.pools(since=began)
            return names & {r.pool for r in reports if r.state is not PoolState.STARTING}

        watch.until(lambda: serving() == names, stage, serving, self._recipe.launch.start_timeout_s)

    def _evaluate(self, stage: str, ledger: Ledger, watch: Watch) -> None:
        """Greedy, over the held-out tasks, by the newest version."""
        name = stage.removeprefix("eval-")
        if name not in ledger.evals():
            newest = ledger.counts().version
            ledger.request_eval(name, newest, limit=self._recipe.eval.limit)
        watch.until(
            lambda: ledger.eval_result(name).finished,
            stage,
            lambda: ledger.eval_result(name).done,
            self._recipe.eval.stall_s,
        )
        result = ledger.eval_result(name)
        self._view.say(
            f"held-out {name}: {rate_words(result.overall)} of {result.overall.n}"
            f" (kinds never seen in training: {rate_words(result.kinds_unseen)})",
            heldout=name,
            **result.overall.model_dump(),
        )

    def _train(
        self, stage: str, topology: Topology, ledger: Ledger, processes: Supervisor, watch: Watch
    ) -> None:
        """Run the trainer until it is done; training groups are open meanwhile in RL only."""
        if stage == "rl":
            ledger.set_meta("training_steps", self._recipe.trainer.steps)
            ledger.set_meta("training_open", True)
        processes.start(topology.trainer(stage))
        watch.until(
            lambda: processes.done("trainer"),
            stage,
            lambda: tuple((beat.doing, beat.since) for beat in ledger.beats()),
            self._recipe.trainer.wait_deadline_s + _STALL_SLACK_S,
        )
        if stage == "rl":
            ledger.set_meta("training_open", False)
        processes.stop(["trainer"])
        self._view.say(f"{self._name}: {stage} took {duration(self.stages.seconds()[stage])}")
