"""The tables of `tradewind rewards`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tradewind.rewards.ladder.options import LadderOptions
from tradewind.rewards.ladder.rescore import Change, Count, Rescoring
from tradewind.rewards.ladder.rung import Rung, Use
from tradewind.rewards.signal import Kind

CHANGES = 10
"""Changed verdicts that are printed; `--json` has them all."""
COLOURS = {Use.USE: "green", Use.GATE: "cyan", Use.MONITOR: "yellow", Use.REFUSE: "red"}


def rank_table(
    console: Console,
    taskset: str,
    rungs: Sequence[Rung],
    options: LadderOptions,
    answers: Mapping[str, int],
) -> None:
    """The ladder, what was measured about each signal, and the thresholds."""
    table = Table(title=f"signals of {taskset}, most verifiable first", title_style="bold")
    for head in ("signal", "kind", "verdict"):
        table.add_column(head, no_wrap=True)
    table.add_column("usable", justify="right", no_wrap=True)
    table.add_column("measured")
    for rung in rungs:
        table.add_row(
            rung.name,
            str(rung.kind),
            f"[{COLOURS[rung.verdict]}]{rung.verdict}[/]",
            "" if rung.usable is None else f"{rung.usable:.2f}\nat {rung.rate:.0%}",
            "\n".join(_measured(rung)),
        )
    console.print(table)
    for rung in rungs:
        verdict = Text(f"{rung.name}: {rung.verdict}. ", style=COLOURS[rung.verdict])
        verdict.append(_sentence(rung), style="default")
        console.print(verdict, soft_wrap=True)
    counted = ", ".join(f"{n} {name}" for name, n in answers.items())
    console.print(f"measured on {counted}", highlight=False)
    console.print(
        f"thresholds: usable {options.usable:g} or more to be used; a gate turns down at most "
        f"{options.gate_misses:.0%} of what is right; {options.determinism:.0%} of repeats agree "
        f"(judged {options.judged_determinism:.0%}); nulls at most {options.nulls:.0%}; "
        f"{options.evidence} right and wrong answers; an attack passes above {options.chance:.0%}",
        highlight=False,
    )


def _measured(rung: Rung) -> Iterator[str]:
    """A line for each thing that was measured; what could not be is left out."""
    if rung.determinism is not None:
        what = "two people on one answer" if rung.kind is Kind.LABEL else "repeats"
        yield f"{rung.determinism:.0%} of {what} agree"
    if rung.agreement is not None:
        between = ""
        if rung.low is not None and rung.high is not None:
            between = f" ({rung.low:.0%} to {rung.high:.0%})"
        yield f"agreement {rung.agreement:.0%}{between}"
        yield (
            f"kappa {_number(rung.kappa)}, AC1 {_number(rung.ac1)}, base rate "
            f"{_share(rung.base_rate)}"
        )
    if rung.spread is not None:
        right = "" if rung.concordance is None else f", {rung.concordance:.0%} in the right order"
        yield f"tells {rung.spread:.0%} of {rung.groups} groups apart{right}"
    cost = "" if rung.tokens is None else f", {rung.tokens:.0f} tokens"
    cost += f", ${rung.usd:.5f}" if rung.usd else ""
    if rung.seconds is not None:
        yield f"{rung.seconds:.4f} s a score{cost}"
    if rung.attacks:
        yield f"{rung.survived} of {rung.attacks} known attacks survived"


def _sentence(rung: Rung) -> str:
    against = ", ".join(f"{n} {name}" for name, n in rung.compared_with.items())
    nulls = f"; {rung.nulls} of {rung.n} verdicts are null"
    told = nulls if rung.nulls and "verdicts are null" not in rung.reason else ""
    return rung.reason + (f" (held against {against})" if against else "") + told


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def show_rescoring(console: Console, found: Rescoring, number: int | None) -> None:
    """How many verdicts changed, by signal and kind of task, and the first of them."""
    table = Table(title=f"scored again by reward {found.composition}", title_style="bold")
    table.add_column("")
    for head in ("verdicts", "changed", "nulls before", "nulls now"):
        table.add_column(head, justify="right")
    for what, counts in (("signal", found.signals), ("kind", found.kinds)):
        for name, count in counts.items():
            table.add_row(f"{what} {name}", *_count(count))
        table.add_section()
    console.print(table)
    for change in found.changes[:CHANGES]:
        console.print(Text(_change(change)), soft_wrap=True)
    if (more := len(found.changes) - CHANGES) > 0:
        console.print(f"and {more} more; --json has them all")
    for names, what in ((found.new_signals, "new"), (found.gone_signals, "gone")):
        if names:
            console.print(f"{what}: {', '.join(names)}", highlight=False)
    console.print(_rewards(found), highlight=False)
    kept = "nothing was written" if number is None else f"kept as rescoring {number}"
    console.print(f"{kept}; the scores that training used are as they were", highlight=False)


def _count(count: Count) -> tuple[str, ...]:
    share = f" ({count.changed / count.verdicts:.1%})" if count.verdicts else ""
    changed = f"{count.changed}{share}"
    return str(count.verdicts), changed, str(count.nulls_before), str(count.nulls_after)


def _change(change: Change) -> str:
    def said(value: float | None, cause: str | None) -> str:
        number = "null" if value is None else f"{value:g}"
        return number + (f" ({cause})" if cause else "")

    before = said(change.before, change.cause_before)
    after = said(change.after, change.cause_after)
    return f"{change.rollout_id} {change.task_id} {change.signal}: {before} -> {after}"


def _rewards(found: Rescoring) -> str:
    if found.reward_before is None or found.reward_after is None:
        return f"{found.rollouts} rollouts of {found.groups} groups, none with a reward to compare"
    low, high = found.difference or (0.0, 0.0)
    return (
        f"mean reward {found.reward_before:.3f} before, {found.reward_after:.3f} now "
        f"(difference {found.reward_after - found.reward_before:+.3f}, 95 % {low:+.3f} to "
        f"{high:+.3f}); {found.rewards_changed} of {found.rewards} rewards changed"
    )
