"""`report.html`: one self-contained page to look at, and `heldout.svg` for a README."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from string import Template
from typing import Any

from tradewind.ledger.evals import PassRate
from tradewind.ledger.user_chats import UserChat
from tradewind.rewards.trust.curve import CurvePoint
from tradewind.run import charts
from tradewind.run.components import ComponentReading
from tradewind.run.judged import judged_chart
from tradewind.run.readings import StepReading
from tradewind.types import Attestation, WeightVersion
from tradewind.types.returned import Return

COLOURS = """
--ink:#1d2330;--muted:#667085;--soft:#9aa3b2;--grid:#e6e9ef;--surface:#ffffff;--page:#f6f7f9;
--a:#1f6feb;--b:#c2570c;--good:#17803d;
"""
DARK_COLOURS = """
--ink:#e8ebf1;--muted:#98a2b3;--soft:#7b8496;--grid:#2b3240;--surface:#171b24;--page:#0f1219;
--a:#6ea8fe;--b:#f0a35e;--good:#5bd08a;
"""
SVG_RULES = """
text{fill:var(--ink)} .tick,.muted{fill:var(--muted);font-size:11px} .name{fill:var(--ink)}
.value{font-weight:650;font-size:15px} .grid{stroke:var(--grid)} .axis{stroke:var(--soft)}
.rule{stroke:var(--muted);stroke-dasharray:4 4} .on{fill:var(--surface);font-size:11px}
"""


@dataclass(frozen=True)
class ReportData:
    """All that the page shows."""

    name: str
    figures: Mapping[str, Any]
    rates: Mapping[str, Mapping[str, PassRate]]
    """Per arm (`base`, `midtrained`, `rl`, `control`): `all`, `seen`, `unseen`."""
    steps: Sequence[StepReading] = ()
    control_steps: Sequence[StepReading] = ()
    components: Sequence[ComponentReading] = ()
    """Of the main arm's reward, step by step."""
    judged: Mapping[str, Sequence[CurvePoint]] = field(default_factory=dict)
    """What judges said of trained rollouts, and what labels make of it."""
    losses: Sequence[tuple[int, float]] = ()
    """Mid-training step and held-out loss in nats per token."""
    versions: Sequence[WeightVersion] = ()
    swaps: Sequence[Attestation] = ()
    chats: Sequence[UserChat] = ()
    stages: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Stage: start and end in Unix seconds."""
    waits: Sequence[tuple[str, str, float]] = ()
    """Process, reason, seconds."""
    max_staleness: int | None = None
    returns: Sequence[Return] = ()
    """Each time that the trainer went back to an earlier version."""


def page(data: ReportData) -> str:
    """The whole HTML document; needs no network."""
    cards = "".join(_card(*card) for card in _cards(data))
    return Template(_PAGE).substitute(
        title=escape(data.name),
        colours=COLOURS,
        dark=DARK_COLOURS,
        svg=SVG_RULES,
        tiles="".join(_tile(*tile) for tile in _tiles(data.figures)),
        hero=charts.heldout_chart(_overall(data)) if data.rates else "",
        table=_table(data),
        cards=cards,
    )


def heldout_picture(data: ReportData) -> str:
    """The held-out chart alone, with its own colours for light and dark surroundings."""
    style = (
        f"<style>svg{{{COLOURS}}} {SVG_RULES}"
        f"@media(prefers-color-scheme:dark){{svg{{{DARK_COLOURS}}}}}</style>"
    )
    return charts.heldout_chart(_overall(data), style=style)


def _overall(data: ReportData) -> dict[str, PassRate]:
    return {arm: parts["all"] for arm, parts in data.rates.items()}


def _cards(data: ReportData) -> list[tuple[str, str, str, bool]]:
    """Title, sentence, picture, wide; only what there is data for."""
    made: list[tuple[str, str, str, bool]] = []
    if data.steps or data.control_steps:
        both = (data.steps, data.control_steps)
        went_back = (returned.sentence for returned in data.returns)
        said = "; ".join(["Mean over the rollouts of each step", *went_back])
        made.append(("Reward", f"{said}.", charts.reward_chart(*both, data.returns), False))
        made.append(
            (
                "Groups with something to learn from",
                "A group whose rollouts all earn the same has no advantage anywhere.",
                charts.mixed_chart(*both),
                False,
            )
        )
    made += _signal_cards(data)
    if data.losses:
        chart = charts.loss_chart(data.losses)
        made.append(("Mid-training", "Loss on documents that were held out.", chart, False))
    if data.steps:
        chart = charts.staleness_chart(data.steps, data.max_staleness)
        made.append(("Staleness", "Of every token that was trained.", chart, False))
    if any(v.version > 0 for v in data.versions):
        chart = charts.bytes_chart(data.versions)
        made.append(("Weights on the wire", "Shipped against a full bf16 copy.", chart, False))
    if any(chat.ttft_s is not None for chat in data.chats):
        chart = charts.latency_chart(data.chats, min(chat.started_at for chat in data.chats))
        made.append(("Users", "Served by the pools that sample for training.", chart, False))
    if data.swaps:
        chart = charts.pools_chart(data.swaps, data.stages)
        made.append(("Pools", "Which weight version each pool served when.", chart, True))
    if aside := data.figures.get("tasks.set_aside"):
        said = "Not drawn any more, until a person restores them."
        made.append(("Tasks set aside", said, _named(aside), True))
    if data.waits:
        chart = charts.waits_chart(data.waits)
        made.append(("Waits", "Every wait names what it waits for.", chart, True))
    return made


def _named(causes: Mapping[str, str]) -> str:
    rows = "".join(f"<li><b>{escape(k)}</b>: {escape(v)}</li>" for k, v in causes.items())
    return f"<ul>{rows}</ul>"


def _signal_cards(data: ReportData) -> list[tuple[str, str, str, bool]]:
    """What the reward is made of, and what labels make of its judges."""
    made: list[tuple[str, str, str, bool]] = []
    if len({component.name for component in data.components}) > 1:
        chart = charts.components_chart(data.components)
        sentence = "Each signal by itself, as it was given, before weights."
        made.append(("Components of the reward", sentence, chart, True))
    for signal, curve in data.judged.items():
        sentence = "What the judge said, and what labels make of it (95 % band)."
        made.append((f"Judged: {signal}", sentence, judged_chart(signal, curve), False))
    return made


def _card(title: str, sentence: str, picture: str, wide: bool) -> str:
    kind = "card wide" if wide else "card"
    return (
        f'<section class="{kind}"><h2>{escape(title)}</h2><p>{escape(sentence)}</p>'
        f"{picture}</section>"
    )


def _tiles(figures: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The figures that a visitor asks for first."""
    tiles = []
    rl, before = figures.get("heldout.rl"), figures.get("heldout.midtrained")
    if rl:
        tiles.append((f"{100 * rl['pass_rate']:.0f} %", "held-out tasks passed after RL"))
    if rl and before:
        points = 100 * (rl["pass_rate"] - before["pass_rate"])
        tiles.append((f"{points:+.0f} points", "by RL, on top of mid-training"))
    if figures.get("seconds.total"):
        tiles.append((f"{figures['seconds.total'] / 60:.1f} min", "for the whole run"))
    if figures.get("weights.bytes_shipped"):
        ratio = figures["weights.bytes_full"] / figures["weights.bytes_shipped"]
        tiles.append((f"{ratio:.1f}\N{MULTIPLICATION SIGN}", "fewer bytes than full copies"))
    if figures.get("users.ttft_ms_p50") is not None:
        tiles.append(
            (f"{figures['users.ttft_ms_p50']:.0f} ms", "median wait of a user for the first token")
        )
    if "staleness.max" in figures:
        tiles.append((f"{figures['staleness.max']}", "versions: the stalest token trained"))
    return tiles


