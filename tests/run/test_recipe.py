from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import pytest
from recipes import TEXT, write_recipe

from tradewind.run.recipe import apply_override, read_recipe
from tradewind.run.resolved import differences, write_toml
from tradewind.run.sentences import toml_path
from tradewind.types import UserError

SHORTEST = '[model]\npath = "model"\n[env]\nentry = "my_env.py"\n'


def refused(folder: Path, text: str) -> str:
    with pytest.raises(UserError) as caught:
        read_recipe(write_recipe(folder, text))
    return str(caught.value)


def test_a_recipe_is_named_by_its_file_and_its_places_are_filled_in(tmp_path: Path) -> None:
    recipe = read_recipe(write_recipe(tmp_path), runs=tmp_path / "runs")
    assert recipe.run.name == "small"
    data = tmp_path / "runs" / "small" / "data"
    assert recipe.tasks.path == data / "tasks.jsonl", "a default is filled in, too"
    assert recipe.env.prepare == f"{sys.executable} make.py {data} 7"


def test_an_unknown_key_names_its_path_its_value_and_the_nearest_key(tmp_path: Path) -> None:
    said = refused(tmp_path, TEXT + "stpes = 4\n")
    assert "[trainer] stpes (value 4) is not a known key; did you mean 'steps'?" in said
    assert "small.toml" in said


def test_an_unknown_section_names_the_nearest_section(tmp_path: Path) -> None:
    said = refused(tmp_path, TEXT + "[trianer]\nsteps = 1\n")
    assert "[trianer] is not a known key; did you mean 'trainer'?" in said


def test_a_key_of_a_pool_is_counted_from_one(tmp_path: Path) -> None:
    said = refused(tmp_path, TEXT.replace('name = "oregon"', 'name = "oregon"\nthraeds = 1'))
    assert "[[pools]] #2 thraeds (value 1) is not a known key; did you mean 'threads'?" in said


def test_a_wrong_value_says_what_is_allowed(tmp_path: Path) -> None:
    said = refused(tmp_path, TEXT.replace("steps = 3", "steps = -3"))
    assert "[trainer] steps = -3 is not valid: input should be greater than or equal to 0." in said


def test_every_fault_is_told_at_once(tmp_path: Path) -> None:
    said = refused(tmp_path, TEXT.replace("steps = 3", "steps = -3\nlearning_rate = 1"))
    assert "[trainer] steps" in said and "[trainer] learning_rate" in said


def test_missing_pieces_get_a_sentence(tmp_path: Path) -> None:
    assert "[model] is missing" in refused(tmp_path, TEXT.replace('[model]\npath = "model"', ""))
    assert "set one of path, hub or package" in refused(tmp_path, TEXT.replace("path =", "#"))
    assert "pools is empty, so nobody would sample" in refused(tmp_path, "pools = []\n" + SHORTEST)
    assert "[run] name = 'a/b' is not valid: it names a folder" in refused(
        tmp_path, SHORTEST + '[run]\nname = "a/b"\n'
    )


def test_the_shortest_recipe_names_a_model_and_an_environment(tmp_path: Path) -> None:
    """It had to name a pool and a function, and was mid-trained on a corpus that nobody had."""
    recipe = read_recipe(write_recipe(tmp_path, SHORTEST))
    assert len(recipe.pools) == 1 and recipe.midtrain.steps == 0
    named = read_recipe(write_recipe(tmp_path, SHORTEST + "[midtrain]\n"))
    assert named.midtrain.steps > 0


def test_two_pools_of_one_name_are_refused(tmp_path: Path) -> None:
    said = refused(tmp_path, TEXT.replace("oregon", "paris"))
    assert "two [[pools]] have the same name (paris, paris)" in said


def test_controller_and_trainer_must_not_disagree(tmp_path: Path) -> None:
    said = refused(tmp_path, TEXT + "[controller]\nmax_staleness = 5\n")
    assert "[controller] max_staleness is 5 and [trainer] max_staleness is 2" in said


def test_broken_toml_names_the_line(tmp_path: Path) -> None:
    said = refused(tmp_path, "[run\nname = 1")
    assert "not valid TOML" in said and "line 1" in said


def test_a_recipe_that_is_not_there_gets_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the recipe cannot be read"):
        read_recipe(tmp_path / "none.toml")


def test_overrides_reach_keys_sections_and_pools(tmp_path: Path) -> None:
    overrides = ["trainer.steps=5", "run.name=other", "pools.1.name=lima", "midtrain.lr=1e-4"]
    recipe = read_recipe(write_recipe(tmp_path), overrides)
    assert (recipe.trainer.steps, recipe.run.name, recipe.midtrain.lr) == (5, "other", 1e-4)
    assert [pool.name for pool in recipe.pools] == ["paris", "lima"]


@pytest.mark.parametrize("override", ["steps", "=3", "a..b=1", "pools.7.name=x", "x.y.z=1"])
def test_an_override_that_leads_nowhere_gets_a_sentence(override: str) -> None:
    with pytest.raises(UserError, match="override"):
        apply_override({"pools": [{}], "x": {"y": 3}}, override)


def test_the_resolved_recipe_reads_back_equal(tmp_path: Path) -> None:
    text = TEXT + "loss_floats = {clip = 0.5}\n[env.settings]\nA = 'quote \" and \\ and é'\n"
    recipe = read_recipe(write_recipe(tmp_path, text), runs=tmp_path)
    for explain in (False, True):
        written = write_toml(recipe, explain=explain)
        assert read_recipe(write_recipe(tmp_path, written, "again.toml"), runs=tmp_path) == recipe


def test_every_key_of_a_resolved_recipe_is_explained(tmp_path: Path) -> None:
    lines = write_toml(read_recipe(write_recipe(tmp_path)), explain=True).splitlines()
    assert "# ledger = (not set)" in lines, "keys without a value are there, too"
    for before, line in pairwise(lines):
        if " = " in line and not line.startswith("#"):
            assert before.startswith("# "), line


def test_a_key_that_another_table_has_too_is_still_seen_to_change(tmp_path: Path) -> None:
    """`[midtrain] steps = 0` went unnoticed wherever `[control] steps = 0` stood."""
    mine = read_recipe(write_recipe(tmp_path, TEXT + "[midtrain]\nsteps = 40\n"))
    other = read_recipe(write_recipe(tmp_path, TEXT + "[midtrain]\nsteps = 0\n"))
    assert mine.control.steps == 0
    found = differences(write_toml(mine), write_toml(other))
    assert found == ["[midtrain] steps = 0 (was 40)"]
    assert differences(write_toml(mine), write_toml(mine)) == []


def test_toml_paths_look_like_the_file() -> None:
    assert toml_path(("trainer", "steps")) == "[trainer] steps"
    assert toml_path(("pools", 0, "name")) == "[[pools]] #1 name"
    assert toml_path(("run",)) == "[run]"
    assert toml_path(()) == "the recipe"
