"""The whole topology with lines between its processes, and the three ways to hurt it.

worker ──line──► controller ◄──line── pools        controller, gateway, trainer, grader
worker ──line──► gateway    ──line──► each pool        ──a line each──► PostgreSQL, if that is it

With SQLite the ledger is a file of this machine: there is nothing to cut. Nor with the bucket.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from lines import Line, Lines
from sqlalchemy import make_url

from tradewind.http.listening import free_port
from tradewind.ledger.ledger import Ledger
from tradewind.run.prepare import link_model, make_data, read_tasks
from tradewind.run.process import ProcessSpec
from tradewind.run.recipe import Recipe, read_recipe
from tradewind.run.supervisor import Supervisor
from tradewind.run.topology import Topology
from tradewind.run.workspace import Workspace
from tradewind.weights.bucket import Bucket
from tradewind.weights.checkpoint import read_folder
from tradewind.weights.publish import Publisher

HERE = Path(__file__).parent
WRITERS = ("controller", "gateway", "trainer", "grader")
TRAINER, POOLS = "trainer", ("pool-paris", "pool-oregon")
PROCESSES = ("controller", "gateway", *POOLS, TRAINER, "grader", "worker")
RECIPE = """
[run]
name = "chaos"
seed = {seed}
[model]
path = "model"
[env]
entry = "agent:{entry}"
pythonpath = "."
prepare = "{{python}} make_data.py {{data}}"
[tasks]
admit = false
[grader]
signals = [{{ use = "score.py:score" }}]
claim_ttl_s = {patience_s}
ledger = "{ledger}"
poll_s = 0.05
[controller]
group_size = 4
ledger = "{ledger}"
max_running = {concurrency}
lease_ttl_s = {patience_s}
heartbeat_s = 0.5
rollout_deadline_s = 30.0
pool_alive_s = {patience_s}
stall_s = {stall_s}
silent_s = {stall_s}
tick_s = 0.1
[gateway]
ledger = "{ledger}"
pool_alive_s = {patience_s}
pool_silence_s = {patience_s}
pool_connect_s = 0.5
pool_poll_s = 0.2
pool_cooloff_s = 0.5
admission_wait_s = 8.0
[worker]
retry_max_s = 0.5
wait_s = 3.0
concurrency = {concurrency}
[midtrain]
steps = 0
[trainer]
steps = {steps}
groups_per_step = 2
max_staleness = {max_staleness}
lr = {lr}
threads = 1
checkpoint_every = 4
lease_ttl_s = 2.0
poll_s = 0.05
dtype = "fp32"
{pools}
"""
POOL = """
[[pools]]
name = "{name}"
max_batch = {max_batch}
max_tokens = 4096
dtype = "float32"
report_s = 0.3
poll_s = 0.1
port = {port}
url = "http://127.0.0.1:{line}"
"""


@dataclasses.dataclass(frozen=True)
class Setting:
    """What differs between runs."""

    seed: int = 0
    lr: float = 1e-5
    steps: int = 100_000
    stall_s: float = 2.5
    patience_s: float = 3.0
    """After so long without a word a lease, a claim or a pool is given up."""
    max_staleness: int = 2
    concurrency: int = 16
    """Rollouts at the same time."""
    max_batch: int = 16
    """Of each pool."""
    entry: str = "rollout"
    pools: tuple[str, ...] = POOLS
    ledger: str | None = None
    """URL of a database on a server that listens on loopback; None is SQLite in the run's folder.
    The processes reach it by lines."""


class Fleet:
    """Runs in a folder of its own; a context manager."""

    def __init__(self, place: Path, model: Path, setting: Setting) -> None:
        self.setting, self._place, self._model = setting, place, model
        self._lines = Lines()
        self._frozen: set[str] = set()
        self._killed: set[str] = set()
        self.crashes: list[str] = []
        """Ends that nobody caused: process, exit code and its last sentence."""
        self.lost_the_ledger = 0
        """Ends of processes that were cut off from the ledger in the middle of a transaction."""

    def __enter__(self) -> Fleet:
        self._lines.__enter__()
        self._prepare()
        self.ledger = Ledger.open(self._ledger_url)
        self.ledger.set_meta("training_steps", self.setting.steps)
        self.ledger.set_meta("training_open", True)
        self._supervisor = Supervisor(
            self.workspace.folder,
            max_quick_crashes=10**6,
            backoff_s=0.05,
            healthy_s=0.5,
            on_event=self._ended,
        )
        for spec in self._specs():
            self._supervisor.start(spec)
        return self

    def __exit__(self, *_: object) -> None:
        self.heal()
        self._supervisor.stop(grace_s=30.0)  # a busy machine is no crash
        self.ledger.close()
        self._lines.__exit__()

    def _ended(self, name: str, text: str) -> None:
        if name in self._killed and "exit code -9" in text:
            self._killed.discard(name)
        elif (name, "ledger") in self.lines and "the ledger's database" in text:
            self.lost_the_ledger += 1  # in the middle of a transaction: it begins anew, as told
        else:
            self.crashes.append(f"{name}: {text}")

    def _prepare(self) -> None:
        shutil.copytree(HERE / "world", self._place, dirs_exist_ok=True)
        shutil.copy(HERE.parent / "e2e" / "world" / "make_data.py", self._place)
        (self._place / "model").symlink_to(self._model)
        self.lines: dict[tuple[str, str], Line] = {}
        pools = ""
        for name in self.setting.pools:
            port = free_port("127.0.0.1", 0, "pool")
            line = self.lines["gateway", name] = self._lines.to(port)
            told = {"name": name.removeprefix("pool-"), "port": port, "line": line.port}
            pools += POOL.format(max_batch=self.setting.max_batch, **told)
        self.workspace = Workspace(self._place / "runs" / "chaos")
        self._ledger_url = self.setting.ledger or str(self.workspace.ledger)
        if self.setting.ledger is not None:
            port = make_url(self.setting.ledger).port
            for name in WRITERS:
                self.lines[name, "ledger"] = self._lines.to(port)
        told = {**dataclasses.asdict(self.setting), "pools": pools, "ledger": self._ledger_url}
        (self._place / "chaos.toml").write_text(RECIPE.format(**told))
        recipe = read_recipe(self._place / "chaos.toml", (), self._place / "runs")
        self.workspace.folder.mkdir(parents=True)
        make_data(recipe, self.workspace, self._place)
        link_model(self.workspace, self._model)
        self._plan(recipe)
        tasks = read_tasks(self._place / recipe.tasks.path)
        with contextlib.closing(Ledger.open(self._ledger_url, self._real.bucket_url)) as ledger:
            ledger.create_run({"run_id": "chaos", "seed": recipe.run.seed, "name": "chaos"})
            ledger.add_tasks(tasks)
            publisher = Publisher(Bucket.open(self._real.bucket_url), "chaos")
            base = publisher.publish(0, None, {}, read_folder(self._model), "base")
            ledger.commit_version(base)
            publisher.announce(base)

    def _plan(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._real = Topology.plan(recipe, self.workspace, self._place)
        ends = {"controller": self._real.controller_port, "gateway": self._real.gateway_port}
        for client, server in (("worker", "controller"), ("pool", "controller")):
            self.lines[client, server] = self._lines.to(ends[server])
        self.lines["worker", "gateway"] = self._lines.to(ends["gateway"])

    def _seen_by(self, client: str) -> Topology:
        """The same topology, as a process sees it that reaches the others by lines."""
        gateway = self.lines["worker", "gateway"].port
        seen = dataclasses.replace(self._real, gateway_port=gateway)
        if client == "controller":  # it tells workers where the gateway is
            return seen
        return dataclasses.replace(seen, controller_port=self.lines[client, "controller"].port)

    def _ledger_seen_by(self, name: str) -> str:
        line = self.lines.get((name, "ledger"))
        if line is None:
            return self._ledger_url
        return make_url(self._ledger_url).set(host="127.0.0.1", port=line.port).render_as_string()

    def _writer(self, name: str, seen: Topology) -> Topology:
        """A topology as a process sees it that reaches the ledger by a line of its own."""
        section = getattr(seen.recipe, name).model_copy(
            update={"ledger": self._ledger_seen_by(name)}
        )
        return dataclasses.replace(seen, recipe=seen.recipe.model_copy(update={name: section}))

    def _specs(self):
        yield self._writer("controller", self._seen_by("controller"))._controller()
        yield self._writer("gateway", self._real)._gateway()
        for index in range(len(self.setting.pools)):
            yield self._seen_by("pool")._pool(index)
        yield self._writer("grader", self._real)._grader()
        yield self._seen_by("worker")._worker()
        yield self._trainer(self._real)

    def _trainer(self, topology: Topology) -> ProcessSpec:
        spec = topology.trainer("rl")
        place = self._ledger_seen_by("trainer")
        return spec.model_copy(update={"argv": (*spec.argv, "--ledger", place)})

    @property
    def controller_url(self) -> str:
        """The controller, without a line before it."""
        return self._real.controller_url

    def poll(self) -> None:
        """Start again what has ended; call it often."""
        self._supervisor.poll()

    def child(self, name: str):
        """The supervisor's record of a process."""
        return self._supervisor.children[name]

    def restarts(self) -> int:
        """Of all processes together."""
        return sum(self._supervisor.restarts().values())

    def alive(self, name: str) -> bool:
        """Whether a process exists and has been heard of since it started."""
        child = self.child(name)
        if not child.running:
            return False
        started = time.time() - (time.monotonic() - child.started_at)
        beat = name.replace("pool-", "pool ")
        return any(b.process == beat and b.at > started for b in self.ledger.beats())

    def kill(self, name: str) -> None:
        """As a machine that loses its power."""
        self._killed.add(name)
        popen = self.child(name).popen
        os.killpg(popen.pid, signal.SIGKILL)
        popen.wait(10)  # or it would count as alive for the next one

    def freeze(self, name: str) -> None:
        """As a machine that swaps, or a process in a debugger; its connections stay open."""
        os.killpg(self.child(name).popen.pid, signal.SIGSTOP)
        self._frozen.add(name)

    def heal(self) -> None:
        """Thaw what is frozen and join what is cut."""
        for name in self._frozen:
            child = self.child(name)
            if child.popen is not None:
                os.killpg(child.popen.pid, signal.SIGCONT)
        self._frozen.clear()
        for line in self.lines.values():
            line.heal()

    def trainer_config(self) -> dict[str, object]:
        """The trainer's section of the recipe."""
        return self._recipe.trainer.model_dump(mode="json")

    def finish_at(self, steps: int) -> None:
        """Let the run end at so many steps: as if its recipe had said so from the beginning."""
        self._supervisor.stop([TRAINER], grace_s=10.0)
        self.ledger.set_meta("training_steps", steps)
        trainer = self._recipe.trainer.model_copy(update={"steps": steps})
        recipe = self._recipe.model_copy(update={"trainer": trainer})
        self._supervisor.start(self._trainer(dataclasses.replace(self._real, recipe=recipe)))

    def done(self) -> bool:
        """Whether the trainer has ended by itself, with exit code 0."""
        return self._supervisor.done(TRAINER)

    def logs(self, lines: int = 12) -> str:
        """The end of every log."""
        found = sorted(self.workspace.logs.glob("*.log"))
        tails = ((log.name, log.read_text(errors="replace").splitlines()[-lines:]) for log in found)
        return "".join(f"\n== {name}\n" + "\n".join(tail) for name, tail in tails)


def make_model(folder: Path) -> Path:
    """The tiny model, made in a process of its own: this one stays without torch."""
    script = HERE.parent / "e2e" / "tiny_model.py"
    subprocess.run([sys.executable, str(script), str(folder)], check=True)
    return folder
