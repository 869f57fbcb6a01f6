"""Safetensors folders without torch, against the safetensors package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tradewind.types import UserError
from tradewind.weights.checkpoint import INDEX, SINGLE, read_file, read_folder, write_file
from tradewind.weights.tensors import STORAGE, Array, TensorSet

safetensors_numpy = pytest.importorskip("safetensors.numpy")


def test_the_safetensors_package_reads_what_we_write(tmp_path: Path, model: Any) -> None:
    plain = {name: array for name, array in model.items() if array.dtype != np.uint16}
    write_file(tmp_path / SINGLE, TensorSet(plain))
    theirs = safetensors_numpy.load_file(tmp_path / SINGLE)
    assert theirs.keys() == plain.keys()
    assert all(np.array_equal(theirs[name], plain[name]) for name in plain)


def test_we_read_what_the_safetensors_package_writes(tmp_path: Path, model: Any) -> None:
    plain = {name: array for name, array in model.items() if array.dtype != np.uint16}
    safetensors_numpy.save_file(plain, tmp_path / SINGLE)
    ours = read_folder(tmp_path)
    assert ours.keys() == plain.keys()
    assert all(np.array_equal(ours[name], plain[name]) for name in plain)


@pytest.mark.parametrize("tag", sorted(STORAGE))
def test_every_dtype_is_read_back_with_its_tag_and_bits(tmp_path: Path, tag: str) -> None:
    bits = np.random.default_rng(0).integers(0, 2, 24 * 8, np.uint8)
    array = bits[: 24 * STORAGE[tag].itemsize].view(STORAGE[tag]).reshape(2, 3, 4)
    arrays = {"x": array, "empty": array[:0], "number": array[0, 0, 0].reshape(())}
    tensors = TensorSet(arrays, dict.fromkeys(arrays, tag))
    write_file(tmp_path / SINGLE, tensors)
    back = read_file(tmp_path / SINGLE)
    for name in arrays:
        assert back.tag(name) == tag
        assert back[name].shape == tensors[name].shape
        assert back[name].tobytes() == tensors[name].tobytes()


def shards(folder: Path, model: dict[str, Array]) -> dict[str, Any]:
    names = sorted(model)
    weight_map: dict[str, str] = {}
    for number, part in enumerate((names[:2], names[2:]), 1):
        file = f"model-{number:05d}-of-00002.safetensors"
        write_file(folder / file, TensorSet({name: model[name] for name in part}))
        weight_map |= dict.fromkeys(part, file)
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / INDEX).write_text(json.dumps(index))
    return index


def test_shards_are_read_as_one(tmp_path: Path, model: Any) -> None:
    shards(tmp_path, model)
    found = read_folder(tmp_path)
    assert found.keys() == model.keys()
    assert all(np.array_equal(found[name], model[name]) for name in model)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda m: m.update({"lost": "model-00001-of-00002.safetensors"}), "1 tensors are in no"),
        (lambda m: m.pop("model.scale"), "does not place there"),
        (lambda m: m.update({"x": "../x.safetensors"}), "outside of the folder"),
        (lambda m: m.update({"x": "model-00009.safetensors"}), "does not exist"),
    ],
)
def test_an_index_that_does_not_fit_its_shards_is_a_sentence(
    tmp_path: Path, model: Any, change: Any, sentence: str
) -> None:
    index = shards(tmp_path, model)
    change(index["weight_map"])
    (tmp_path / INDEX).write_text(json.dumps(index))
    with pytest.raises(UserError, match=sentence):
        read_folder(tmp_path)


def test_a_missing_folder_or_file_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="folder does not exist"):
        read_folder(tmp_path / "nowhere")
    with pytest.raises(UserError, match="weights file does not exist"):
        read_folder(tmp_path)


def test_a_file_cut_at_any_length_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / SINGLE
    write_file(path, TensorSet({"x": np.arange(4, dtype=np.float32)}))
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(UserError, match="cannot be read"):
            read_file(path)


def header(text: str, body: bytes = bytes(8)) -> bytes:
    return len(text).to_bytes(8, "little") + text.encode() + body


@pytest.mark.parametrize(
    "content",
    [
        b"\xff" * 64,
        header("[]"),
        header("not json"),
        header('{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"x":1}'),
        header('{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,9]}}'),
        header('{"x":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}'),
        header('{"x":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}}'),
        header('{"x":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}'),
        header('{"x":{"dtype":"Q4","shape":[2],"data_offsets":[0,8]}}'),
        header('{"x":{"dtype":"F32","shape":[2]}}'),
        header('{"x":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}'),
        header('{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'),
        header('{"x":7}'),
        header("{}"),
    ],
)
def test_a_header_that_lies_is_a_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / SINGLE
    path.write_bytes(content)
    with pytest.raises(UserError, match="cannot be read"):
        read_file(path)


def test_a_tag_that_does_not_fit_its_array_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        TensorSet({"x": np.zeros(2, np.float32)}, {"x": "BF16"})
    with pytest.raises(ValueError, match="no dtype tag"):
        TensorSet({"x": np.zeros(2, np.complex64)})
