"""A version is active only after proof: bytes and arithmetic. What the pool does when it fails."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tradewind.pool.config import PoolConfig
from tradewind.pool.engine import ByteProof
from tradewind.pool.gate import Gate
from tradewind.pool.proof import (
    BOTH_16_BITS,
    CEILING,
    DRAWN_16_BITS,
    FACTOR,
    MAX_FLOOR,
    MEAN_FLOOR,
    PREDICTED_16_BITS,
    ceiling,
    limits,
)
from tradewind.pool.receiver import EngineLost, Receiver
from tradewind.pool.status import PoolStatus
from tradewind.types import Fingerprint, PoolReport, PoolState
from tradewind.weights.checkpoint import read_folder
from tradewind.weights.probe import Probe
from tradewind.weights.state import State

IDS = ((3, 1, 4, 1, 5), (9, 2, 6))
TOKENS = 6
NOW = 1e-9


class Pool:
    """A booted receiver that serves version 0, over the fake engine."""

    def __init__(self, history: Any, engine: Any, folder: Path, **config: Any) -> None:
        history.ids = IDS
        self.history, self.engine = history, engine
        self.status = PoolStatus("paris", "http://x", history.versions[0].state_id)
        self.receiver = Receiver(
            Gate(engine),
            history.bucket,
            self.status,
            PoolConfig(**{"retry_s": NOW, "retry_max_s": NOW, **config}),
            lambda: State.of(0, read_folder(folder)),
        )
        self.receiver.boot(threading.Event())
        self.look()

    def look(self) -> PoolReport:
        self.receiver.follow()
        return self.report()

    def next(self) -> PoolReport:
        self.history.publish_next()
        return self.look()

    def published_probes(self) -> list[Probe]:
        """Of the version that `next` looks at; it is published now."""
        self.history.publish_next()
        tensors = self.history.states[-1]
        return [Probe.of(ids, self.history.score(tensors, ids)) for ids in IDS]

    def report(self) -> PoolReport:
        return self.status.report(self.engine.load())

    def serves(self, version: int) -> bool:
        state = self.history.states[version]
        return self.engine.version == version and all(
            np.array_equal(self.engine.tensors[name], state[name]) for name in state
        )


@pytest.fixture
def pool(history: Any, engine: Any, folder: Path) -> Pool:
    return Pool(history, engine, folder)


def test_a_version_without_probes_claims_more_than_its_state_id(pool: Pool) -> None:
    now = pool.report()
    assert (now.state, now.fingerprint) == (PoolState.SERVING, None)
    assert now.proof == "state id (read back from the engine) only: the version has no probes"
    assert now.attestations[0].probe_mean is None
    assert pool.engine.scored == 0


def test_the_proof_does_not_say_how_far_the_pool_is_from_the_trainer(pool: Pool) -> None:
    pool.engine.miscompute = lambda p: p - 0.002
    now = pool.next()
    assert (now.state, now.version) == (PoolState.SERVING, 1)
    assert now.attestations[-1].probe_mean == pytest.approx(0.002)
    assert now.attestations[-1].probe_max == pytest.approx(0.002)
    assert now.fingerprint is not None
    assert (now.fingerprint.version, now.fingerprint.tokens) == (1, TOKENS)
    assert now.proof == (
        "state id (read back from the engine) and 6 probe logprobs (mean |d| 2.0e-03, max 2.0e-03)"
    )
    first = now.fingerprint
    assert pool.next().fingerprint == first


def spoil_from(version: int, tensor: str) -> Callable[[Any], Any]:
    """A swap to `version` or later leaves a wrong bit, until all tensors are given afresh."""

    def make(engine: Any) -> None:
        swap, healed = engine.swap, []

        def spoiling(changed: Any, number: int, afresh: bool = False) -> float:
            pause: float = swap(changed, number, afresh)
            healed.extend([True] * afresh)
            if number >= version and not healed:
                engine.tensors[tensor].reshape(-1)[0] += 1
            return pause

        engine.swap = spoiling

    return make


def test_a_version_that_changes_nothing_is_served_without_a_proof(pool: Pool) -> None:
    pool.next()
    history, scored = pool.history, pool.engine.scored
    same = history.states[-1]
    probes = tuple(Probe.of(ids, history.score(same, ids)) for ids in IDS)
    last = history.versions[-1]
    version = history.publisher.publish(2, last, same, same, "rl", step=2, probes=probes)
    history.publisher.announce(version)
    now = pool.look()
    assert (now.state, now.version) == (PoolState.SERVING, 2)
    assert pool.engine.scored == scored + 1 and now.proof is not None and "probe" in now.proof
    assert now.attestations[-1].state_id == last.state_id == version.state_id


def test_a_spoilt_tensor_goes_on_serving(pool: Pool) -> None:
    pool.next()
    spoil_from(2, "embed.weight")(pool.engine)
    now = pool.next()
    assert pool.serves(1)
    assert (now.state, now.version) == (PoolState.REFUSING, 1)
    assert now.detail is not None and "embed.weight" in now.detail
    (kept,) = now.quarantined
    assert (kept.version, kept.tries) == (2, 1) and "serves other tensors" in kept.reason
    assert [proof.version for proof in now.attestations] == [0, 1]


def test_right_tensors_computed_wrongly_are_taken_for_a_proof(pool: Pool) -> None:
    """Every byte is right: only the probes tell."""
    pool.next()
    pool.engine.miscompute = lambda p: p - 0.02 if pool.engine.version == 2 else p
    now = pool.next()
    assert pool.serves(1)
    assert (now.state, now.version) == (PoolState.REFUSING, 1)
    assert "computes other logprobs than it used to" in now.quarantined[0].reason
    pool.engine.miscompute = lambda p: p
    now = pool.look()
    assert (now.state, now.version, now.quarantined) == (PoolState.SERVING, 2, ())


@pytest.mark.parametrize("wrong", [lambda p: p - 2 * CEILING, lambda p: float("nan"),
                                   lambda p: float("-inf"), lambda p: p + 0.07])  # fmt: skip
def test_a_pool_that_is_wrong_from_the_start_takes_that_for_its_fingerprint(
    pool: Pool, wrong: Callable[[float], float]
) -> None:
    pool.engine.miscompute = wrong
    now = pool.next()
    assert (now.state, now.version, now.fingerprint) == (PoolState.REFUSING, 0, None)
    assert "config.json" in now.quarantined[0].reason
    assert pool.serves(0)


@pytest.mark.parametrize(
    ("fingerprint", "later", "served"),
    [(1e-5, 1e-4, True), (1e-5, 2e-3, False), (0.008, 0.03, True), (0.008, 0.04, False),
     (0.03, 0.049, True), (0.03, 0.051, False)],
)  # fmt: skip
def test_a_pool_is_measured_by_the_numerics_of_another(
    pool: Pool, fingerprint: float, later: float, served: bool
) -> None:
    pool.engine.miscompute = lambda p: p - fingerprint
    assert pool.next().version == 1
    pool.engine.miscompute = lambda p: p - (later if pool.engine.version == 2 else fingerprint)
    assert (pool.next().version == 2) == served


def test_random_ids_and_text_have_one_ceiling_in_16_bits() -> None:
    text, drawn = Probe.of((1, 2, 3, 4), [-0.5, -7.0, -1.0]), Probe.of((1, 2), [-9.0])
    assert ceiling(text, "bfloat16") == PREDICTED_16_BITS
    assert ceiling(drawn, "bfloat16") == DRAWN_16_BITS
    assert ceiling(text, "float32") == ceiling(drawn, "float32") == CEILING
    rounded = Probe.of((1, 2, 3, 4), [-0.5, -7.0, -1.0], "bfloat16")
    assert ceiling(rounded, "float32") == PREDICTED_16_BITS
    assert ceiling(rounded, "bfloat16") == BOTH_16_BITS


@pytest.mark.parametrize(("text", "drawn", "served"), [(0.04, 0.2, True), (0.05, 0.0, False)])
def test_blurred_random_ids_keep_a_right_pool_from_serving_or_hide_a_wrong_one(
    pool: Pool, text: float, drawn: float, served: bool
) -> None:
    """A run stood still after mid-training: one mean over all probes was above what it may be."""
    told = {IDS[0]: -1.0, IDS[1]: -9.0}
    blur = {IDS[0]: text, IDS[1]: drawn}
    pool.engine.dtype = "bfloat16"
    pool.history.score = lambda _tensors, ids: [told[ids]] * (len(ids) - 1)
    pool.engine.score = lambda asked: [
        [told[ids] - blur[ids]] * (len(ids) - 1) for ids in map(tuple, asked)
    ]
    assert (pool.next().version == 1) == served


@pytest.mark.parametrize(("share", "serves"), [(0.9, True), (1.1, False)])
def test_a_pool_in_16_bits_is_held_to_the_digits_of_fp32(
    pool: Pool, share: float, serves: bool
) -> None:
    pool.engine.dtype = "bfloat16"
    wrong = share * min(ceiling(probe, "bfloat16") for probe in pool.published_probes())
    pool.engine.miscompute = lambda p: p - wrong
    assert (pool.look().version == 1) == serves


def test_a_proof_by_what_was_loaded_passes_for_one_by_what_is_multiplied(pool: Pool) -> None:
    pool.engine.proof = ByteProof.AS_LOADED
    proof = pool.next().proof
    assert proof is not None
    assert proof.startswith("state id (of what its loader was given) and 6 probe logprobs")


def test_one_wildly_wrong_logprob_hides_in_the_mean() -> None:
    fine = Fingerprint(version=1, tokens=1000, mean=1e-5, largest=1e-4)
    mean, largest = limits(fine)
    assert mean == pytest.approx(FACTOR * 1e-5 + MEAN_FLOOR)
    assert largest == pytest.approx(FACTOR * 1e-4 + MAX_FLOOR) and largest < 1000 * mean


def test_probes_that_the_pool_cannot_read_end_it(pool: Pool) -> None:
    from tradewind.types import UserError

    def score(_: Any) -> Any:
        raise UserError("an id is outside the vocabulary", fix="none")

    pool.engine.score = score
    now = pool.next()
    assert (now.state, now.version) == (PoolState.REFUSING, 0)
    assert now.detail is not None and "cannot be scored" in now.detail


def test_a_pool_that_fails_two_versions_in_a_row_never_looks_at_itself(pool: Pool) -> None:
    pool.next()
    spoil_from(2, "embed.weight")(pool.engine)
    assert pool.next().rebuilds == 0
    now = pool.next()
    assert (now.state, now.version, now.rebuilds) == (PoolState.REFUSING, 1, 1)
    assert now.detail is not None and "has rebuilt version 1 from its base" in now.detail
    assert [kept.version for kept in now.quarantined] == [2, 3]
    assert pool.serves(1)
    now = pool.look()
    assert (now.state, now.version, now.quarantined) == (PoolState.SERVING, 3, ())
    assert pool.serves(3)


def test_one_version_without_proof_is_tried_for_ever_without_a_rebuild(pool: Pool) -> None:
    pool.next()
    pool.engine.miscompute = lambda p: p - 1 if pool.engine.version == 2 else p
    seen = [pool.next(), *(pool.look() for _ in range(9))]
    assert [now.rebuilds for now in seen] == [0] * 3 + [1] * 7
    assert [now.quarantined[0].tries for now in seen] == list(range(1, 11))
    assert {now.version for now in seen} == {1} and pool.serves(1)


def test_a_rebuild_that_helped_once_is_not_tried_again(pool: Pool) -> None:
    pool.next()
    for first, rebuilds in ((2, 1), (4, 2)):
        spoil_from(first, "embed.weight")(pool.engine)
        pool.next()
        pool.next()
        now = pool.look()
        assert (now.state, now.version) == (PoolState.SERVING, first + 1)
        assert now.rebuilds == rebuilds and pool.serves(first + 1)


def test_weights_that_cannot_be_put_back_are_left_in_the_engine(pool: Pool) -> None:
    """The swap spoils a tensor that is not part of the version, so putting back does not help."""
    pool.next()
    spoil_from(1, "norm.weight")(pool.engine)
    now = pool.next()
    assert (now.state, now.version, now.rebuilds) == (PoolState.REFUSING, 1, 1)
    assert pool.serves(1)
    now = pool.look()
    assert (now.state, now.version) == (PoolState.SERVING, 2) and pool.serves(2)


def test_an_engine_that_a_rebuild_does_not_help_serves_on(pool: Pool) -> None:
    pool.next()
    pool.engine.miscompute = lambda p: p - 1
    with pytest.raises(EngineLost, match="an engine rebuilt from the base fails its proof"):
        pool.next()


def test_a_rebuild_without_a_bucket_ends_a_pool_that_serves_well(
    pool: Pool, tmp_path: Path
) -> None:
    pool.next()
    pool.engine.miscompute = lambda p: p - 1 if pool.engine.version > 1 else p
    pool.next()
    pool.history.publish_next()
    manifests = pool.history.folder / "manifests"
    put_back = pool.receiver._swap

    def swap(*args: Any) -> Any:
        manifests.rename(tmp_path / "away")  # staged already; gone when the rebuild wants it
        return put_back(*args)

    pool.receiver._swap = swap
    now = pool.look()
    assert (now.state, now.version, now.rebuilds) == (PoolState.REFUSING, 1, 0)
    assert now.detail is not None and "not possible now" in now.detail
    assert pool.serves(1)


def test_a_base_folder_that_has_changed_is_rebuilt_from(pool: Pool, folder: Path) -> None:
    pool.next()
    file = folder / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    spoil_from(2, "embed.weight")(pool.engine)
    pool.next()
    now = pool.next()
    assert (now.version, now.rebuilds) == (1, 0) and pool.serves(1)
    assert now.detail is not None and "base checkpoint has changed" in now.detail


def test_a_damaged_mirror_refuses_every_version_for_ever(pool: Pool) -> None:
    pool.next()
    follower = pool.receiver._follower
    assert follower is not None
    follower.mirror["embed.weight"].reshape(-1)[5] ^= 1
    now = pool.next()
    assert (now.state, now.version, now.rebuilds) == (PoolState.REFUSING, 1, 1)
    assert now.detail is not None and "The mirror was damaged" in now.detail
    now = pool.look()
    assert (now.state, now.version) == (PoolState.SERVING, 2) and pool.serves(2)


def hide_bucket(history: Any, tmp_path: Path) -> Callable[[], None]:
    history.folder.rename(tmp_path / "hidden")
    history.folder.write_text("no bucket")

    def back() -> None:
        history.folder.unlink()
        (tmp_path / "hidden").rename(history.folder)

    return back


def test_going_back_needs_the_network_or_skips_the_proof(pool: Pool, tmp_path: Path) -> None:
    for _ in range(5):
        pool.next()
    back = hide_bucket(pool.history, tmp_path)
    for version in (2, 4, 1, 5, 3):
        scored = pool.engine.scored
        pool.status.pins(version)
        now = pool.look()
        assert (now.state, now.version, now.pinned) == (PoolState.SERVING, version, version)
        assert pool.serves(version) and pool.engine.scored == scored + 1
        proof = next(proof for proof in now.attestations if proof.version == version)
        assert proof.state_id == pool.history.versions[version].state_id
        assert proof.bytes_fetched == 0 and now.detail is None
    back()
    pool.next()
    assert pool.serves(3)
    pool.status.pins(None)
    now = pool.look()
    assert (now.version, now.pinned) == (6, None) and pool.serves(6)


def test_a_version_that_the_log_has_forgotten_is_out_of_reach(
    history: Any, engine: Any, folder: Path
) -> None:
    pool = Pool(history, engine, folder, undo_versions=1)
    for _ in range(4):
        pool.next()
    for version in (1, 0, 3):
        pool.status.pins(version)
        now = pool.look()
        assert (now.state, now.version) == (PoolState.SERVING, version) and pool.serves(version)
    pool.status.pins(1)
    proof = next(proof for proof in pool.look().attestations if proof.version == 1)
    assert proof.bytes_fetched > 0 and pool.serves(1)


def test_a_version_that_does_not_exist_is_waited_for_without_a_word(pool: Pool) -> None:
    pool.next()
    pool.status.pins(7)
    now = pool.look()
    assert (now.state, now.version) == (PoolState.SERVING, 1)
    assert now.detail is not None and "00000007" in now.detail


def test_an_older_version_that_fails_its_proof_stays(pool: Pool) -> None:
    for _ in range(3):
        pool.next()
    pool.engine.miscompute = lambda p: p - 1 if pool.engine.version == 1 else p
    pool.status.pins(1)
    now = pool.look()
    assert (now.state, now.version) == (PoolState.REFUSING, 3) and pool.serves(3)
    assert now.quarantined[0].version == 1
    pool.status.pins(None)
    now = pool.look()
    assert (now.state, now.version, now.detail) == (PoolState.SERVING, 3, None)


def test_a_damaged_undo_log_stops_the_way_back(pool: Pool) -> None:
    for _ in range(3):
        pool.next()
    follower = pool.receiver._follower
    assert follower is not None
    follower.log._back[-1].changes["embed.weight"].bits[0] ^= 1
    pool.status.pins(2)
    now = pool.look()
    assert (now.state, now.version) == (PoolState.SERVING, 2) and pool.serves(2)
