"""Shows where a run stands: a live panel on a terminal, plain lines without one, or JSON lines.

consumes     Snapshot
produces     text on stdout (panel, lines or JSON), nothing else
waits for    nothing
unblocked by the launcher's loop
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tradewind.run.snapshot import SILENT_S, PoolLine, Snapshot

ViewKind = Literal["auto", "live", "plain", "json"]
BARS = "▁▂▃▄▅▆▇█"
PLAIN_EVERY_S = 10.0
FLAT_STEPS = 2
"""Steps in a row without a mixed group that are worth a line."""


class View(Protocol):
    """What the launcher talks to."""

    def show(self, snapshot: Snapshot) -> None:
        """The run stands here; called about once a second."""

    def say(self, sentence: str, **fields: Any) -> None:
        """Something happened that a person wants to know."""

    def work(self, what: str, done: int, n: int) -> None:
        """So much of a piece of preparation is done."""

    def close(self) -> None:
        """Leave the terminal as it was."""


def open_view(kind: ViewKind) -> View:
    """The view of that kind; `auto` is live on a terminal and plain without one."""
    if kind == "json":
        return JsonView()
    console = Console()
    if kind == "live" or (kind == "auto" and console.is_terminal and not console.is_dumb_terminal):
        return LiveView(console)
    return PlainView()


class LiveView:
    """A panel that is redrawn in place; sentences scroll above it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._live.start()

    def show(self, snapshot: Snapshot) -> None:
        """Redraw."""
        self._live.update(panel(snapshot), refresh=True)

    def say(self, sentence: str, **fields: Any) -> None:
        """Print above the panel."""
        self._console.print(Text(sentence))

    def work(self, what: str, done: int, n: int) -> None:
        """Redraw a bar."""
        row = Table.grid(padding=(0, 1))
        row.add_row(what, ProgressBar(total=max(1, n), completed=done, width=30), f"{done}/{n}")
        self._live.update(row, refresh=True)

    def close(self) -> None:
        """Remove the panel."""
        self._live.stop()


