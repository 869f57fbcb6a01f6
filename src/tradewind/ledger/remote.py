"""Object stores, as weights and token payloads are kept in them."""

from __future__ import annotations

import os
from datetime import timedelta

from obstore.exceptions import BaseError
from obstore.store import ObjectStore, from_url

from tradewind.types.errors import UserError

SCHEMES = ("s3", "gs", "az")


def open_remote(url: str, what: str, deadline_s: float) -> ObjectStore:
    """The store at `s3://`, `gs://` or `az://`; keys and endpoint come from the usual environment
    (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, ...).

    `what` is it for those who read the sentence of the `UserError` that a wrong URL raises;
    `deadline_s` bounds each call, its retries included.
    """
    deadline = timedelta(seconds=deadline_s)
    endpoint = os.environ.get("AWS_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT") or ""
    try:
        return from_url(
            url,
            client_options={"timeout": deadline, "allow_http": endpoint.startswith("http://")},
            retry_config={"max_retries": 5, "retry_timeout": deadline},
        )
    except (BaseError, ValueError) as error:
        raise UserError(
            f"{what} cannot be opened ({first_line(error)})",
            value=url,
            fix="check the URL, and the region, endpoint and keys in the environment",
        ) from error


def first_line(error: Exception) -> str:
    """What a store says, without its pages of context."""
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
