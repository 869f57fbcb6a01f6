"""Where a process is told that another one listens."""

from __future__ import annotations

from urllib.parse import urlsplit

from tradewind.types.errors import UserError


def base_url(url: str, what: str) -> str:
    """`url` without a slash at its end; raises `UserError` unless it is one of http or https.

    Without this a forgotten `http://` is retried for ever, as if nobody listened there.
    """
    try:
        found = urlsplit(url)
        whole = found.scheme in ("http", "https") and bool(found.hostname)
        _ = found.port
    except ValueError:  # no number, or brackets that do not fit
        whole = False
    if not whole:
        raise UserError(f"this is not the URL of {what}", value=url, fix="write http://host:port")
    return url.rstrip("/")
