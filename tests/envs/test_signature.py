"""Who may start rollouts at a customer's server: the holder of the secret, now, once."""

from __future__ import annotations

import pytest

from tradewind.envs.shelf import Shelf
from tradewind.envs.signature import BadSignature, SignatureCheck, parse_keys, sign
from tradewind.types import UserError

KEY = ("k1", "a-shared-secret-of-some-length")
NOW = 1_767_225_600.0
PATH, BODY = "/rollouts", b'{"x": 1}'


@pytest.fixture
def check():
    return SignatureCheck({KEY[0]: KEY[1], "k2": "another-secret-for-rotation"}, clock=lambda: NOW)


def signed(**changes) -> dict[str, str]:
    headers = sign(KEY, "POST", PATH, BODY, at=changes.pop("at", NOW))
    return {**headers, **{f"Tradewind-{k.replace('_', '-')}": v for k, v in changes.items()}}


@pytest.mark.parametrize("off", [-299, 0, 299])
def test_a_signed_request_passes_within_five_minutes(check, off):
    check.check("POST", PATH, signed(at=NOW + off), BODY)


@pytest.mark.parametrize(
    "code,method,path,headers,body",
    [
        ("bad_signature", "POST", PATH, {}, BODY),
        ("bad_signature", "POST", PATH, signed(), b'{"x": 2}'),
        ("bad_signature", "GET", PATH, signed(), BODY),
        ("bad_signature", "POST", PATH + "/other/cancel", signed(), BODY),
        ("bad_signature", "POST", PATH, signed(Timestamp=str(int(NOW) + 1)), BODY),
        ("bad_signature", "POST", PATH, signed(Nonce="another"), BODY),
        ("bad_signature", "POST", PATH, signed(Key_Id="k2"), BODY),
        ("unknown_key", "POST", PATH, signed(Key_Id="k3"), BODY),
        ("stale", "POST", PATH, signed(at=NOW - 301), BODY),
        ("stale", "POST", PATH, signed(at=NOW + 301), BODY),
    ],
)
def test_everything_that_is_signed_is_bound(check, code, method, path, headers, body):
    with pytest.raises(BadSignature) as refused:
        check.check(method, path, headers, body)
    assert refused.value.code == code and KEY[1] not in str(refused.value)


def test_a_nonce_serves_once_and_is_remembered_as_long_as_its_timestamp_is_fresh():
    now = [NOW]
    shelf = Shelf()
    check = SignatureCheck(dict([KEY]), clock=lambda: now[0], shelf=shelf)
    headers = signed(at=NOW + 300)
    check.check("POST", PATH, headers, BODY)
    for now[0] in (NOW, NOW + 599):
        with pytest.raises(BadSignature, match="used before"):
            check.check("POST", PATH, headers, BODY)
    now[0] = NOW + 601
    with pytest.raises(BadSignature, match="old"):
        check.check("POST", PATH, headers, BODY)
    check.check("POST", PATH, signed(at=now[0]), BODY)
    nonce = f"{KEY[0]} {headers['Tradewind-Nonce']}"
    assert shelf.new_nonce(nonce, now[0], now[0]), "what is stale anyway is forgotten"


def test_a_forged_request_does_not_use_up_a_nonce(check):
    headers = signed()
    with pytest.raises(BadSignature):
        check.check("POST", PATH, headers, b"forged")
    check.check("POST", PATH, headers, BODY)


def test_keys_are_read_with_a_sentence_that_does_not_tell_them():
    assert parse_keys("k1:0123456789abcdef, k2:fedcba9876543210", "X") == {
        "k1": "0123456789abcdef",
        "k2": "fedcba9876543210",
    }
    for text in ("", "k1", "k1:tooshort", "0123456789abcdef0123"):
        with pytest.raises(UserError, match="signing key") as refused:
            parse_keys(text, "TRADEWIND_PUSH_KEY")
        assert text == "" or text not in str(refused.value)
