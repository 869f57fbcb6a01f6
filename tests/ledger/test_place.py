"""Where a run says its ledger is, and that a password is never part of it."""

from __future__ import annotations

import pytest

from tradewind.ledger.place import has_ledger, ledger_of, point_to, without_password
from tradewind.run.config import RunConfig
from tradewind.run.ledger import audit
from tradewind.types import UserError

URL = "postgresql://me@db.example/run"
SECRET = "postgresql://me:a-secret@db.example/run"


def test_folder_names_its_database_once_and_for_all(tmp_path):
    assert (ledger_of(tmp_path), has_ledger(tmp_path)) == (str(tmp_path / "ledger.sqlite"), False)
    mark = point_to(tmp_path, URL)
    assert (ledger_of(tmp_path), has_ledger(tmp_path)) == (URL, True)
    assert point_to(tmp_path, URL) == mark


def test_two_folders_have_different_marks_for_one_database(tmp_path):
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    assert len({point_to(folder, URL) for folder in folders}) == 2


@pytest.mark.parametrize("place", [URL, "runs/x/ledger.sqlite", "postgresql://db/x?passfile=f"])
def test_place_without_a_password_is_taken(place):
    assert without_password(place) == place


@pytest.mark.parametrize(
    "said",
    [
        lambda folder: without_password(SECRET),
        lambda folder: point_to(folder, SECRET),
        lambda folder: audit(SECRET),
        lambda folder: RunConfig(ledger=SECRET),
    ],
    ids=["anywhere", "folder", "audit", "recipe"],
)
def test_password_is_refused_with_the_way_to_give_it_and_not_repeated(tmp_path, said):
    with pytest.raises((UserError, ValueError), match="PGPASSWORD") as caught:
        said(tmp_path)
    assert "a-secret" not in str(caught.value)
    assert not has_ledger(tmp_path)


def test_ledger_of_a_recipe_must_be_a_database():
    with pytest.raises(ValueError, match="postgresql://"):
        RunConfig(ledger="mysql://db/x")
