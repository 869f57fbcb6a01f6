"""The figures of a run, by their dotted names.

Each figure stands in `results.json` under its dotted name (`"heldout.rl"`) and, for tools that
walk paths, nested (`results["heldout"]["rl"]`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tradewind.ledger.ledger import Ledger
from tradewind.ledger.user_chats import USER_LEFT
from tradewind.run.readings import (
    delivered_share,
    mixed_share,
    quantile,
    read_steps,
    rollouts_trained,
    token_ages,
)

Figures = dict[str, Any]


def main_figures(ledger: Ledger, seconds: Mapping[str, float]) -> Figures:
    """Figures of the main arm; `seconds` are those of its stages."""
    figures = heldout_figures(ledger, ("base", "midtrained", "rl"))
    figures |= {f"seconds.{stage}": round(value, 2) for stage, value in seconds.items()}
    shipped = [v for v in ledger.versions() if v.version > 0]
    figures["weights.bytes_shipped"] = sum(v.bytes_shipped for v in shipped)
    figures["weights.bytes_full"] = sum(v.bytes_full for v in shipped)
    figures["weights.versions"] = len(shipped)
    pauses = [a.pause_ms for a in ledger.attestations() if a.version > 0]
    figures["weights.pause_ms_p99"] = quantile(pauses, 0.99)
    figures |= user_figures(ledger)
    figures["rollouts.total"] = sum(ledger.counts().rollouts.values())
    with ledger.read() as conn:
        steps = read_steps(conn)
        stale = [s for step in steps for s in step.staleness]
        figures["rollouts.trained"] = rollouts_trained(conn)
        figures["tokens.delivered_share"] = delivered_share(conn)
        figures["groups.mixed_share"], figures["groups.graded"] = mixed_share(conn)
    figures["staleness.max"] = max(stale, default=0)
    figures["staleness.tokens"] = {str(age): n for age, n in token_ages(steps).items()}
    figures["staleness.mean"] = sum(stale) / len(stale) if stale else 0.0
    figures["steps.rl"] = len(ledger.steps())
    figures["tasks.set_aside"] = ledger.set_aside()
    figures["returns"] = [made.model_dump() for made in ledger.returns()]
    return figures


def control_figures(ledger: Ledger, seconds: Mapping[str, float]) -> Figures:
    """Figures of the control arm."""
    figures = heldout_figures(ledger, ("control",))
    with ledger.read() as conn:
        share, n = mixed_share(conn)
    figures |= {"control.mixed_share": share, "control.graded": n}
    figures["steps.control"] = len(ledger.steps())
    figures["seconds.control"] = round(sum(seconds.values()), 2)
    return figures


def heldout_figures(ledger: Ledger, names: tuple[str, ...]) -> Figures:
    """`heldout.<name>` and apart `.seen` and `.unseen`, for the evaluations that are finished."""
    figures: Figures = {}
    for name in set(names) & set(ledger.evals()):
        result = ledger.eval_result(name)
        if result.finished:
            figures[f"heldout.{name}"] = result.overall.model_dump()
            figures[f"heldout.{name}.seen"] = result.kinds_seen.model_dump()
            figures[f"heldout.{name}.unseen"] = result.kinds_unseen.model_dump()
    return figures


def user_figures(ledger: Ledger) -> Figures:
    """Latency of user chats in ms; a chat that failed counts as an error, not as a time, and one
    that its user left counts as neither.
    """
    chats = ledger.user_chats()
    times = [chat.ttft_s * 1e3 for chat in chats if chat.ttft_s is not None and not chat.error]
    return {
        "users.chats": len(chats),
        "users.errors": sum(chat.error not in (None, USER_LEFT) for chat in chats),
        "users.ttft_ms_p50": quantile(times, 0.50),
        "users.ttft_ms_p99": quantile(times, 0.99),
    }


def nested(figures: Mapping[str, Any]) -> dict[str, Any]:
    """`{"a.b": 1}` as `{"a": {"b": 1}}`.

    A name that is also the prefix of another must hold a dict: `heldout.rl` and `heldout.rl.seen`
    share one, which then has the keys of both.
    """
    tree: dict[str, Any] = {}
    for name in sorted(figures):
        *parents, leaf = name.split(".")
        at = tree
        for parent in parents:
            at = at.setdefault(parent, {})
            assert isinstance(at, dict), f"{name} lies below a plain figure"
        value = figures[name]
        at[leaf] = dict(value) if isinstance(value, dict) else value
    return tree


def results_document(figures: Mapping[str, Any]) -> dict[str, Any]:
    """What `results.json` holds."""
    return {**nested(figures), **figures}
