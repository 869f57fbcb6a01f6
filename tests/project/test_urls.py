"""A URL that is none is a sentence, not a retry for ever."""

import pytest

from tradewind.http.urls import base_url
from tradewind.types import UserError


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8200", "localhost:8200", "", "http://", "ftp://a", "http://a:b"]
)
def test_a_forgotten_scheme_is_said_and_not_retried_for_ever(url: str) -> None:
    with pytest.raises(UserError, match=r"not the URL of the controller.*write http://host:port"):
        base_url(url, "the controller")


def test_a_url_is_taken_without_its_last_slash() -> None:
    assert (
        base_url("https://desk.example:8443/run/", "the controller")
        == "https://desk.example:8443/run"
    )
