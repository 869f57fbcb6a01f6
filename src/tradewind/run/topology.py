"""Which processes an arm has, how each is started, and who is told which key and address."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel

from tradewind.http.listening import free_port
from tradewind.ledger.keys import mint
from tradewind.run.prepare import environment, judge_keys, python_path, write_config
from tradewind.run.process import ProcessSpec, database_password
from tradewind.run.recipe import Recipe
from tradewind.run.workspace import Workspace
from tradewind.weights.signing import VARIABLE as SIGNING_KEY
from tradewind.weights.signing import Signer


@dataclass(frozen=True)
class Keys:
    """Secrets of one launch; they live in environments of processes and nowhere on disk."""

    pool: str = field(default_factory=lambda: mint("pool"))
    worker: str = field(default_factory=lambda: mint("worker"))
    admin: str = field(default_factory=lambda: mint("admin"))
    user: str = field(default_factory=lambda: mint("user"))
    signing: str | None = field(default_factory=lambda: os.environ.get(SIGNING_KEY))
    """The operator's, if there is one: the trainer signs with it, and the pools of this launch
    trust nobody else."""


@dataclass(frozen=True)
class Topology:
    """The processes of one arm on this machine."""

    recipe: Recipe
    workspace: Workspace
    folder: Path
    """Of the recipe; every process works there."""
    controller_port: int
    gateway_port: int
    keys: Keys = field(default_factory=Keys)

    @classmethod
    def plan(cls, recipe: Recipe, workspace: Workspace, folder: Path) -> Topology:
        """Choose ports: those that the recipe sets, otherwise free ones."""
        host, ports = recipe.launch.host, []
        for name, config in (("controller", recipe.controller), ("gateway", recipe.gateway)):
            wanted = config.port if "port" in config.model_fields_set else 0
            ports.append(free_port(host, wanted, name))
        controller, gateway = ports
        return cls(recipe, workspace, folder, controller, gateway)

    @property
    def controller_url(self) -> str:
        """Where pools and workers report."""
        return f"http://{self.recipe.launch.host}:{self.controller_port}"

    @property
    def gateway_url(self) -> str:
        """Base URL for OpenAI clients."""
        return f"http://{self.recipe.launch.host}:{self.gateway_port}/v1"

    @property
    def bucket_url(self) -> str:
        """Where weights meet."""
        return self.workspace.bucket.absolute().as_uri()

    def serving(self) -> list[ProcessSpec]:
        """All lasting processes but trainer and users, in the order of their start."""
        pools = [self._pool(index) for index in range(len(self.recipe.pools))]
        return [self._controller(), self._gateway(), *pools, self._grader(), self._worker()]

    def trainer(self, stage: str) -> ProcessSpec:
        """The trainer in stage `midtrain` or `rl`; it ends by itself."""
        recipe = self.recipe
        section = recipe.midtrain if stage == "midtrain" else recipe.trainer
        arguments = ["--stage", stage, "--bucket", self.bucket_url]
        if stage == "midtrain" or recipe.trainer.rehearsal_rows:
            arguments += ["--corpus", str(self.folder / recipe.corpus.path)]
        spec = self._process("trainer", section, arguments, threads=section.threads)
        env = TRAINER_MEMORY | HUGE_PAGES | spec.env | database_password()
        if self.keys.signing:
            env |= {SIGNING_KEY: self.keys.signing}
        return spec.model_copy(update={"lasting": False, "env": env})

    def _controller(self) -> ProcessSpec:
        config = self.recipe.controller.model_copy(
            update={
                "host": self.recipe.launch.host,
                "port": self.controller_port,
                "gateway_url": self.gateway_url,
                "model": self.recipe.gateway.model,
            }
        )
        keys = {
            "TRADEWIND_POOL_KEY": self.keys.pool,
            "TRADEWIND_WORKER_KEY": self.keys.worker,
            "TRADEWIND_ADMIN_KEY": self.keys.admin,
        }
        return self._process("controller", config, env=keys | database_password())

    def _gateway(self) -> ProcessSpec:
        config = self.recipe.gateway.model_copy(
            update={"host": self.recipe.launch.host, "port": self.gateway_port}
        )
        keys = {"TRADEWIND_POOL_KEY": self.keys.pool, "TRADEWIND_USER_KEY": self.keys.user}
        return self._process("gateway", config, env=keys | database_password())

    def _pool(self, index: int) -> ProcessSpec:
        config = self.recipe.pools[index].model_copy(
            update={"bucket": self.bucket_url, "controller": self.controller_url}
        )
        if self.keys.signing and not config.trust:
            trust = (Signer(self.keys.signing).public,)
            config = config.model_copy(update={"trust": trust})
        env = HUGE_PAGES | {"TRADEWIND_POOL_KEY": self.keys.pool}
        return self._process(f"pool-{config.name}", config, env=env, threads=config.threads)

    def _grader(self) -> ProcessSpec:
        return self._process("grader", self.recipe.grader, env=database_password())

    def _worker(self) -> ProcessSpec:
        return self._process(
            "worker",
            self.recipe.worker,
            ["--join", self.controller_url, "--entry", self.recipe.env.entry],
            {"TRADEWIND_WORKER_KEY": self.keys.worker, **environment(self.recipe, self.folder)},
        )

    def users(self) -> ProcessSpec | None:
        """The product's own users; None if the recipe has none."""
        command = self.recipe.users.command
        if command is None:
            return None
        places = {
            "{base_url}": self.gateway_url,
            "{model}": self.recipe.gateway.model,
            "{rate}": f"{1 / self.recipe.users.interval_s:g}",
        }
        for place, text in places.items():
            command = command.replace(place, text)
        env = {"OPENAI_API_KEY": self.keys.user, **environment(self.recipe, self.folder)}
        return ProcessSpec(
            name="users",
            argv=tuple(shlex.split(command)),
            env=env,
            hidden=judge_keys(self.recipe),
            cwd=str(self.folder),
        )

    def _process(
        self,
        name: str,
        config: BaseModel,
        arguments: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        threads: int = 1,
    ) -> ProcessSpec:
        """`pool-paris` is started by the part `pool`."""
        file = write_config(self.workspace, name, config.model_dump(mode="json"))
        part = name.partition("-")[0]
        argv = [sys.executable, "-m", f"tradewind.{part}", "--config", str(file)]
        argv += ["--workspace", str(self.workspace.folder.absolute()), *arguments]
        return ProcessSpec(
            name=name,
            argv=tuple(argv),
            env={**_process_environment(threads), **(env or {})},
            hidden=() if part == "grader" else judge_keys(self.recipe),
            cwd=str(self.folder),
        )


TRAINER_MEMORY = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(64 * 2**30),
    "MALLOC_TOP_PAD_": str(256 * 2**20),
}
"""glibc keeps the memory of freed tensors: giving it back and faulting it in again cost a training
step a tenth of its time. A pool would only grow: what it frees has many sizes."""


HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""Weights and keys lie in pages of 2 MB where Linux has them for the asking: a step reads all of
them once, and decoding and training spent a tenth of their time on small pages."""


def _process_environment(threads: int) -> dict[str, str]:
    """Settings that libraries read once, at their start.

    Waiting OpenMP threads must sleep: spinning ones take the cores of the other processes. But
    not at once, since a training step has thousands of short parallel regions: a little spinning
    made it a fifth faster. 10,000 spins take 0.2 ms (a pause of an AMD EPYC is 23 ns); twenty times
    as many doubled an asynchronous step on two cores.
    """
    env = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "10000"}
    env |= {"TOKENIZERS_PARALLELISM": "false"}
    env |= {"TQDM_DISABLE": "1", **python_path()}  # a log is no place for progress bars
    if threads:
        env |= {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    return env
