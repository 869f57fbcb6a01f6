from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from recipes import CHILD_ENV, TEXT, write_recipe
from rich.text import Text
from typer.main import get_command

import tradewind
from tradewind.run.cli import app

VERBS = (
    *("run", "status", "report", "weights", "version"),
    *("controller", "gateway", "pool", "relay", "worker", "grader", "trainer"),
)


def call(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tradewind", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=CHILD_ENV,
    )


def test_help_names_every_verb() -> None:
    done = call("--help")
    assert done.returncode == 0
    for verb in VERBS:
        assert f" {verb} " in done.stdout, verb


def test_no_help_holds_brackets_that_the_terminal_takes_for_markup() -> None:
    """`[[signals]]` was shown as `[]`, and `[model] path` as ` path`."""

    def helps(command, name: str):
        yield name, command.help or ""
        yield from ((f"{name} {p.name}", getattr(p, "help", None) or "") for p in command.params)
        for verb, inner in getattr(command, "commands", {}).items():
            yield from helps(inner, f"{name} {verb}")

    said = helps(get_command(app), "tradewind")
    assert [name for name, text in said if Text.from_markup(text).plain != text] == []


@pytest.mark.parametrize("verb", ["run", "status", "grader", "gateway"])
def test_every_verb_has_help(verb: str) -> None:
    done = call(verb, "--help")
    assert done.returncode == 0 and "usage" in done.stdout.lower()


def test_version_is_the_packages() -> None:
    assert call("version").stdout.strip() == tradewind.__version__


def test_a_dry_run_prints_every_key_and_starts_nothing(tmp_path: Path) -> None:
    write_recipe(tmp_path)
    done = call("run", "small.toml", "--dry-run", "--set", "trainer.lr=3e-6", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "lr = 3e-06" in done.stdout and "[[pools]]" in done.stdout
    assert [p.name for p in tmp_path.iterdir()] == ["small.toml"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "none.toml"), "the recipe cannot be read"),
        (("run", "small.toml", "--set", "trainer.stesp=1"), "did you mean 'steps'?"),
        (("run", "small.toml"), "the model folder does not exist"),
        (("status", "nowhere"), "this is not the folder of a run"),
        (("report", "nowhere"), "this is not the folder of a run"),
    ],
)
def test_what_cannot_work_is_one_sentence_and_exit_code_2(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    write_recipe(tmp_path, TEXT)
    done = call(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Fix: " in done.stderr and "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_command_line_needs_no_torch() -> None:
    heavy = "{'torch', 'transformers', 'safetensors'}"
    code = f"import sys, tradewind.run.cli; print({heavy} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=CHILD_ENV, check=True
    )
    assert done.stdout.strip() == "set()"