class Pace:
    """Says when the next line is due: at each change of stage, and then every few seconds."""

    def __init__(self, every_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._every_s, self._clock = every_s, clock
        self._stage: tuple[str, ...] | None = None
        self._at = 0.0

    def due(self, *stage: str) -> bool:
        """Whether to write now; counts as written."""
        if stage == self._stage and self._clock() - self._at < self._every_s:
            return False
        self._stage, self._at = stage, self._clock()
        return True


def _print(line: str) -> None:
    print(line, flush=True)


class PlainView:
    """A line about every ten seconds and at each change of stage."""

    def __init__(self, write: Callable[[str], None] = _print, pace: Pace | None = None) -> None:
        self._write, self._pace = write, pace or Pace(PLAIN_EVERY_S)

    def show(self, snapshot: Snapshot) -> None:
        """Write a line if it is due."""
        if self._pace.due(snapshot.arm, snapshot.stage):
            self.say(line(snapshot))

    def say(self, sentence: str, **fields: Any) -> None:
        """Write the sentence."""
        self._write(f"{time.strftime('%H:%M:%S')}  {sentence}")

    def work(self, what: str, done: int, n: int) -> None:
        """Write a line if it is due, and the last one."""
        if self._pace.due(what) or done == n:
            self.say(f"{what}: {done} of {n}")

    def close(self) -> None:
        """Nothing to undo."""


class JsonView:
    """JSON lines: `{"event": "status" | "say" | "work", ...}`."""

    def __init__(self, write: Callable[[str], None] = _print, pace: Pace | None = None) -> None:
        self._write, self._pace = write, pace or Pace(PLAIN_EVERY_S / 2)

    def show(self, snapshot: Snapshot) -> None:
        """Write the snapshot if it is due."""
        if self._pace.due(snapshot.arm, snapshot.stage):
            self._write(json.dumps({"event": "status", **snapshot.model_dump(mode="json")}))

    def say(self, sentence: str, **fields: Any) -> None:
        """Write the sentence and its fields."""
        self._write(json.dumps({"event": "say", "at": time.time(), "text": sentence, **fields}))

    def work(self, what: str, done: int, n: int) -> None:
        """Write how far it is, if it is due or all."""
        if self._pace.due(what) or done == n:
            self._write(json.dumps({"event": "work", "what": what, "done": done, "of": n}))

    def close(self) -> None:
        """Nothing to undo."""


def line(s: Snapshot) -> str:
    """The snapshot as one line of text."""
    parts = [f"{s.arm}: {s.stage}"]
    if s.steps:
        parts[0] += f" {s.step}/{s.steps}"
    if s.place:
        parts[0] += f" ({s.place})"
    if s.stage == "rl" and s.rewards:
        parts.append(f"reward {s.rewards[-1]:.2f}")
    if s.stage == "midtrain" and s.midtrain_loss is not None:
        parts.append(f"held-out loss {s.midtrain_loss:.3f}")
    parts += [f"{p.pool} v{p.version} {p.tokens_per_s:.0f} tok/s" for p in s.pools]
    if s.ttft_ms_p50 is not None:
        parts.append(f"users {s.ttft_ms_p50:.0f} ms")
    parts.append(f"{clock(s.elapsed_s)} elapsed")
    if s.left_s is not None:
        parts.append(f"{clock(s.left_s)} left in stage")
    parts += filter(None, (flat_words(s),))
    if s.went_back is not None and (s.return_order or s.returns[-1].version == s.version):
        parts.append(s.went_back)  # until something is trained again
    for beat in s.waits:
        if s.at - beat.since >= PLAIN_EVERY_S:
            parts.append(wait_words(beat.process, beat.waiting_for, beat.owner, s.at - beat.since))
    return ", ".join(parts)


def wait_words(process: str, reason: str | None, owner: str | None, seconds: float) -> str:
    """`trainer waits 12 s for 2 more closed groups (grader)`."""
    return f"{process} waits {seconds:.0f} s for {reason}" + (f" ({owner})" if owner else "")


def flat_words(s: Snapshot) -> str | None:
    """That RL has nothing to learn from, once two steps in a row say so."""
    if s.stage != "rl" or s.flat_steps < FLAT_STEPS:
        return None
    return (
        f"all rewards of a group were the same in the last {s.flat_steps} steps: nothing to learn"
        " from (look at them: tradewind rollouts RUN)"
    )


def clock(seconds: float) -> str:
    """`754` as `12:34`."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def sparkline(values: Sequence[float], width: int, low: float = 0.0, high: float = 1.0) -> str:
    """The last `width` values as bars of eighths between `low` and `high`."""
    top = max([high, *values])
    bottom = min([low, *values])
    share = [(v - bottom) / (top - bottom) for v in values[-width:]]
    return "".join(BARS[min(7, int(s * 8))] for s in share)


def panel(s: Snapshot) -> RenderableType:
    """The live panel."""
    rows: list[RenderableType] = [_head(s)]
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", justify="right")
    facts.add_column()
    for name, value in _facts(s):
        facts.add_row(name, value)
    rows.append(facts)
    if s.pools:
        rows.append(_pools(s.pools))
    if flat := flat_words(s):
        rows.append(Text(flat, style="bold yellow"))
    rows += [
        Text(wait_words(b.process, b.waiting_for, b.owner, s.at - b.since), style="yellow")
        for b in s.waits
        if s.at - b.since >= 3.0
    ]
    if s.went_back is not None:
        rows.append(Text(s.went_back, style="yellow"))
    title = f"[bold]tradewind[/] {s.name}" + ("" if s.arm == "main" else f" ({s.arm})")
    return Panel(Group(*rows), title=title, title_align="left", border_style="blue")


def _head(s: Snapshot) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    count = f"{s.step}/{s.steps}" if s.steps else ""
    times = ", ".join(filter(None, (s.place, f"{clock(s.elapsed_s)} elapsed")))
    if s.left_s is not None:
        times += f", about {clock(s.left_s)} left in this stage"
    bar = ProgressBar(total=s.steps, completed=s.step, width=24) if s.steps else Text("")
    grid.add_row(Text(s.stage, style="bold cyan"), count, bar, Text(times, style="dim"))
    return grid


def _facts(s: Snapshot) -> list[tuple[str, RenderableType]]:
    facts: list[tuple[str, RenderableType]] = []
    if s.rewards:
        shown = Text(sparkline(s.rewards, 40), style="green")
        facts.append(("reward", shown.append(f" {s.rewards[-1]:.2f}", style="bold")))
        facts.append(("staleness", Text(_staleness(s))))
    if s.midtrain_loss is not None:
        facts.append(("held-out loss", Text(f"{s.midtrain_loss:.3f} nats per token")))
    for name, rate in s.heldout.items():
        if rate.n:
            words = f"{100 * rate.pass_rate:.1f} % of {rate.n}"
            facts.append((f"held-out {name}", Text(words)))
    if s.rollouts:
        states = ", ".join(f"{count} {state}" for state, count in s.rollouts.items())
        facts.append(("rollouts", Text(states)))
    if s.ttft_ms_p50 is not None and s.ttft_ms_p99 is not None:
        words = f"{s.ttft_ms_p50:.0f} ms median, {s.ttft_ms_p99:.0f} ms p99 to the first token"
        facts.append(("users", Text(words)))
    return facts


def _staleness(s: Snapshot) -> str:
    """`1 (largest so far 2), tokens: 62 % new, 38 % 1 old`."""
    words = f"{s.staleness_last} (largest so far {s.staleness_max})"
    total = sum(s.staleness_tokens.values())
    if total == 0:
        return words
    shares = (
        f"{100 * n / total:.0f} % {f'{age} old' if age else 'new'}"
        for age, n in s.staleness_tokens.items()
    )
    return f"{words}, tokens: {', '.join(shares)}"


def _pools(pools: Sequence[PoolLine]) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for name in ("pool", "version", "lag", "tokens/s", "running", "waiting", "dtype", "state"):
        words = name in ("pool", "dtype", "state")
        table.add_column(name, justify="left" if words else "right", no_wrap=name != "state")
    for p in pools:
        state = p.detail or p.state if p.age_s < SILENT_S else f"silent for {p.age_s:.0f} s"
        if p.pinned is not None:
            state += f", stays at version {p.pinned}"
        cells = (
            p.version,
            p.lag,
            round(p.tokens_per_s),
            f"{p.running} of {p.max_batch}",
            p.waiting,
        )
        table.add_row(p.pool, *map(str, cells), p.dtype, state)
    return table
