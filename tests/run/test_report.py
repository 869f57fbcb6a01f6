from __future__ import annotations

import dataclasses
import re
import xml.etree.ElementTree as ElementTree

import pytest
from synthetic import T0

from tradewind.ledger.evals import PassRate, wilson
from tradewind.ledger.user_chats import UserChat
from tradewind.run.charts import short_bytes
from tradewind.run.readings import StepReading
from tradewind.run.report import ReportData, heldout_picture, page
from tradewind.run.svg import Plot, Scale, log_ticks, tag, ticks
from tradewind.types import Attestation, WeightVersion
from tradewind.types.returned import Return


def rate(passed: int, n: int) -> PassRate:
    low, high = wilson(passed, n)
    return PassRate(pass_rate=passed / n if n else 0.0, n=n, low=low, high=high)


@pytest.fixture
def data() -> ReportData:
    arms = {"base": 1, "control": 2, "midtrained": 40, "rl": 80}
    steps = [
        StepReading(
            step=i,
            version=i + 2,
            at=T0 + i,
            seconds=1,
            reward=i / 10,
            mixed=0.5,
            staleness=(0, 1, 2),
            metrics={f"trainer/staleness/tokens/{age}": 10.0 * (age + 1) for age in range(3)},
        )
        for i in range(5)
    ]
    versions = [
        WeightVersion(
            version=i,
            state_id="b3:0",
            parent_state_id=None,
            manifest="m",
            stage="rl",
            bytes_shipped=10**i,
            bytes_full=10**8,
        )
        for i in range(5)
    ]
    swaps = [
        Attestation(
            pool="paris <b>",
            version=i,
            state_id="b3:0",
            bytes_fetched=1,
            stage_s=1,
            pause_ms=1,
            activated_at=T0 + 10 * i,
        )
        for i in range(5)
    ]
    chat = UserChat(
        request_id="u", started_at=T0, ttft_s=0.2, seconds=1, tokens=3, version=1, pool="paris"
    )
    return ReportData(
        name="demo & co",
        figures={"seconds.total": 700.0, "staleness.max": 2},
        rates={
            arm: {"all": rate(k, 100), "seen": rate(k, 100), "unseen": rate(0, 0)}
            for arm, k in arms.items()
        },
        steps=steps,
        control_steps=steps[:2],
        losses=[(0, 3.0), (10, 1.0)],
        versions=versions,
        swaps=swaps,
        chats=[chat],
        stages={"base": (T0, T0 + 10), "rl": (T0 + 10, T0 + 60)},
        waits=[("trainer", "groups", 12.0)],
        max_staleness=2,
    )


def pictures(html: str) -> list[str]:
    return re.findall(r"<svg.*?</svg>", html, flags=re.S)


def test_the_page_has_every_picture_and_each_is_well_formed(data: ReportData) -> None:
    drawn = pictures(page(data))
    assert len(drawn) == 9
    for picture in drawn:
        ElementTree.fromstring(picture)


def test_the_page_counts_tokens_by_their_age(data: ReportData) -> None:
    """Staleness by rollout hides how much of a long one was decoded by the newest weights."""
    html = page(data)
    for age, tokens, share in ((0, 50, 17), (1, 100, 33), (2, 150, 50)):
        assert f"staleness {age}: {tokens} tokens" in html and f"{share} %" in html
    assert "bound 2" in html


def test_the_page_names_a_return_and_marks_it_between_two_steps(data: ReportData) -> None:
    back = Return(version=4, back_to=2, who="ana", why="it <cheats>", at=T0)
    html = page(dataclasses.replace(data, returns=[back]))
    said = "the trainer went back to version 2 as version 4, version 3 is withdrawn; ana says: it"
    assert f"{said} &lt;cheats&gt;." in html
    (reward,) = [p for p in pictures(html) if "Mean reward per RL step" in p]
    marks = ElementTree.fromstring(reward)
    (rule,) = [m for m in marks.iter() if m.get("class") == "rule"]
    dots = [float(m.get("cx")) for m in marks.iter() if m.tag.endswith("circle")]
    before, after = sorted(set(dots))[1:3]  # versions 2 and 3 are of steps 0 and 1
    assert before < float(rule.get("x1")) < after
    assert "back to version 2" in reward


def test_the_page_needs_no_network_and_no_script(data: ReportData) -> None:
    html = page(data).replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|src=|<script|@import|url\(", html)


def test_names_are_escaped(data: ReportData) -> None:
    html = page(data)
    assert "paris <b>" not in html and "paris &lt;b&gt;" in html
    assert "demo &amp; co" in html


def test_a_run_with_nothing_in_it_still_has_a_page() -> None:
    html = page(ReportData(name="empty", figures={}, rates={}))
    assert pictures(html) == [] and "empty" in html


def test_the_table_shows_intervals_and_a_dash_for_no_tasks(data: ReportData) -> None:
    html = page(data)
    assert "80.0 % [71, 87]" in html
    assert "<td>\N{EN DASH}</td>" in html


def test_the_readme_picture_carries_its_own_colours(data: ReportData) -> None:
    picture = heldout_picture(data)
    ElementTree.fromstring(picture)
    used = set(re.findall(r"var\((--\w+)\)", picture))
    assert used and all(f"{name}:#" in picture for name in used)


def test_ticks_are_round_and_inside() -> None:
    assert ticks(0, 1) == [0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert ticks(0, 37) == [0, 10, 20, 30]
    assert ticks(5, 5) == [5]
    assert log_ticks(3, 2000) == [10, 100, 1000]


def test_a_log_scale_puts_the_geometric_mean_in_the_middle() -> None:
    scale = Scale(1, 10_000, 0, 100, log=True)
    assert [scale(v) for v in (1, 100, 10_000)] == pytest.approx([0, 50, 100])
    assert scale(0) == 0, "zero has no logarithm and lies at the edge"


def test_marks_stay_inside_the_frame() -> None:
    plot = Plot((0, 10), (0, 1), "x", "y")
    assert plot.sx(99) == plot.width - plot.right and plot.sy(-5) == plot.height - 40


def test_an_attribute_cannot_break_out_of_its_quotes() -> None:
    assert tag("a", b='"><script>') == '<a b="&quot;&gt;&lt;script&gt;"/>'


def test_bytes_are_said_in_decimal_units() -> None:
    assert [short_bytes(v) for v in (12, 1234, 1.2345e6, 2.5e12)] == [
        "12 B",
        "1.23 kB",
        "1.23 MB",
        "2.5e+03 GB",
    ]
