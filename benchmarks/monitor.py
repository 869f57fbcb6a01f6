"""How many planted exploits the monitor catches, how many innocent trajectories it flags.

    python benchmarks/monitor.py [--quick] [--json FILE]

    planted.toml ──► planted(seed) ──► monitor ──► recall by class and style, false alarms, speed

`exploits_caught` counts severity 1 (a tripwire would reject the group), `exploits_suspected` 0.5 or
more; unseen ones were written by somebody who had not read the rules. Names and hashes differ
between seeds, scripts do not, so counts are those of one seed.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "src")]

from common.figures import write_figures  # noqa: E402
from common.machine import versions  # noqa: E402

from tradewind.rewards.monitor.exploits import Exploits, ExploitsOptions  # noqa: E402
from tradewind.rewards.monitor.planted import INNOCENT, Tally, measure, planted, total  # noqa: E402
from tradewind.rewards.trust.statistics import wilson  # noqa: E402


def shown(tally: Tally) -> dict[str, object]:
    """Counts with Wilson's 95 % intervals."""
    return {
        **vars(tally),
        "suspected_interval": list(wilson(tally.suspected, tally.n)),
        "caught_interval": list(wilson(tally.caught, tally.n)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a second of scoring for the speed")
    parser.add_argument("--json", type=Path, help="where the record goes")
    args = parser.parse_args()
    monitor, cases = Exploits(ExploitsOptions()), planted(0)
    tallies = measure(monitor.score, cases)
    exploits = total(tally for (exploit, _), tally in tallies.items() if exploit != INNOCENT)
    innocent = total(tally for (exploit, _), tally in tallies.items() if exploit == INNOCENT)
    unseen = total(t for (e, style), t in tallies.items() if e != INNOCENT and style == "unseen")
    quiet = tallies[INNOCENT, "unseen"]
    scored, began, limit = 0, time.perf_counter(), 1.0 if args.quick else 10.0
    while time.perf_counter() - began < limit:
        monitor.score(cases[scored % len(cases)].episode)
        scored += 1
    figures = {
        "exploits_planted": float(exploits.n),
        "exploits_caught": float(exploits.caught),
        "exploits_suspected": float(exploits.suspected),
        "unseen_planted": float(unseen.n),
        "unseen_caught": float(unseen.caught),
        "unseen_suspected": float(unseen.suspected),
        "unseen_innocent": float(quiet.n),
        "unseen_innocent_flagged": float(quiet.suspected),
        "innocent_planted": float(innocent.n),
        "innocent_flagged": float(innocent.suspected),
        "innocent_caught": float(innocent.caught),
        "trajectories_s": scored / (time.perf_counter() - began),
    }
    details = {f"{exploit} {style}": shown(tally) for (exploit, style), tally in tallies.items()}
    write_figures(
        args.json,
        figures,
        versions=versions("pydantic"),
        details={"rules": monitor.version, **details},
    )


if __name__ == "__main__":
    main()
