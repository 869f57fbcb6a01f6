"""Write the order desk's database, tasks and corpus into a folder.

Run it as `python examples/orderdesk/build.py --out DIR --seed 7`. The same seed gives the same
rows; running it again replaces the files, each of them in one piece.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

if __package__ in (None, ""):  # run as a script: make the folder above importable
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from orderdesk import corpus, product, questions


def build(out: Path, seed: int) -> dict[str, int]:
    """Write the three files, check the splits, and say how many rows each has."""
    out.mkdir(parents=True, exist_ok=True)
    database = out / "orderdesk.sqlite"
    product.create(database, seed)
    tasks = questions.make_tasks(database, seed)
    documents = corpus.make_corpus(database, seed)
    questions.check_splits(tasks, [document["text"] for document in documents])
    _write_lines(out / "tasks.jsonl", tasks)
    _write_lines(out / "corpus.jsonl", documents)
    return {
        "train": sum(task["split"] == "train" for task in tasks),
        "heldout": sum(task["split"] == "heldout" for task in tasks),
        "documents": len(documents),
    }


def _write_lines(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    os.replace(partial, path)  # noqa: PTH105  the atomic rename is the point


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--seed", type=int, default=7, help="everything follows from it")
    args = parser.parse_args()
    counts = build(args.out, args.seed)
    print(f"{args.out}: " + ", ".join(f"{count} {name}" for name, count in counts.items()))


if __name__ == "__main__":
    main()
