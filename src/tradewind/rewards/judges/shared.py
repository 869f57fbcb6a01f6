"""One judge per endpoint and process, whatever number of signals and threads ask it.

Slots, rate, budget and store belong to the endpoint: a grader with eight threads and six criteria
opens 48 signals and must not have 48 queues.
"""

from __future__ import annotations

import threading

from tradewind.rewards.judges.endpoint import Endpoint
from tradewind.rewards.judges.judge import Judge
from tradewind.rewards.judges.options import JudgeOptions
from tradewind.rewards.judges.store import Store

_OF_A_CRITERION = {"criteria", "criterion"}

_guard = threading.Lock()
_open: dict[str, tuple[Judge, int]] = {}


def open_judge(options: JudgeOptions) -> Judge:
    """The judge of these options, criterion apart; give it back with `give_back`.

    Raises `UserError` if the endpoint, its key or its store cannot be used.
    """
    name = _name(options)
    with _guard:
        judge, users = _open.get(name) or (_new(options), 0)
        _open[name] = (judge, users + 1)
        return judge


def give_back(options: JudgeOptions) -> None:
    """The last one to give a judge back closes it."""
    name = _name(options)
    with _guard:
        judge, users = _open.pop(name)
        if users > 1:
            _open[name] = (judge, users - 1)
        else:
            judge.close()


def _new(options: JudgeOptions) -> Judge:
    store = Store(options.store)
    return Judge(options, Endpoint(options, store), store)


def _name(options: JudgeOptions) -> str:
    return options.model_dump_json(exclude=_OF_A_CRITERION)