def _tile(value: str, words: str) -> str:
    return f'<div class="tile"><b>{escape(value)}</b><span>{escape(words)}</span></div>'


def duration(seconds: float) -> str:
    """`754.2` as `12 min 34 s`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def rate_words(rate: PassRate | None) -> str:
    """`59.0 % [52, 66]`, or a dash where there is nothing."""
    if rate is None or rate.n == 0:
        return "\N{EN DASH}"
    return f"{100 * rate.pass_rate:.1f} % [{100 * rate.low:.0f}, {100 * rate.high:.0f}]"


def _table(data: ReportData) -> str:
    head = "<tr><th>held-out tasks</th><th>n</th><th>passed [95 %]</th>"
    head += "<th>kinds seen in training</th><th>kinds never seen</th></tr>"
    rows = ""
    for arm, words in charts.arm_words(data.rates).items():
        parts = data.rates[arm]
        cells = [words, str(parts["all"].n)]
        cells += [rate_words(parts.get(part)) for part in ("all", "seen", "unseen")]
        rows += "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
    return f"<table>{head}{rows}</table>" if rows else ""


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>$title - Tradewind</title>
<style>
:root{$colours}
@media(prefers-color-scheme:dark){:root{$dark}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);
font:15px/1.45 system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif}
main{max-width:1120px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:26px;margin:0 0 18px;letter-spacing:-.01em}
h1 small{color:var(--muted);font-weight:400;font-size:15px;margin-left:10px}
h2{font-size:16px;margin:0} .card p{margin:2px 0 10px;color:var(--muted);font-size:13px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px}
.tile,.card{background:var(--surface);border:1px solid var(--grid);border-radius:12px}
.tile{padding:14px 16px} .tile b{display:block;font-size:23px;letter-spacing:-.02em}
.tile span{color:var(--muted);font-size:13px}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(440px,1fr));gap:14px;margin-top:14px}
.card{padding:18px 20px} .wide{grid-column:1/-1} svg{display:block;width:100%;height:auto}
.hero{margin-top:14px}
table{border-collapse:collapse;width:100%;margin-top:10px;font-variant-numeric:tabular-nums}
th,td{text-align:right;padding:7px 10px;border-top:1px solid var(--grid)}
th{color:var(--muted);font-weight:500;border-top:0} th:first-child,td:first-child{text-align:left}
tr:last-child td{font-weight:650}
@media(max-width:520px){.cards{grid-template-columns:1fr}.card{padding:14px 10px}
.hero svg{display:none} .wide{overflow-x:auto} .wide svg{min-width:640px}
table{font-size:13px} th,td{padding:6px 4px}}
$svg
</style></head><body><main>
<h1>$title<small>a Tradewind run</small></h1>
<div class="tiles">$tiles</div>
<section class="card hero">$hero$table</section>
<div class="cards">$cards</div>
</main></body></html>
"""
