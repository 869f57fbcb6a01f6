"""Pages that would go stale unnoticed fail here instead."""

import re
from pathlib import Path

import pytest
from typer.main import get_command

from tradewind.run.cli import app

ROOT = Path(__file__).parents[2]
PAGES = ["README.md"]
PAGES += ["CONTRIBUTING.md", "benchmarks/README.md"]
PAGES += sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md") if page.stem != "plan")
PAGES += sorted(str(page.relative_to(ROOT)) for page in ROOT.glob("examples/*/README.md"))


def stops(page: str) -> list[tuple[int, list[str]]]:
    """The twelve-stop table of a page: (number, files named in the row)."""
    rows = re.findall(r"^\| (\d+) \|(.*)\|$", (ROOT / page).read_text(), re.MULTILINE)
    return [(int(n), re.findall(r"`([\w/]+\.py)`", row)) for n, row in rows]


def test_the_twelve_stops_are_twelve_and_fit_in_fifteen_files() -> None:
    table = stops("docs/architecture.md")
    assert [number for number, _ in table] == list(range(1, 13))
    assert all(files for _, files in table)
    assert len({file for _, files in table for file in files}) <= 15


def test_every_file_of_the_twelve_stops_exists() -> None:
    for number, files in stops("docs/architecture.md"):
        for file in files:
            assert (ROOT / "src/tradewind" / file).is_file(), f"stop {number} names {file}"


@pytest.mark.parametrize("page", [*PAGES, "docs/plan.md"])
def test_every_file_that_a_page_names_exists(page: str) -> None:
    known = [f"/{file.relative_to(ROOT)}" for file in ROOT.glob("[a-z]*/**/*.py")]
    for named in re.findall(r"`([\w/]+/\w+\.py)`", (ROOT / page).read_text()):
        assert any(file.endswith(f"/{named}") for file in known), f"{page} names {named}"


@pytest.mark.parametrize("page", PAGES)
def test_links_to_files_of_this_repository_hold(page: str) -> None:
    folder = (ROOT / page).parent
    for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", (ROOT / page).read_text()):
        assert (folder / target).exists(), f"{page} links to {target}"


def test_readme_commands_are_verbs_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text()
    verbs = re.findall(r"^ {0,4}make ([a-z-]+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert {"quickstart", "test"} <= set(verbs)
    for verb in verbs:
        assert re.search(rf"^{verb}:", makefile, re.MULTILINE), f"README names make {verb}"


COMMAND = re.compile(r"(?:^ {4}|`)(?:[A-Z_]+=\S+ )?tradewind ([a-z][^`#\n]*)", re.MULTILINE)


@pytest.mark.parametrize("page", [*PAGES, "docs/plan.md", "CHANGELOG.md"])
def test_every_command_and_option_that_a_page_names_exists(page: str) -> None:
    """Of verbs that start one process only the verb: their options are their own parser's."""
    for written in COMMAND.findall((ROOT / page).read_text()):
        command, words = get_command(app), written.split()
        while words and (inner := getattr(command, "commands", None)):
            if words[0] not in inner:
                if "/" not in words[0]:  # `trust RUN` is `trust show RUN`
                    assert page == "CHANGELOG.md", f"{page} names `tradewind {written}`"
                break
            command = inner[words.pop(0)]
        own = command.context_settings.get("ignore_unknown_options")
        if own or hasattr(command, "commands"):
            continue
        known = {name for parameter in command.params for name in parameter.opts} | {"--help"}
        for word in words:
            option = word.strip("[](),").split("=")[0]
            if option.startswith("--"):
                assert option in known, f"{page} names {option} of `tradewind {written}`"
