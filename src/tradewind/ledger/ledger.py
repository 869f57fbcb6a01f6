"""The ledger, in one class: every method is one transaction.

    run         create_run, add_tasks, request_eval      run.py, evals.py
    controller  open, refill, close, lease, finish       groups.py, draws.py, rollouts.py, pools.py
                tenants and their quotas, nulls by task  tenants.py, nulls.py
                what alarms look at, pauses              windows.py, pauses.py
                tasks that are set aside                 aside.py
    gateway     session, intent, completion              turns.py
                what users waited for                    user_chats.py
    grader      claim_finished, write_scores             scores.py
    rewards     stored groups, scores they got later     stored.py
                which composition is in use              compositions.py
                judges, probes, labels, standings        trust.py
    trainer     claimable, commit_step                   steps.py
                an earlier version's weights again       returns.py
    everybody   beat, event, counts, audit               events.py, status.py, audit.py
    operators   payloads that nothing needs              collect.py

A process killed between any two calls leaves a state from which the next one goes on: what is
in flight is held by a lease or claim that runs out, what is due (refill, close, re-queue) is
derived from what is there.
"""

from __future__ import annotations

from tradewind.ledger.aside import Aside
from tradewind.ledger.audit import Audit
from tradewind.ledger.collect import Collection
from tradewind.ledger.compositions import Compositions
from tradewind.ledger.evals import Evals
from tradewind.ledger.events import Observations
from tradewind.ledger.groups import Groups
from tradewind.ledger.nulls import Nulls
from tradewind.ledger.pauses import Pauses
from tradewind.ledger.pools import Pools
from tradewind.ledger.returns import Returns
from tradewind.ledger.rollouts import Rollouts
from tradewind.ledger.run import RunRecords
from tradewind.ledger.scores import Scores
from tradewind.ledger.status import Status
from tradewind.ledger.steps import Steps
from tradewind.ledger.stored import Stored
from tradewind.ledger.tenants import Tenants
from tradewind.ledger.trust import Trust
from tradewind.ledger.turns import Turns
from tradewind.ledger.user_chats import UserChats
from tradewind.ledger.windows import Windows


class Ledger(
    RunRecords,
    Groups,
    Rollouts,
    Tenants,
    Turns,
    UserChats,
    Compositions,
    Scores,
    Stored,
    Steps,
    Returns,
    Pools,
    Evals,
    Observations,
    Status,
    Nulls,
    Aside,
    Trust,
    Windows,
    Pauses,
    Audit,
    Collection,
):
    """`Ledger.open(url_or_path)`; share it between threads, open it anew in each process."""
