"""`tradewind weights` on a bucket of versions."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tradewind.run.weights import app
from tradewind.types import UserError
from tradewind.weights.bucket import Bucket
from tradewind.weights.checkpoint import read_folder, write_file
from tradewind.weights.ladder import Ladder
from tradewind.weights.publish import Publisher
from tradewind.weights.serving import serving_version
from tradewind.weights.signing import VARIABLE, Signer
from tradewind.weights.state import State
from tradewind.weights.tensors import TensorSet


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    """Versions 0 to 4, the last one signed."""
    bucket = Bucket.open(tmp_path.as_uri())
    draw = np.random.default_rng(0)
    old = {"w": draw.integers(0, 2**15, 4096, np.uint16)}
    ladder = Ladder(bucket, "r1", State.of(0, old), span=2)
    parent = None
    for number in range(5):
        publisher = Publisher(bucket, "r1", signer=Signer("11" * 32) if number == 4 else None)
        new = {"w": old["w"].copy()}
        if parent is not None:
            new["w"][draw.integers(0, 4096, 40)] ^= 1
        parent = publisher.publish(number, parent, old, new, "rl" if number else "base")
        publisher.announce(parent)
        if number:
            ladder.offer(parent, TensorSet(new))
            assert ladder.settle(60).finished
        old = new
    assert ladder.close(60).failed == 0
    return bucket


def call(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments))
    if done.exception is not None:
        raise done.exception
    return done.stdout


def number(said: str) -> int:
    found = re.search(r"(\d+) objects", said)
    assert found is not None
    return int(found[1])


def test_history_says_who_signed_what_and_what_is_served(bucket: Bucket) -> None:
    call("promote", bucket.url, "2")
    found = json.loads(call("history", bucket.url, "--json"))
    assert found["run_id"] == "r1"
    assert [v["version"] for v in found["versions"]] == [0, 1, 2, 3, 4]
    assert [v["serving"] for v in found["versions"]] == [False, False, True, False, False]
    assert [v["signer"] for v in found["versions"]] == [None] * 4 + [Signer("11" * 32).public]
    assert "2 *" in call("history", bucket.url)


def test_promotion_goes_back_and_refuses_what_is_not_announced(bucket: Bucket) -> None:
    for version in (3, 1):
        call("promote", bucket.url, str(version))
        assert serving_version(bucket) == version
    with pytest.raises(UserError, match="not announced"):
        call("promote", bucket.url, "9")


def test_collecting_says_first_and_deletes_only_when_told(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = bucket.list("frames/")
    doomed = call("collect", bucket.url, "--keep", "1")
    assert re.search(r"nobody needs [1-9]", doomed) and bucket.list("frames/") == frames
    live = call("collect", bucket.url, "--keep", "1", "--live", "1")
    assert number(live) < number(doomed), "a pool at version 1 needs the steps after it"
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        assert bucket.list("frames/") == frames, "nothing goes before it is looked at again"
        waited.append(seconds)

    monkeypatch.setattr("time.sleep", sleep)
    said = call("collect", bucket.url, "--keep", "1", "--grace", "60", "--delete")
    assert waited == [60.0] and "in 60 s either" in said
    call("collect", bucket.url, "--keep", "1", "--grace", "0", "--delete")
    assert len(bucket.list("frames/")) < len(frames)
    assert "nobody needs 0" in call("collect", bucket.url, "--keep", "1")


def test_a_key_pair_fits_together() -> None:
    said = call("keygen")
    secret = re.search(rf"{VARIABLE}=([0-9a-f]+)", said)
    public = re.search(r'trust = \["([0-9a-f]+)"\]', said)
    assert secret and public and Signer(secret[1]).public == public[1]
    assert call("keygen") != said


def test_an_empty_bucket_gets_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there are no versions in this bucket"):
        call("history", tmp_path.as_uri())


def test_a_version_becomes_a_checkpoint_that_a_new_run_begins_from(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("run")
    model, out = folder / "model", folder / "out"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "llama"}')
    (model / "tokenizer.json").write_text("{}")
    draw = np.random.default_rng(0)
    base = TensorSet({"w": draw.integers(0, 2**15, 64, np.uint16)}, {"w": "BF16"})
    write_file(model / "model.safetensors", base)
    store = Bucket.open((folder / "bucket").as_uri())
    publisher, parent, old = Publisher(store, "r1"), None, base
    for version in range(3):
        new = TensorSet({"w": base["w"] ^ np.uint16(version)}, {"w": "BF16"})
        parent = publisher.publish(version, parent, old, new, "rl" if version else "base")
        publisher.announce(parent)
        old = new
    where = ("--model", str(model), "--out", str(out))
    assert "version 1" in call("export", store.url, "1", *where)
    assert np.array_equal(read_folder(out)["w"], base["w"] ^ np.uint16(1))
    assert (out / "config.json").read_text() == '{"model_type": "llama"}'
    with pytest.raises(UserError, match="there already"):
        call("export", store.url, "2", *where)
    with pytest.raises(UserError, match="not the base checkpoint"):
        call("export", store.url, "2", "--model", str(out), "--out", str(folder / "other"))
