"""The whole topology with lines between its processes, and the ways to hurt it.

worker ──line──► controller ◄──line── pools        controller, gateway, trainer, grader
worker ──line──► gateway    ──line──► each pool        ──a line each──► PostgreSQL, if that is it

With SQLite the ledger is a file of this machine: it can be locked, and there is nothing to cut. Nor
with the bucket.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import signal
import time
from pathlib import Path

from database import LEDGER, File, Served
from lines import Line, Lines
from setting import PROCESSES, TRAINER, WRITERS, Setting
from sqlalchemy import make_url
from warm import Warm, apply

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


class Fleet:
    """Runs in a folder of its own; a context manager."""

    def __init__(
        self, place: Path, model: Path, setting: Setting, server: Served | None = None
    ) -> None:
        self.setting, self._place, self._model = setting, place, model
        self.workspace = Workspace(place / "runs" / "chaos")
        self._database = server or File(self.workspace.ledger)
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
        self.ledger = Ledger.open(self._database.url)
        self.ledger.set_meta("training_steps", self.setting.steps)
        self.ledger.set_meta("training_open", True)
        self._supervisor = Supervisor(
            self.workspace.folder,
            max_quick_crashes=10**6,
            backoff_s=0.05,
            healthy_s=0.1,
            on_event=self._ended,
            opens=Warm,
        )
        for spec in self._specs():
            self._supervisor.start(spec)
        return self

    def __exit__(self, *_: object) -> None:
        for _, victim in self.kinds():
            self.heal(victim)
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
        places: dict[str, tuple[int, int]] = {}
        for name in self.setting.pools:
            port = free_port("127.0.0.1", 0, "pool")
            line = self.lines["gateway", name] = self._lines.to(port)
            places[name] = port, line.port
        if isinstance(self._database, Served):
            port = make_url(self._database.url).port
            for name in WRITERS:
                self.lines[name, "ledger"] = self._lines.to(port)
        told = self.setting.recipe(self._database.url, places)
        (self._place / "chaos.toml").write_text(told)
        recipe = read_recipe(self._place / "chaos.toml", (), self._place / "runs")
        self.workspace.folder.mkdir(parents=True)
        make_data(recipe, self.workspace, self._place)
        link_model(self.workspace, self._model)
        self._plan(recipe)
        tasks = read_tasks(self._place / recipe.tasks.path)
        with contextlib.closing(Ledger.open(self._database.url, self._real.bucket_url)) as ledger:
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
            return self._database.url
        return make_url(self._database.url).set(host="127.0.0.1", port=line.port).render_as_string()

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

    def kinds(self) -> list[tuple[str, str]]:
        """Every fault with everything that can suffer it."""
        lines = [" to ".join(ends) for ends in self.lines]
        return [
            *((fault, name) for fault in ("kill", "freeze") for name in PROCESSES),
            *((fault, line) for fault in ("cut", "swallow") for line in lines),
            (self._database.fault, LEDGER),
        ]

    def poll(self) -> None:
        """Start again what has ended; call it often."""
        self._supervisor.poll()

    def child(self, name: str):
        """The supervisor's record of a process."""
        return self._supervisor.children[name]

    def alive(self, name: str) -> bool:
        """Whether a process exists and has been heard of since it started."""
        child = self.child(name)
        if not child.running:
            return False
        started = time.time() - (time.monotonic() - child.started_at)
        beat = name.replace("pool-", "pool ")
        return any(b.process == beat and b.at > started for b in self.ledger.beats())

    def hurt(self, fault: str, victim: str) -> None:
        """`kill` or `freeze` a process, `cut` or `swallow` the line "client to server"; `lock` or
        `crash` the ledger's database."""
        if victim == LEDGER:
            self._database.hurt()
        elif fault == "kill":
            self._kill(victim)
        elif fault == "freeze":
            os.killpg(self.child(victim).popen.pid, signal.SIGSTOP)
            self._frozen.add(victim)
        else:
            getattr(self._line(victim), fault)()

    def heal(self, victim: str) -> None:
        """Thaw what is frozen, join what is cut; what was killed starts again by itself."""
        if victim == LEDGER:
            self._database.heal()
        elif " to " in victim:
            self._line(victim).heal()
        elif victim in self._frozen:
            self._frozen.discard(victim)
            os.killpg(self.child(victim).popen.pid, signal.SIGCONT)

    def _line(self, name: str) -> Line:
        client, server = name.split(" to ")
        return self.lines[client, server]

    def _kill(self, name: str) -> None:
        """As a machine that loses its power."""
        self._killed.add(name)
        popen = self.child(name).popen
        os.killpg(popen.pid, signal.SIGKILL)
        popen.wait(10)  # or it would count as alive for the next one

    @property
    def bucket(self) -> str:
        """Its address."""
        return self._real.bucket_url

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
    apply(HERE.parent / "e2e" / "tiny_model.py", "make_model", folder)
    return folder
