"""Parcels: what was written is read, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tradewind.pool.engines.vllm.parcel import DamagedParcel, Item, read, write


def items() -> list[Item]:
    draw = np.random.default_rng(0)
    whole = draw.integers(0, 2**16, (7, 5), np.uint16)
    where = np.array([0, 3, 34], np.int32)
    return [
        Item("whole", "BF16", (7, 5), None, whole),
        Item("some", "F32", (5, 7), where, draw.standard_normal(3).astype(np.float32)),
        Item("empty", "BF16", (2, 2), where[:0], whole.reshape(-1)[:0]),
    ]


def test_what_was_written_is_read(tmp_path: Path) -> None:
    digest = write(tmp_path / "p", items())
    found = read(tmp_path / "p", digest)
    assert [(i.name, i.tag, i.shape) for i in found] == [(i.name, i.tag, i.shape) for i in items()]
    for item, wanted in zip(found, items(), strict=True):
        assert item.values.tobytes() == wanted.values.tobytes()
        assert (item.indices is None) == (wanted.indices is None)
        assert item.indices is None or np.array_equal(item.indices, wanted.indices)
    assert found[0].values.shape == (7, 5)


def test_nobody_else_can_read_it(tmp_path: Path) -> None:
    write(tmp_path / "p", items())
    assert (tmp_path / "p").stat().st_mode & 0o077 == 0


def test_any_flipped_bit_is_refused_unless_it_is_padding(tmp_path: Path) -> None:
    path = tmp_path / "p"
    digest = write(path, items())
    good = path.read_bytes()
    accepted = []
    for at in range(len(good)):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        try:
            read(path, digest)
        except DamagedParcel:
            continue
        accepted.append(good[at])
    assert not any(accepted), "only zeros between the parts may change"
    assert len(accepted) < 64 * 5


@pytest.mark.parametrize("size", [0, 7, 20, 200, -1])
def test_a_file_that_was_cut_off_is_refused(tmp_path: Path, size: int) -> None:
    path = tmp_path / "p"
    draw = np.random.default_rng(1)
    digest = write(path, [Item("w", "BF16", (64,), None, draw.integers(1, 9, 64, np.uint16))])
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises((DamagedParcel, ValueError)):
        read(path, digest)


def test_another_parcel_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "p", items())
    other = write(tmp_path / "q", items()[:1])
    with pytest.raises(DamagedParcel, match="announced"):
        read(tmp_path / "p", other)
