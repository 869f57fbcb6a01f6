"""A recipe that is complete, small, and has no model behind it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

CHILD_ENV = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(str(Path(place).absolute()) for place in sys.path if place),
    "COLUMNS": "120",
    "TERM": "dumb",
}
"""A child that works elsewhere finds the same modules, and its help has one width."""

TEXT = """
[tasks]
admit = false
[model]
path = "model"
[env]
entry = "toy.env:rollout"
prepare = "{python} make.py {data} {seed}"
[[pools]]
name = "paris"
[[pools]]
name = "oregon"
[trainer]
steps = 3
"""


def write_recipe(folder: Path, text: str = TEXT, name: str = "small.toml") -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file
