"""Real S3 servers on loopback, each a process of its own: moto's and rclone's.

moto keeps objects in memory and honours conditions and ranges. rclone serves a folder (a bucket is
a folder in it) and ignores both, as other small stores do.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

WAIT_S = 60
BUCKET = "desk"
KEYS = ("ACCESSKEY0123456789A", "SECRETKEY0123456789SECRETKEY0123456789ab")
"""As long as real ones, or clients refuse them."""


def environment(url: str) -> dict[str, str]:
    """What an S3 client reads."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": KEYS[0],
        "AWS_SECRET_ACCESS_KEY": KEYS[1],
        "AWS_REGION": "us-east-1",
        "NO_PROXY": "127.0.0.1",
    }


@contextmanager
def moto() -> Iterator[str]:
    """Its URL; the bucket `desk` is there and empty."""
    with _served(["moto_server", "-H", "127.0.0.1", "-p", "0"]) as url:
        made = urllib.request.Request(f"{url}/{BUCKET}", method="PUT")
        urllib.request.urlopen(made, timeout=WAIT_S).close()
        yield url


@contextmanager
def rclone(root: Path) -> Iterator[str]:
    """Its URL; buckets are the folders in `root`, and what is written there is seen at once."""
    (root / BUCKET).mkdir(exist_ok=True)
    argv = ["rclone", "serve", "s3", "--addr", "127.0.0.1:0", "--auth-key", ",".join(KEYS)]
    with _served([*argv, "--dir-cache-time", "0s", "--config", "", str(root)]) as url:
        yield url


@contextmanager
def _served(argv: list[str]) -> Iterator[str]:
    program = Path(sys.executable).parent / argv[0]
    assert program.exists(), f"{argv[0]} is missing: pip install 'tradewind[dev]'"
    with subprocess.Popen(
        [str(program), *argv[1:]], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        late = threading.Timer(WAIT_S, process.kill)
        late.start()
        lines = (re.search(r"http://[\d.:]+", line) for line in process.stderr)
        found = next(filter(None, lines), None)
        late.cancel()
        drain = threading.Thread(target=process.stderr.read, daemon=True)  # or its pipe fills up
        drain.start()
        try:
            assert found, f"{argv[0]} did not start"
            yield found[0]
        finally:
            process.kill()
            drain.join(WAIT_S)
