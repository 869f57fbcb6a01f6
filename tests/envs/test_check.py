"""`tradewind env check` passes what keeps the protocol, and each check notices its faults."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest
from other_server import FAULTS, OtherServer
from typer.testing import CliRunner

from tradewind.envs.check.examine import CHECKS, Verdict, chosen, examine
from tradewind.envs.check.model import CheckModel
from tradewind.envs.check.subject import Limits, Subject
from tradewind.run.cli import app
from tradewind.types import UserError

SECRET = "a-shared-secret-of-some-length"
GOOD = Limits(patience_s=20.0, settle_s=0.2, lease_s=0.8)
"""What has to come may take long on a busy machine; what must not follow is waited for shortly."""
BAD = Limits(patience_s=20.0, settle_s=5.0, lease_s=0.8)
"""The other way round: a fault ends the wait as soon as it shows."""
SLEPT = Limits(patience_s=1.0, settle_s=0.2, lease_s=0.3)
"""For faults that show only when a whole wait is over."""


def check(serve, server, only=(), limits: Limits = GOOD):
    """The findings by name."""

    async def once():
        model = CheckModel("ok")
        async with (
            serve(server) as url,
            serve(model.app()) as model_url,
            httpx.AsyncClient(trust_env=False) as http,
        ):
            subject = Subject(
                url=url,
                key=("k", SECRET),
                model=model,
                model_url=f"{model_url}/v1",
                task={"q": 1},
                http=http,
                limits=limits,
            )
            return await examine(subject, only)

    return {finding.name: finding for finding in asyncio.run(once())}


def test_an_implementation_that_shares_no_code_with_ours_passes(serve):
    findings = check(serve, OtherServer(SECRET).app())
    assert {f.name: f.detail for f in findings.values() if f.verdict is not Verdict.PASSED} == {}
    assert len(findings) == len(CHECKS)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_check_notices(serve, fault):
    name = FAULTS[fault]
    slept = ("knows no deadline", "plays inside POST", "does not cancel", "keeps orphans")
    limits = SLEPT if fault in slept else BAD
    finding = check(serve, OtherServer(SECRET, fault).app(), [name], limits)[name]
    assert finding.verdict is Verdict.FAILED, finding
    assert finding.detail and SECRET not in finding.detail


def test_every_check_can_fail():
    assert {check.name for check in CHECKS} == set(FAULTS.values())


def test_a_server_on_which_nothing_can_be_played_fails_once_and_skips_what_needs_a_rollout(serve):
    findings = check(serve, OtherServer(SECRET, "cannot play").app(), ["cancel", "unsigned"])
    assert {name: f.verdict.value for name, f in findings.items()} == {
        "plays": "failed",
        "cancel": "skipped",
        "unsigned": "passed",
    }


def test_a_check_that_does_not_exist_is_a_sentence():
    with pytest.raises(UserError, match="one of reachable, plays"):
        chosen(["speed"])


ENV = """
import httpx
from tradewind.types import Outcome

async def rollout(task, policy):
    async with httpx.AsyncClient(base_url=policy.base_url, trust_env=False) as client:
        answer = await client.post("/chat/completions",
            json={"model": policy.model, "messages": []},
            headers={"authorization": "Bearer " + policy.api_key})
        answer.raise_for_status()
    return Outcome(status=task["say"])
"""


def test_a_python_environment_is_served_and_checked_by_the_command_line(tmp_path):
    (tmp_path / "my_env.py").write_text(ENV)
    quick = ["--settle", "0.2", "--lease", "0.8"]
    command = ["env", "check", f"{tmp_path}/my_env.py", *quick]
    good = CliRunner().invoke(app, [*command, "--json", "--task", '{"say": "completed"}'])
    report = json.loads(good.stdout)
    assert good.exit_code == 0, report
    assert report["passed"] == len(CHECKS) and report["failed"] == report["skipped"] == 0
    bad = CliRunner().invoke(app, [*command, "--only", "cancel", "--task", '{"say": "won"}'])
    assert bad.exit_code == 1
    assert "it ended as failed" in " ".join(bad.stdout.split())
    assert "0 passed, 1 failed, 1 skipped" in bad.stdout


def test_an_environment_that_cannot_be_served_is_a_sentence(tmp_path):
    (tmp_path / "broken_env.py").write_text("import a_module_that_is_not_there\n")
    result = CliRunner().invoke(app, ["env", "check", f"{tmp_path}/broken_env.py"])
    assert isinstance(result.exception, UserError)
    assert "a_module_that_is_not_there" in str(result.exception)
