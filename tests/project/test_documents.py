"""Pages that would go stale unnoticed fail here instead."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ["README.md"]
PAGES += [f"docs/{page}.md" for page in ("architecture", "vllm", "environments", "rewards")]


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
