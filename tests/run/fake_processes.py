"""Stand-ins for the processes of an arm: they write into the ledger what real ones would.

python fake_processes.py world WORKSPACE      answers every evaluation that is asked for
python fake_processes.py trainer WORKSPACE STAGE STEPS
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from sqlalchemy import insert, select

sys.path.insert(0, str(Path(__file__).parent))

from synthetic import report, version, write_group

from tradewind.ledger import tables as t
from tradewind.ledger.ledger import Ledger
from tradewind.types import Split


def world(workspace: Path) -> None:
    ledger = Ledger.open(workspace / "ledger.sqlite")
    with ledger.read() as conn:
        number = max([1000, *conn.execute(select(t.groups.c.number)).scalars()])
    while True:
        for pool in ("paris", "oregon"):
            ledger.record_pool(report().model_copy(update={"pool": pool, "attestations": ()}))
        for name in ledger.evals():
            if ledger.eval_result(name).finished:
                continue
            with ledger.write() as conn:
                conn.execute(t.evals.update().where(t.evals.c.name == name).values(opened=True))
            for task in ledger.tasks(Split.HELDOUT):
                number += 1
                write_group(ledger, number, task.task_id, [1.0], eval_name=name)
        time.sleep(0.05)


def publish(ledger: Ledger) -> int:
    newest = ledger.versions()[-1]
    update = {"parent_state_id": newest.state_id}
    ledger.commit_version(version(newest.version + 1).model_copy(update=update))
    return newest.version + 1


def trainer(workspace: Path, stage: str, steps: int) -> None:
    """Does `steps` steps, one file each; `hold` in the workspace keeps it from ending."""
    ledger = Ledger.open(workspace / "ledger.sqlite")
    (workspace / f"began-{stage}").touch()
    while (workspace / "hold").exists():
        time.sleep(0.02)
    if stage == "midtrain":
        publish(ledger)
        ledger.set_meta("midtrain_step", steps)
        ledger.set_meta("midtrain_heldout", [[0, 3.0], [steps, 1.0]])
        return
    for step in range(len(ledger.steps()), steps):
        newest = publish(ledger)
        with ledger.write() as conn:
            row = {"step": step, "version": newest, "metrics": {}, "seconds": 1.0}
            conn.execute(insert(t.steps).values(committed_at=time.time(), **row))


if __name__ == "__main__":
    if sys.argv[1] == "world":
        world(Path(sys.argv[2]))
    else:
        trainer(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
