"""The whole topology with its ledger in Debian's PostgreSQL, which asks for a password."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from common import postgres
from sqlalchemy import make_url

from tradewind.ledger.ledger import Ledger
from tradewind.run.prepare import open_run
from tradewind.run.recipe import read_recipe
from tradewind.run.workspace import Workspace
from tradewind.types import UserError

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

FULL = bool(os.environ.get("TRADEWIND_FULL"))
PASSWORD = "a-password-that-is-nowhere"
SMALL = ("--set=control.steps=0", "--set=midtrain.steps=0", "--set=trainer.steps=1")


def tradewind(place: Path, env: dict[str, str], *arguments: str) -> subprocess.CompletedProcess:
    argv = [sys.executable, "-m", "tradewind", *arguments]
    return subprocess.run(
        argv, cwd=place, env=env, capture_output=True, text=True, timeout=500, check=False
    )


@pytest.fixture
def database():
    if postgres.programs() is None:
        pytest.skip(postgres.MISSING)
    with postgres.running(PASSWORD) as server:
        yield make_url(postgres.new_database(server.url))


def test_a_run_on_postgresql_ends_sound_and_its_password_is_on_no_disk_and_in_no_argv(
    place: Path, child_env: dict[str, str], database, monkeypatch
) -> None:
    url = database._replace(password=None).render_as_string()
    env = {**child_env, "PGPASSWORD": PASSWORD}
    asked = ("tiny.toml", f"--set=run.ledger={json.dumps(url)}", *SMALL)
    if FULL:
        without = tradewind(place, child_env, "run", *asked)
        assert without.returncode == 2 and "password" in without.stderr, without.stderr
    done = tradewind(place, env, "run", *asked, "--json")
    run = place / "runs" / "tiny"
    logs = "".join(log.read_text()[-2000:] for log in run.glob("logs/*.log"))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr + logs
    assert not (run / "ledger.sqlite").exists()
    written = [file for file in run.rglob("*") if file.is_file() and not file.is_symlink()]
    assert not [file for file in written if PASSWORD.encode() in file.read_bytes()]
    assert PASSWORD not in done.stdout + done.stderr
    for verb in (["status"], ["report"], ["ledger", "audit"]) if FULL else (["ledger", "audit"],):
        told = tradewind(place, env, *verb, "runs/tiny")
        assert told.returncode == 0, told.stderr
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    with closing(Ledger.open(url)) as ledger:
        assert ledger.audit() == []
        assert [step.step for step in ledger.steps()] == [0]
    recipe = read_recipe(
        place / "tiny.toml", [option.removeprefix("--set=") for option in asked[1:]]
    )
    other = Workspace(place / "elsewhere" / "tiny")
    with pytest.raises(UserError, match="another run"):
        open_run(recipe, other, [], "tiny-main")
