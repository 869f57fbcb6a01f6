"""The pictures of the report: plain data in, SVG text out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from html import escape

from tradewind.ledger.evals import PassRate
from tradewind.ledger.user_chats import UserChat
from tradewind.run.components import ComponentReading, changes
from tradewind.run.readings import StepReading, quantile, token_ages
from tradewind.run.svg import Plot, Scale, figure, tag, text
from tradewind.types import Attestation, WeightVersion
from tradewind.types.returned import Return

ARM_WORDS = {
    "base": "base model",
    "control": "RL only",
    "midtrained": "mid-trained",
    "rl": "mid-trained + RL",
}
"""In the order in which they are shown."""


def arm_words(arms: Collection[str]) -> dict[str, str]:
    """Those of `ARM_WORDS` that are there; RL is not called what it did not follow."""
    named = {arm: words for arm, words in ARM_WORDS.items() if arm in arms}
    return named if "midtrained" in named or "rl" not in named else named | {"rl": "after RL"}


_COMPONENT_COLOURS = ("--a", "--b", "--good", "--ink", "--soft")


def heldout_chart(rates: Mapping[str, PassRate], *, style: str = "") -> str:
    """Pass rate per arm with its interval, on one 0 to 100 % axis."""
    named = arm_words(rates)
    shown = [(arm, rates[arm]) for arm in named]
    width, row, top = 900.0, 42.0, 14.0
    height = top + row * len(shown) + 44
    scale = Scale(0, 100, 150, width - 140)
    bottom = top + row * len(shown)
    marks = []
    for value in (0, 20, 40, 60, 80, 100):
        at = scale(value)
        marks.append(tag("line", x1=at, x2=at, y1=top, y2=bottom, class_="grid"))
        marks.append(text(at, bottom + 17, f"{value} %", text_anchor="middle", class_="tick"))
    marks.append(
        text(
            scale(100),
            bottom + 34,
            "held-out tasks passed, greedy; bar: 95 % interval",
            text_anchor="end",
            class_="muted",
        )
    )
    for index, (arm, rate) in enumerate(shown):
        middle = top + row * (index + 0.5)
        colour = "--a" if arm == "rl" else "--ink" if arm == "midtrained" else "--soft"
        marks.append(_whisker(rate, middle, scale, colour, named[arm]))
    return figure("".join(marks), width, height, "Held-out pass rate of each arm", style=style)


def _whisker(rate: PassRate, middle: float, scale: Scale, colour: str, words: str) -> str:
    low, at, high = (scale(100 * v) for v in (rate.low, rate.pass_rate, rate.high))
    fill = f"var({colour})"
    hint = f"{words}: {100 * rate.pass_rate:.1f} % of {rate.n}"
    return (
        text(scale.start - 12, middle + 4, words, text_anchor="end", class_="name")
        + tag("rect", x=low, y=middle - 4, width=high - low, height=8, rx=4, fill=fill, opacity=0.3)
        + tag("circle", tag("title", escape(hint)), cx=at, cy=middle, r=7, fill=fill)
        + text(scale.end + 12, middle - 2, f"{100 * rate.pass_rate:.1f} %", class_="value")
        + text(
            scale.end + 12,
            middle + 13,
            f"{100 * rate.low:.0f}\N{EN DASH}{100 * rate.high:.0f} %, n = {rate.n}",
            class_="tick",
        )
    )


def reward_chart(
    steps: Sequence[StepReading], control: Sequence[StepReading], returns: Sequence[Return] = ()
) -> str:
    """Mean reward per RL step; the control beside it; a rule where the trainer went back."""
    last = max((s.step for s in (*steps, *control)), default=1)
    highest = max((s.reward for s in (*steps, *control)), default=1.0)
    lowest = min((s.reward for s in (*steps, *control)), default=0.0)
    plot = Plot(
        (0, max(1, last)),
        (min(0.0, lowest), max(1.0, highest)),
        "RL step",
        "mean reward",
        whole_x=True,
    )
    for rows, colour, words in ((control, "--soft", "control"), (steps, "--a", "reward")):
        if rows:
            points = [(float(s.step), s.reward) for s in rows]
            hints = [f"step {s.step}: {s.reward:.3f}, {s.mixed:.0%} of groups mixed" for s in rows]
            plot.line(points, colour)
            plot.dots(points, colour, hints)
            plot.label(*points[-1], f"{words} {rows[-1].reward:.2f}")
    for made in returns:
        # between the last step before it and the first one after it
        at = sum(step.version < made.version for step in steps) - 0.5
        plot.upright(max(0.0, at), f"back to version {made.back_to}")
    return plot.render("Mean reward per RL step")


def components_chart(readings: Sequence[ComponentReading]) -> str:
    """Mean of each component per step, as its signal gave it; a rule where the reward changed."""
    steps = sorted({r.step for r in readings})
    shown = [(r, r.mean) for r in readings if r.mean is not None]
    low, high = min((y for _, y in shown), default=0.0), max((y for _, y in shown), default=1.0)
    names = list(dict.fromkeys(r.name for r in readings))
    longest = max(len(r.name) + len(r.role) for r in readings)
    plot = Plot(
        (0, max(1, steps[-1])),
        (min(0.0, low), max(1.0, high)),
        "RL step",
        "mean of each signal",
        width=1080,  # its card is as wide as two
        height=280,
        right=7.0 * (longest + len("* 0.00 ()")) + 14,
        whole_x=True,
    )
    for number, name in enumerate(names):
        own = [(r, y) for r, y in shown if r.name == name]
        if not own:
            continue
        colour = _COMPONENT_COLOURS[number % len(_COMPONENT_COLOURS)]
        points = [(float(r.step), y) for r, y in own]
        plot.line(points, colour)
        plot.dots(points, colour, [_component_hint(r) for r, _ in own])
        plot.label(*points[-1], f"{name} {points[-1][1]:.2f} ({own[-1][0].role})", colour)
    for step in changes(readings):
        plot.upright(step, "reward changed")
    return plot.render("Components of the reward per RL step")


def _component_hint(reading: ComponentReading) -> str:
    adds = "" if reading.adds is None else f", adds {reading.adds:+.3f}"
    nulls = f", {reading.nulls} null" if reading.nulls else ""
    return f"step {reading.step}: {reading.name} {reading.mean:.3f}{adds}{nulls}"


def mixed_chart(steps: Sequence[StepReading], control: Sequence[StepReading]) -> str:
    """Share of groups per step from which RL can learn anything."""
    last = max((s.step for s in (*steps, *control)), default=1)
    plot = Plot((0, max(1, last)), (0, 100), "RL step", "mixed groups, %", whole_x=True)
    for rows, colour, words in ((control, "--soft", "control"), (steps, "--a", "main")):
        if rows:
            points = [(float(s.step), 100 * s.mixed) for s in rows]
            plot.line(points, colour)
            plot.dots(points, colour, [f"step {int(x)}: {y:.0f} %" for x, y in points])
            plot.label(*points[-1], f"{words} {points[-1][1]:.0f} %")
    return plot.render("Share of groups with unequal rewards")


def loss_chart(losses: Sequence[tuple[int, float]]) -> str:
    """Held-out loss over the steps of mid-training; nats per token."""
    highest = max(loss for _, loss in losses)
    last = losses[-1]
    plot = Plot(
        (0, max(1, last[0])),
        (0, highest * 1.05),
        "mid-training step",
        "nats per token",
        whole_x=True,
    )
    points = [(float(step), loss) for step, loss in losses]
    plot.line(points, "--b")
    plot.dots(points, "--b", [f"step {step}: {loss:.3f}" for step, loss in losses])
    plot.label(*points[-1], f"{last[1]:.2f}")
    return plot.render("Held-out loss of mid-training")


def staleness_chart(steps: Sequence[StepReading], bound: int | None) -> str:
    """How many trained tokens were how many versions old when they were trained."""
    counts = token_ages(steps)
    total = max(1, sum(counts.values()))
    last = max([*counts, bound or 0, 1])
    highest = max([100 * n / total for n in counts.values()], default=1.0)
    plot = Plot(
        (-0.6, last + 0.6),
        (0, highest * 1.1),
        "versions between a token and its training",
        "share of trained tokens, %",
        whole_x=True,
    )
    for value, count in sorted(counts.items()):
        share = 100 * count / total
        plot.bar(value, share, 0.7, "--a", f"staleness {value}: {count} tokens")
        plot.marks.append(
            text(plot.sx(value), plot.sy(share) - 5, f"{share:.0f} %", text_anchor="middle")
        )
    if bound is not None:
        at = plot.sx(min(bound + 0.5, last + 0.6))
        plot.marks.append(
            tag("line", x1=at, x2=at, y1=22, y2=plot.height - 40, class_="rule")
            + text(at + 7, 34, f"bound {bound}", class_="muted")
        )
    return plot.render("Staleness of trained tokens")


def bytes_chart(versions: Sequence[WeightVersion]) -> str:
    """Bytes uploaded per version against a full copy, logarithmic."""
    shown = [v for v in versions if v.version > 0]
    low = min([max(1, v.bytes_shipped) for v in shown]) / 2
    high = max(v.bytes_full for v in shown) * 2
    plot = Plot(
        (1, max(2, shown[-1].version)),
        (low, high),
        "version",
        "bytes",
        right=130,
        log_y=True,
        whole_x=True,
    )
    plot.y_label = short_bytes
    for colour, words, points in (
        ("--soft", "full copy", [(float(v.version), float(v.bytes_full)) for v in shown]),
        ("--a", "shipped", [(float(v.version), float(max(1, v.bytes_shipped))) for v in shown]),
    ):
        plot.line(points, colour)
        plot.dots(points, colour, [f"version {int(x)}: {short_bytes(y)}" for x, y in points])
        plot.label(*points[-1], f"{words} {short_bytes(points[-1][1])}")
    return plot.render("Bytes shipped per version against a full copy")


def latency_chart(chats: Sequence[UserChat], start: float) -> str:
    """Time to first token of each user chat over the run."""
    times = [(c, c.ttft_s * 1e3) for c in chats if c.ttft_s is not None and not c.error]
    end = max((c.started_at for c, _ in times), default=start + 60)
    low, high = min((t for _, t in times), default=1.0), max((t for _, t in times), default=10.0)
    plot = Plot(
        (0, max(0.1, (end - start) / 60)),
        (max(0.1, low / 2), 2 * high),
        "minutes",
        "ms to first token",
        log_y=True,
    )
    points = [((c.started_at - start) / 60, t) for c, t in times]
    hints = [f"{t:.0f} ms at {c.pool or 'a pool'}" for c, t in times]
    plot.dots(points, "--a", hints)
    for q, words in ((0.5, "median"), (0.99, "p99")):
        value = quantile([t for _, t in times], q)
        if value is not None:
            plot.rule(value, f"{words} {value:.0f} ms")
    return plot.render("Latency of user chats")


def pools_chart(swaps: Sequence[Attestation], stages: Mapping[str, tuple[float, float]]) -> str:
    """Which version each pool served when; the stages of the run below."""
    pools = sorted({s.pool for s in swaps})
    start = min([s.activated_at for s in swaps] + [a for a, _ in stages.values()], default=0.0)
    end = max([s.activated_at for s in swaps] + [b for _, b in stages.values()], default=start + 60)
    row, left, width = 34.0, 90.0, 1000.0
    rows = [*pools, "stages"]
    scale = Scale(0, max(0.1, (end - start) / 60), left, width - 12)
    marks = []
    for index, pool in enumerate(pools):
        own = [s for s in swaps if s.pool == pool]
        marks.append(text(left - 12, row * index + 24, pool, text_anchor="end", class_="name"))
        for swap, after in zip(own, [*own[1:], None], strict=True):
            until = after.activated_at if after else end
            hint = f"{pool}: version {swap.version}, paused {swap.pause_ms:.0f} ms"
            span = ((swap.activated_at - start) / 60, (until - start) / 60)
            marks.append(
                _segment(scale, span, row * index + 8, (str(swap.version), hint), swap.version % 2)
            )
    for number, (stage, (a, b)) in enumerate(stages.items()):
        top = row * len(pools) + 8
        span = ((a - start) / 60, (b - start) / 60)
        marks.append(
            _segment(scale, span, top, (stage, f"{stage}: {b - a:.0f} s"), number % 2, "--soft")
        )
    bottom = row * len(rows) + 12
    for value in scale.ticks():
        marks.append(
            text(scale(value), bottom + 14, f"{value:g}", text_anchor="middle", class_="tick")
        )
    marks.append(text(width - 12, bottom + 30, "minutes", text_anchor="end", class_="muted"))
    return figure("".join(marks), width, bottom + 36, "Weight versions served by each pool")


def _segment(
    scale: Scale,
    span: tuple[float, float],
    top: float,
    words: tuple[str, str],
    odd: int,
    colour: str = "--a",
) -> str:
    left, right = scale(span[0]), scale(span[1])
    label, hint = words
    drawn = tag(
        "rect",
        tag("title", escape(hint)),
        x=left,
        y=top,
        width=max(0.8, right - left - 0.8),
        height=24,
        rx=2,
        fill=f"var({colour})",
        opacity=0.85 if odd else 0.5,
    )
    if right - left > 7.5 * len(label) + 4:
        drawn += text((left + right) / 2, top + 16, label, text_anchor="middle", class_="on")
    return drawn


def waits_chart(waits: Sequence[tuple[str, str, float]]) -> str:
    """Seconds that processes waited, by process and reason; the longest first."""
    shown = sorted(waits, key=lambda w: -w[2])[:8]
    row, left, width = 36.0, 12.0, 1000.0
    longest = max((w[2] for w in shown), default=1.0)
    scale = Scale(0, longest, left, width - 120)
    marks = []
    for index, (process, reason, seconds) in enumerate(shown):
        top = row * index
        marks.append(text(left, top + 14, f"{process} waits for {reason}", class_="name"))
        marks.append(
            tag(
                "rect",
                x=left,
                y=top + 19,
                width=max(1.0, scale(seconds) - left),
                height=9,
                rx=2,
                fill="var(--b)",
            )
        )
        marks.append(text(scale(seconds) + 8, top + 28, f"{seconds:.0f} s", class_="tick"))
    return figure("".join(marks), width, row * max(1, len(shown)) + 4, "What processes waited for")


def short_bytes(value: float) -> str:
    """`1234567` as `1.2 MB`; decimal units."""
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.5 or unit == "GB":
            return f"{value:.3g} {unit}"
        value /= 1000
    raise AssertionError(value)
