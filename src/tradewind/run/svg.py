"""Just enough SVG for the report: escaped elements, scales with readable ticks, a framed plot.

Colours are CSS variables (`--a`, `--b`, `--ink`, `--muted`, `--grid`, `--band`), so that one
picture serves a light and a dark page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

Point = tuple[float, float]
LABEL = 14.0
"""Height of a line of text, in pixels."""


def tag(name: str, content: str = "", **attributes: object) -> str:
    """One element; attribute names with `_` get `-`, `class_` is `class`; content is markup."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_number(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{written}>{content}</{name}>" if content else f"<{name}{written}/>"


def text(x: float, y: float, words: str, **attributes: object) -> str:
    """A text element; `words` are escaped."""
    return tag("text", escape(words), x=x, y=y, **attributes)


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` round numbers within [low, high]; steps are 1, 2 or 5 times 10^k."""
    if not high > low:
        return [low]
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """The powers of ten within [low, high]."""
    return [
        10.0**e
        for e in range(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1)
    ]


@dataclass(frozen=True)
class Scale:
    """Maps values in [low, high] to pixels [start, end], linearly or by logarithm."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The pixel of `value`; values outside are put at the edge."""
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        at = math.log(max(value, self.low)) if self.log else value
        share = 0.5 if high == low else (at - low) / (high - low)
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round numbers to label."""
        return log_ticks(self.low, self.high) if self.log else ticks(self.low, self.high)


@dataclass
class Plot:
    """A framed plot: grid, ticks and axis titles first, then marks in the order they are added."""

    x: tuple[float, float]
    y: tuple[float, float]
    x_title: str
    y_title: str
    width: float = 520
    height: float = 235
    left: float = 52
    right: float = 100
    """Room for direct labels at the end of lines."""
    log_y: bool = False
    whole_x: bool = False
    """Only whole numbers are labelled on the x axis."""
    y_label: Callable[[float], str] = lambda value: f"{value:g}"
    marks: list[str] = field(default_factory=list)
    labels: list[float] = field(default_factory=list)
    """Heights of the direct labels so far."""

    @property
    def sx(self) -> Scale:
        """Horizontal scale."""
        return Scale(*self.x, self.left, self.width - self.right)

    @property
    def sy(self) -> Scale:
        """Vertical scale."""
        return Scale(*self.y, self.height - 40, 22, log=self.log_y)

    def line(self, points: Sequence[Point], colour: str, *, width: float = 2) -> None:
        """A polyline."""
        path = " ".join(f"{self.sx(x):.1f},{self.sy(y):.1f}" for x, y in points)
        self.marks.append(
            tag(
                "polyline",
                points=path,
                fill="none",
                stroke=f"var({colour})",
                stroke_width=width,
                stroke_linejoin="round",
            )
        )

    def dots(
        self, points: Sequence[Point], colour: str, hints: Sequence[str], *, radius: float = 2.6
    ) -> None:
        """Points, each with a hint that a browser shows on hover."""
        for (x, y), hint in zip(points, hints, strict=True):
            title = tag("title", escape(hint)) if hint else ""
            self.marks.append(
                tag("circle", title, cx=self.sx(x), cy=self.sy(y), r=radius, fill=f"var({colour})")
            )

    def bar(self, x: float, y: float, width: float, colour: str, hint: str) -> None:
        """A bar from the bottom to `y`, centred at `x`, `width` in x units."""
        left, right = self.sx(x - width / 2), self.sx(x + width / 2)
        top, bottom = self.sy(y), self.sy(self.y[0])
        self.marks.append(
            tag(
                "rect",
                tag("title", escape(hint)),
                x=left,
                y=top,
                width=right - left,
                height=max(0.0, bottom - top),
                fill=f"var({colour})",
                rx=2,
            )
        )

    def label(self, x: float, y: float, words: str, colour: str | None = None) -> None:
        """Direct label at the right of a point, moved if another one is there; with a dot of its
        line's colour if lines are close.
        """
        wanted, bottom = self.sy(y), self.height - 40
        places = [wanted + LABEL * way for n in range(20) for way in (n, -n)]
        free = (at for at in places if 8 <= at <= bottom and not self._taken(at))
        at = next(free, wanted)
        self.labels.append(at)
        dot = tag("tspan", "\N{BLACK CIRCLE} ", style=f"fill:var({colour})") if colour else ""
        self.marks.append(tag("text", dot + escape(words), x=self.sx(x) + 7, y=at + 4))

    def _taken(self, at: float) -> bool:
        return any(abs(at - other) < LABEL - 0.1 for other in self.labels)

    def rule(self, y: float, words: str) -> None:
        """A dashed horizontal reference with its label at the right."""
        at = self.sy(y)
        end = self.width - self.right
        self.marks.append(
            tag("line", x1=self.left, x2=end, y1=at, y2=at, class_="rule")
            + text(end + 7, at + 4, words, class_="muted")
        )

    def upright(self, x: float, words: str) -> None:
        """A dashed vertical rule with its label above."""
        at = self.sx(x)
        self.marks.append(
            tag("line", x1=at, x2=at, y1=22, y2=self.height - 40, class_="rule")
            + text(at, 18, words, text_anchor="middle", class_="muted")
        )

    def render(self, name: str) -> str:
        """The picture; `name` is read to those who cannot see it."""
        return figure("".join([*self._frame(), *self.marks]), self.width, self.height, name)

    def _frame(self) -> list[str]:
        right, bottom = self.width - self.right, self.height - 40
        frame = []
        for value in self.sy.ticks():
            at = self.sy(value)
            frame.append(tag("line", x1=self.left, x2=right, y1=at, y2=at, class_="grid"))
            frame.append(
                text(self.left - 8, at + 4, self.y_label(value), text_anchor="end", class_="tick")
            )
        for value in self.sx.ticks():
            if self.whole_x and value != int(value):
                continue
            frame.append(
                text(self.sx(value), bottom + 17, f"{value:g}", text_anchor="middle", class_="tick")
            )
        frame.append(tag("line", x1=self.left, x2=right, y1=bottom, y2=bottom, class_="axis"))
        frame.append(text(right, bottom + 34, self.x_title, text_anchor="end", class_="muted"))
        frame.append(text(self.left - 44, 12, self.y_title, class_="muted"))
        return frame


def figure(content: str, width: float, height: float, name: str, *, style: str = "") -> str:
    """A complete `<svg>` that scales with its container."""
    return tag(
        "svg",
        tag("title", escape(name)) + style + content,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        font_family="system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif",
        font_size=12,
    )


def _number(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
