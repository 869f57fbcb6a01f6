"""Tasks and corpus: `python make_data.py FOLDER`."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(folder: Path) -> None:
    """32 training tasks, 8 held out, of which 4 are of a kind that training has not."""
    tasks = []
    for number in range(40):
        heldout = number >= 32
        tasks.append(
            {
                "task_id": f"t{number:03d}",
                "kind": "odd" if number >= 36 else "even",
                "split": "heldout" if heldout else "train",
                "input": {"question": f"Say something about {number}"},
                "reference": {},
            }
        )
    documents = [
        {
            "doc_id": f"d{number}",
            "kind": "note",
            "split": "heldout" if number % 5 == 0 else "train",
            "text": "and also every island is under open air, as usual. " * 3,
        }
        for number in range(20)
    ]
    for name, rows in (("tasks", tasks), ("corpus", documents)):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
