from __future__ import annotations

import json
from pathlib import Path

import pytest
from recipes import TEXT, write_recipe

from tradewind.run.launcher import control_recipe
from tradewind.run.process import inherited_environment
from tradewind.run.recipe import read_recipe
from tradewind.run.topology import Topology
from tradewind.run.waits import Waits, read_waits
from tradewind.run.workspace import Workspace
from tradewind.types import Beat, UserError
from tradewind.weights.signing import VARIABLE, Signer

USERS = '[users]\ncommand = "chat {base_url} {model} {rate}"\ninterval_s = 4.0\n'


def plan(folder: Path, text: str = TEXT + USERS) -> Topology:
    recipe = read_recipe(write_recipe(folder, text), runs=folder / "runs")
    return Topology.plan(recipe, Workspace(folder / "runs" / "small"), folder)


def test_secrets_are_in_the_environment_of_those_who_need_them_and_nowhere_else(
    tmp_path: Path,
) -> None:
    topology = plan(tmp_path)
    users = topology.users()
    assert users is not None
    specs = [*topology.serving(), topology.trainer("rl"), users]
    keys = {name: key for name, key in vars(topology.keys).items() if key is not None}
    written = "".join(f.read_text() for f in tmp_path.rglob("*.json"))
    for name, key in keys.items():
        assert not any(key in word for spec in specs for word in spec.argv), name
        assert key not in written, name
    holders = {
        spec.name: {name for name, key in keys.items() if key in spec.env.values()}
        for spec in specs
    }
    assert holders == {
        "controller": {"pool", "worker", "admin"},
        "gateway": {"pool", "user"},
        "pool-paris": {"pool"},
        "pool-oregon": {"pool"},
        "grader": set(),
        "worker": {"worker"},
        "trainer": set(),
        "users": {"user"},
    }


def test_controller_and_pools_get_the_addresses_of_this_launch(tmp_path: Path) -> None:
    topology = plan(tmp_path)
    topology.serving()
    folder = tmp_path / "runs" / "small" / "config"
    controller = json.loads((folder / "controller.json").read_text())
    pool = json.loads((folder / "pool-paris.json").read_text())
    assert controller["gateway_url"] == topology.gateway_url
    assert controller["port"] == topology.controller_port
    assert pool["controller"] == topology.controller_url
    assert pool["bucket"] == (tmp_path / "runs" / "small" / "bucket").as_uri()


@pytest.mark.parametrize("rehearsed", [0, 2])
def test_the_trainer_has_the_corpus_if_steps_rehearse_and_the_control_arm_never(
    tmp_path: Path, rehearsed: int
) -> None:
    """Else the run without mid-training would learn from the same documents by the back door."""
    recipe = read_recipe(
        write_recipe(tmp_path, TEXT), [f"trainer.rehearsal_rows={rehearsed}"], tmp_path / "runs"
    )
    control = control_recipe(recipe)
    assert control.trainer.rehearsal_rows == 0
    for one, named in ((recipe, bool(rehearsed)), (control, False)):
        topology = Topology.plan(one, Workspace(tmp_path / "runs" / "small"), tmp_path)
        argv = topology.trainer("rl").argv
        assert ("--corpus" in argv) is named
        if named:
            assert argv[argv.index("--corpus") + 1].endswith("corpus.jsonl")


def test_the_signing_key_is_the_trainers_alone_and_pools_trust_its_public_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker runs the customer's code, in the launcher's environment."""
    secret = "11" * 32
    monkeypatch.setenv(VARIABLE, secret)
    topology = plan(tmp_path)
    assert VARIABLE not in inherited_environment()
    specs = [*topology.serving(), topology.trainer("rl")]
    assert [spec.name for spec in specs if secret in spec.env.values()] == ["trainer"]
    written = {f.name: f.read_text() for f in tmp_path.rglob("*.json")}
    assert not any(secret in text for text in written.values())
    pools = [json.loads(text) for name, text in written.items() if name.startswith("pool-")]
    assert pools and all(pool["trust"] == [Signer(secret).public] for pool in pools)


def test_password_of_the_database_is_for_those_who_open_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", "of-the-database")
    topology = plan(tmp_path)
    specs = [*topology.serving(), topology.trainer("rl")]
    holders = {spec.name for spec in specs if "of-the-database" in spec.env.values()}
    assert holders == {"controller", "gateway", "grader", "trainer"}
    assert "PGPASSWORD" not in inherited_environment()


JUDGE = """
[[grader.signals]]
[[grader.signals]]
name = "tone"
use = "judge"
options = { key_env = "OUR_JUDGE_KEY" }
[grader.probes.heldout]
tone = { key_env = "OTHER_JUDGE_KEY" }
"""


@pytest.mark.parametrize("key", ["OUR_JUDGE_KEY", "OTHER_JUDGE_KEY"])
def test_key_of_a_judge_is_for_the_grader_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv(key, "of-the-judge")
    topology = plan(tmp_path, TEXT + USERS + JUDGE)
    specs = [*topology.serving(), topology.trainer("rl"), topology.users()]
    seen = {spec.name for spec in specs if key in inherited_environment(spec.hidden)}
    assert seen == {"grader"}


def test_users_get_the_gateway_and_their_rate(tmp_path: Path) -> None:
    topology = plan(tmp_path)
    users = topology.users()
    assert users is not None
    assert users.argv == ("chat", topology.gateway_url, "policy", "0.25")
    assert plan(tmp_path, TEXT).users() is None


def test_a_port_that_the_recipe_sets_is_taken_or_refused(tmp_path: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match="the gateway cannot listen"):
            plan(tmp_path, TEXT + f"[gateway]\nport = {port}\n")
    assert plan(tmp_path, TEXT + f"[gateway]\nport = {port}\n").gateway_port == port


def test_waits_add_up_over_launches_and_over_numbers_in_their_reasons(tmp_path: Path) -> None:
    def beat(reason: str | None) -> Beat:
        fields = {"process": "trainer", "doing": "step", "since": 0.0, "at": 0.0}
        return Beat(waiting_for=reason, owner="grader" if reason else None, **fields)

    file = tmp_path / "waits.json"
    Waits(file).add([beat("2 more closed groups")], 1.5)
    Waits(file).add([beat("1 more closed groups"), beat(None)], 2.0)
    assert read_waits(file) == [("trainer", "n more closed groups (grader)", 3.5)]
