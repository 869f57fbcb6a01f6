"""What a run in the storm is told: its recipe, with short leases and deadlines; who is in it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

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
heartbeat_s = 0.3
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
lease_ttl_s = 1.5
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
    patience_s: float = 1.5
    """After so long without a word a lease, a claim or a pool is given up."""
    max_staleness: int = 2
    concurrency: int = 16
    """Rollouts at the same time."""
    max_batch: int = 16
    """Of each pool."""
    entry: str = "rollout"
    pools: tuple[str, ...] = POOLS

    def recipe(self, ledger: str, places: Mapping[str, tuple[int, int]]) -> str:
        """TOML; `places` has each pool's own port and that of the line to it."""
        pools = ""
        for name, (port, line) in places.items():
            told = {"name": name.removeprefix("pool-"), "port": port, "line": line}
            pools += POOL.format(max_batch=self.max_batch, **told)
        return RECIPE.format(**{**dataclasses.asdict(self), "ledger": ledger, "pools": pools})
