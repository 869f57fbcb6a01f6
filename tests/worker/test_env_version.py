"""A gradient can be traced to the version of the environment that played for it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tradewind.envs.protocol import load_env
from tradewind.envs.version import name_and_version
from tradewind.types.lease import Lease
from tradewind.worker.play import player

CODE = """
async def rollout(task, policy):
    return {"status": "completed"}
"""


@pytest.fixture
def lease() -> Lease:
    return Lease(
        rollout_id="g000000-r0",
        task_id="t",
        input={},
        base_url="http://127.0.0.1:1/v1",
        model="policy",
        model_key="m",
        result_key="r",
        deadline=time.time() + 60,
        heartbeat_s=5.0,
    )


def test_an_outcome_names_the_environment_and_other_code_has_another_version(
    tmp_path: Path, lease: Lease
) -> None:
    names = []
    for number, code in enumerate((CODE, CODE, CODE + "\n# changed")):
        (tmp_path / f"env{number}.py").write_text(code)
        env = load_env(str(tmp_path / f"env{number}.py"))
        names.append(asyncio.run(player(env)(lease)).environment)
    assert names[0].startswith("env0:rollout ")
    first, same, other = (name.split()[1] for name in names)
    assert first == same != other and len(first) == 12


def test_code_without_a_file_is_of_unknown_version() -> None:
    scope: dict = {}
    exec(CODE, scope)
    scope["rollout"].__module__ = "typed_in"
    assert name_and_version(scope["rollout"]) == "typed_in:rollout unknown"
