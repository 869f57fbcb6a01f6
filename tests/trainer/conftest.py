"""`tiny` is the module tests/trainer/tiny.py, which scripts in child processes import as well."""

import sys
from pathlib import Path

import pytest
import torch


@pytest.fixture(scope="session")
def tiny():
    sys.path.insert(0, str(Path(__file__).parent))
    import tiny

    return tiny


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Two threads would wait for each other longer than these models take to compute."""
    torch.set_num_threads(1)


@pytest.fixture
def model_folder(tiny, tmp_path):
    return tiny.save_model(tmp_path / "model")
