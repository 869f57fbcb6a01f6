"""Signed pointers: a bucket that others can write to does not say which version is next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tradewind.types import RefusedWeights, UserError
from tradewind.weights import pointer
from tradewind.weights.bucket import Bucket
from tradewind.weights.chain import read_pointer
from tradewind.weights.follow import Follower
from tradewind.weights.manifest import pointer_key
from tradewind.weights.publish import Publisher
from tradewind.weights.serving import promote, promotion_key, serving_version
from tradewind.weights.signing import Signer, Trusting, pointer_to

RUN = "run"
OURS, THEIRS = Signer("11" * 32), Signer("22" * 32)


def forge(bucket: Bucket, name: str, content: bytes) -> None:
    bucket.delete(name)
    bucket.put_new(name, content)


@pytest.fixture
def signed(new_chain: Callable[..., Any]) -> Any:
    """Versions 0 to 3, all of them announced by us."""
    chain = new_chain(3)
    publisher = Publisher(chain.bucket, RUN, signer=OURS)
    for version in chain.versions:
        chain.bucket.delete(pointer_key(version.version))
        publisher.announce(version)
    return chain


def follower(chain: Any, *trusted: str) -> Follower:
    source = Trusting(chain.bucket, trusted)
    return Follower(source, chain.states[0], run_id=RUN)


def test_what_we_signed_is_followed_and_needs_no_key_to_be_read(signed: Any) -> None:
    trusting = follower(signed, OURS.public)
    plain = Follower(signed.bucket, signed.states[0], run_id=RUN)
    for one in (trusting, plain):
        assert one.newest() == 3
        assert one.stage(3).state_id == signed.versions[3].state_id


def test_a_stranger_with_the_buckets_keys_cannot_announce_a_version(signed: Any) -> None:
    name = pointer_key(3)
    ref = read_pointer(signed.bucket, 3)
    trusting = follower(signed, OURS.public)
    for forged, said in (
        (pointer_to(name, ref, None), "is not signed"),
        (THEIRS.sign(name, ref), "does not trust"),
        (THEIRS.sign(name, ref).model_copy(update={"signer": OURS.public}), "is not that of"),
    ):
        forge(signed.bucket, name, forged.to_bytes())
        with pytest.raises(RefusedWeights, match=said):
            trusting.stage(3)
        assert trusting.version == 0, "the old version goes on serving"


def test_a_signature_does_not_move_to_another_name_or_manifest(signed: Any) -> None:
    trusting = Trusting(signed.bucket, [OURS.public])
    two, three = (pointer.read(signed.bucket, pointer_key(v)) for v in (2, 3))
    forge(signed.bucket, pointer_key(3), two.to_bytes())
    with pytest.raises(RefusedWeights, match="is not that of its content"):
        read_pointer(trusting, 3)
    swapped = three.model_copy(update={"key": two.key, "digest": two.digest})
    forge(signed.bucket, pointer_key(3), swapped.to_bytes())
    with pytest.raises(RefusedWeights, match="is not that of its content"):
        read_pointer(trusting, 3)
    signed.bucket.put_new(promotion_key(0), two.to_bytes())
    with pytest.raises(RefusedWeights, match="is not that of its content"):
        serving_version(trusting)


def test_promotions_are_signed_too(signed: Any) -> None:
    trusting = Trusting(signed.bucket, [OURS.public, THEIRS.public])
    promote(signed.bucket, 2, THEIRS)
    assert serving_version(trusting) == 2
    promote(signed.bucket, 3)
    with pytest.raises(RefusedWeights, match="is not signed"):
        serving_version(trusting)


def test_announcing_again_with_another_key_keeps_the_first_signature(signed: Any) -> None:
    Publisher(signed.bucket, RUN, signer=THEIRS).announce(signed.versions[3])
    assert pointer.read(signed.bucket, pointer_key(3)).signer == OURS.public


def test_an_unsigned_pointer_is_what_it_always_was(new_chain: Callable[..., Any]) -> None:
    chain = new_chain(1)
    data = chain.bucket.get(pointer_key(1), limit=pointer.MAX_POINTER)
    assert b"sign" not in data and pointer.Pointer.parse(data).to_bytes() == data


@pytest.mark.parametrize("secret", ["", "zz" * 32, "11" * 31])
def test_a_key_that_is_none_gets_a_sentence_that_does_not_show_it(secret: str) -> None:
    with pytest.raises(UserError, match="not 64 hexadecimal digits") as said:
        Signer(secret)
    assert not secret or secret not in str(said.value)
