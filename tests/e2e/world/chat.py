"""Users: `python chat.py BASE_URL MODEL RATE`, for ever."""

from __future__ import annotations

import os
import sys
import time

import httpx


def main(base_url: str, model: str, rate: float) -> None:
    """One short streamed chat after another."""
    with httpx.Client(timeout=60) as client:
        while True:
            body = {
                "model": model,
                "stream": True,
                "max_tokens": 6,
                "messages": [{"role": "user", "content": "Hello?"}],
            }
            key = os.environ["OPENAI_API_KEY"]
            try:
                client.post(
                    f"{base_url}/chat/completions",
                    headers={"Authorization": f"Bearer {key}"},
                    json=body,
                )
            except httpx.HTTPError as error:
                print(f"{type(error).__name__}: {error}", flush=True)
            time.sleep(1 / rate)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
