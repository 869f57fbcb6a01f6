from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made in a process of its own: this one stays without torch."""
    folder = tmp_path_factory.mktemp("tiny") / "model"
    subprocess.run([sys.executable, str(HERE / "tiny_model.py"), str(folder)], check=True)
    return folder


@pytest.fixture
def place(tmp_path: Path, tiny_model: Path) -> Path:
    """A folder with product, recipe and model, as a customer would have it."""
    shutil.copytree(HERE / "world", tmp_path, dirs_exist_ok=True)
    (tmp_path / "model").symlink_to(tiny_model)
    return tmp_path


@pytest.fixture(scope="session")
def child_env() -> dict[str, str]:
    """A child that works elsewhere finds the same modules."""
    places = os.pathsep.join(str(Path(place).absolute()) for place in sys.path if place)
    return {**os.environ, "PYTHONPATH": places, "COLUMNS": "100"}
