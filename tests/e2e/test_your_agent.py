"""docs/your-agent.md, done by the letter: its files are made and its commands run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "your-agent.md"
SMALLER: dict[tuple[str, ...], tuple[str, ...]] = {
    ("env", "check"): ("--only=plays", "--only=calls-the-model"),
    ("run", "desk.toml"): (
        *("--set=model.path={model}", "--set=trainer.steps=1", "--set=trainer.groups_per_step=1"),
        *("--set=controller.group_size=2", "--set=eval.limit=1", "--set=trainer.threads=1"),
    ),
}
"""What is added, so that it takes seconds: a tiny model, one step, two of the checks."""


def files(page: str) -> dict[str, str]:
    """Each file that is named in bold before its block."""
    return dict(re.findall(r"\*\*`([\w.]+)`\*\*:\n\n```\w+\n(.*?)```", page, re.DOTALL))


def commands(page: str) -> list[list[str]]:
    lines = re.findall(r"^    ((?:python|tradewind) [^#\n]+)", page, re.MULTILINE)
    return [line.split() for line in lines]


@pytest.mark.e2e
@pytest.mark.timeout(900)
def test_a_first_user_gets_from_nothing_to_a_run_by_the_page_alone(
    tmp_path: Path, tiny_model: Path, child_env: dict[str, str]
) -> None:
    page = PAGE.read_text()
    for name, text in files(page).items():
        (tmp_path / name).write_text(text)
    said = {}
    for words in commands(page):
        python = words[0] == "python"
        argv = [sys.executable, *(words[1:] if python else ["-m", "tradewind", *words[1:]])]
        argv += [s.format(model=tiny_model) for s in SMALLER.get(tuple(words[1:3]), ())]
        done = subprocess.run(
            argv, cwd=tmp_path, env=child_env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{words}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        said[" ".join(words[1:3])] = done.stdout
    assert "2 passed, 0 failed" in said["env check"]
    assert "48 of 48 tasks are admitted" in said["tasks admit"]
    assert "after RL" in said["run desk.toml"], "RL that followed no mid-training is not called so"
    assert "exact" not in said["rollouts runs/desk"] and "g0000" in said["rollouts runs/desk"]
    assert_one_whole(tmp_path, child_env)


def assert_one_whole(place: Path, env: dict[str, str]) -> None:
    """The list as data, and one rollout of the evaluation from the question to the reward."""

    def rollouts(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "tradewind", "rollouts", "runs/desk", *words]
        return subprocess.run(argv, cwd=place, env=env, capture_output=True, text=True, check=False)

    (line,) = json.loads(rollouts("--eval=base", "--json").stdout)
    assert (line["purpose"], line["status"], line["version"]) == ("base", "completed", 0)
    whole = json.loads(rollouts(line["rollout_id"], "--json").stdout)
    assert whole["artefacts"] == {"answer": line["said"]} or not line["said"].isprintable()
    assert [score["source"] for score in whole["scores"]] == ["exact"]
    shown = rollouts(line["rollout_id"]).stdout
    assert whole["task"]["input"]["ticket"] in shown and "reward 0.00" in shown
    wrong = rollouts("g999999-r0")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
