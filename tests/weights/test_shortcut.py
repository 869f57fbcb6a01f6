"""Shortcuts by themselves: their names, what they hold, and what is no shortcut."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import zstandard

from tradewind.types import RefusedWeights
from tradewind.weights.manifest import unpack
from tradewind.weights.shortcut import (
    Shortcut,
    ends_of,
    publish_shortcut,
    read_shortcut,
    shortcut_key,
)
from tradewind.weights.state import State


def published(chain: Any, start: int, end: int) -> Shortcut | None:
    states = [State.of(number, chain.states[number]) for number in (start, end)]
    base_id = chain.versions[0].state_id
    return publish_shortcut(chain.bucket, "run", base_id, states[0], states[1])


@pytest.fixture
def chain(new_chain: Callable[..., Any]) -> Any:
    return new_chain(3)


def test_a_shortcut_is_read_as_it_was_published(chain: Any) -> None:
    shortcut = published(chain, 1, 3)
    assert shortcut is not None
    assert read_shortcut(chain.bucket, shortcut.key, run_id="run") == shortcut
    assert (shortcut.from_version, shortcut.version) == (1, 3)
    assert shortcut.from_state_id == chain.versions[1].state_id
    assert shortcut.state_id == chain.versions[3].state_id
    stored = sum(len(chain.bucket.get(f.key, limit=2**30)) for f in shortcut.frames)
    assert shortcut.size == stored > 0


def test_shortcuts_to_a_version_are_listed_by_its_number(chain: Any) -> None:
    for start, end in ((0, 2), (1, 3), (0, 3)):
        published(chain, start, end)
    names = chain.bucket.list("shortcuts/")
    assert [ends_of(name) for name in names] == [(0, 2), (0, 3), (1, 3)]
    assert [ends_of(name) for name in names if name.startswith("shortcuts/00000003-")] == [
        (0, 3),
        (1, 3),
    ]


@pytest.mark.parametrize("name", ["shortcuts/x", "manifests/00000003-00000001", "shortcuts/3-1-0"])
def test_another_name_is_no_shortcut(name: str) -> None:
    assert ends_of(name) is None


def test_publishing_a_shortcut_again_writes_nothing(
    chain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = published(chain, 0, 3)
    assert first is not None
    before = chain.bucket.list("shortcuts/"), chain.bucket.list("frames/")
    assert published(chain, 0, 3) is None
    monkeypatch.setattr(chain.bucket, "exists", lambda key: False)  # two at the same time
    assert published(chain, 0, 3) is None
    assert (chain.bucket.list("shortcuts/"), chain.bucket.list("frames/")) == before


def test_a_shortcut_has_a_name_only_when_its_frames_are_there(
    chain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    put = type(chain.bucket).put_new

    def record(bucket: Any, key: str, data: bytes) -> None:
        written.append(key)
        put(bucket, key, data)

    monkeypatch.setattr(type(chain.bucket), "put_new", record)
    shortcut = published(chain, 0, 3)
    assert shortcut is not None
    assert written == [*(frame.key for frame in shortcut.frames), shortcut.key]


def rewritten(chain: Any, change: Callable[[dict[str, Any]], None]) -> str:
    """The sentence with which a shortcut is refused after `change`, under its own name."""
    shortcut = published(chain, 1, 3)
    assert shortcut is not None
    path = chain.folder / shortcut.key
    plain = json.loads(unpack(path.read_bytes()))
    change(plain)
    text = json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()
    path.write_bytes(zstandard.compress(text))
    with pytest.raises(RefusedWeights) as caught:
        read_shortcut(chain.bucket, shortcut.key, run_id="run")
    return str(caught.value)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda s: s.update(format="x"), "unknown format"),
        (lambda s: s.update(run_id="other"), "another run"),
        (lambda s: s.update(from_version=3), "does not lead to a later version"),
        (lambda s: s.update(from_version=0), "under another name"),
        (lambda s: s.update(state_id="b3:" + "0" * 64), "under another name"),
        (lambda s: s.update(size=s["size"] + 1), "another size"),
        (lambda s: s.update(size=-1), "bad"),
        (lambda s: s.update(extra=1), "bad"),
        (lambda s: s.update(version="3"), "canonical"),
        (lambda s: s.update(frames=[], size=0), "out of order"),
        (lambda s: s["tensors"].pop(), "unused"),
        (lambda s: s["tensors"][0]["pieces"].append(s["tensors"][0]["pieces"][0]), "or twice"),
        (lambda s: s["tensors"].reverse(), "out of order"),
    ],
)
def test_a_shortcut_that_lies_is_refused(
    chain: Any, change: Callable[[dict[str, Any]], None], sentence: str
) -> None:
    assert sentence in rewritten(chain, change)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "a shortcut is damaged"),
        (zstandard.compress(b"[]"), "not JSON"),
        (zstandard.compress(bytes(2**27)), "a shortcut declares a size"),
    ],
)
def test_what_is_no_shortcut_is_refused(chain: Any, data: bytes, sentence: str) -> None:
    key = shortcut_key(1, 3, chain.versions[3].state_id)
    chain.bucket.put_new(key, data)
    with pytest.raises(RefusedWeights, match=sentence):
        read_shortcut(chain.bucket, key, run_id="run")


def test_a_missing_shortcut_is_refused(chain: Any) -> None:
    with pytest.raises(RefusedWeights, match="missing"):
        read_shortcut(chain.bucket, shortcut_key(1, 3, "b3:" + "0" * 64), run_id="run")
