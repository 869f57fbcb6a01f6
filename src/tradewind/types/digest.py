"""A short name for plain data: equal data, equal name."""

from __future__ import annotations

import hashlib
import json


def digest_of(data: object, digits: int = 16) -> str:
    """Hex digits of SHA-256 over canonical JSON: sorted keys, what JSON lacks as its text."""
    text = json.dumps(data, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:digits]
