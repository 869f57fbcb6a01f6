"""A pool behind a relay that is down, wrong, slow or withholding: with a bucket to go to it follows
all the same, without one it says so; it never takes a wrong byte.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from tradewind.types import RefusedWeights, UserError
from tradewind.weights.bucket import Bucket, NotInBucket, TooLarge
from tradewind.weights.digest import state_id
from tradewind.weights.follow import Follower
from tradewind.weights.manifest import Manifest, pointer_key, unpack
from tradewind.weights.relayed import AVOID_S, KEY_NAME, Relayed, open_source

KEY, LENGTH = "relay-key", 4


class FakeRelay:
    """Serves a bucket honestly, but for what `lie` makes of an answer and names it `hides`."""

    def __init__(self, bucket: Bucket) -> None:
        self.lie: Callable[[str, bytes], tuple[int, bytes]] = lambda path, data: (200, data)
        self.hides: set[str] = set()
        self.asked: list[str] = []
        outer = self

        class Route(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                assert self.headers["Authorization"] == f"Bearer {KEY}"
                parts = urlsplit(self.path)
                path = unquote(parts.path).removeprefix("/v1/")
                outer.asked.append(path)
                found = outer.answer(bucket, path, parse_qs(parts.query))
                status, data = (404, b"") if found is None else outer.lie(path, found)
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Route)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.01,), daemon=True
        )
        self._thread.start()

    def answer(self, bucket: Bucket, path: str, query: dict[str, list[str]]) -> bytes | None:
        if path == "names":
            names = bucket.list(query["prefix"][0], after=query.get("after", [None])[0])
            return json.dumps({"names": [n for n in names if n not in self.hides]}).encode()
        if path.startswith("shortcuts/"):
            return None
        key = path.removeprefix("objects/")
        try:
            return None if key in self.hides else bucket.get(key, limit=2**30)
        except NotInBucket:
            return None

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class World:
    def __init__(self, chain: Any) -> None:
        self.chain, self.clock = chain, Clock()
        self.relay = FakeRelay(chain.bucket)
        self.sources: list[Relayed] = []

    def source(self, *, fallback: bool, url: str | None = None) -> Relayed:
        bucket = self.chain.bucket if fallback else None
        made = Relayed(url or self.relay.url, KEY, bucket, deadline_s=5, clock=self.clock)
        self.sources.append(made)
        return made

    def follower(self, source: Relayed) -> Follower:
        return Follower(source, self.chain.states[0], run_id="run")

    def frame(self, version: int) -> str:
        packed = self.chain.bucket.get(self.chain.versions[version].manifest, limit=2**26)
        return Manifest.parse(unpack(packed)).frames[0].key

    def arrives(self, follower: Follower) -> None:
        assert follower.newest() == LENGTH
        follower.commit(follower.stage(LENGTH))
        assert state_id(follower.mirror) == self.chain.versions[LENGTH].state_id


@pytest.fixture
def world(new_chain: Callable[..., Any]) -> Iterator[World]:
    made = World(new_chain(LENGTH))
    yield made
    for source in made.sources:
        source.close()
    made.relay.close()


@pytest.mark.parametrize("fallback", [False, True])
def test_behind_an_honest_relay_there_is_no_trouble(world: World, fallback: bool) -> None:
    source = world.source(fallback=fallback)
    world.arrives(world.follower(source))
    assert source.trouble is None


def dead_url() -> str:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        return f"http://127.0.0.1:{closed.getsockname()[1]}"


def test_a_relay_that_is_down_is_a_sentence(world: World) -> None:
    source = world.source(fallback=False, url=dead_url())
    with pytest.raises(UserError, match=r"the relay cannot be used .*name the bucket itself"):
        source.list("latest/")
    with pytest.raises(UserError, match="the relay cannot be used"):
        source.get("latest/00000000", limit=100)


def test_a_pool_that_knows_the_bucket_does_without_a_relay_that_is_down(world: World) -> None:
    source = world.source(fallback=True, url=dead_url())
    world.arrives(world.follower(source))
    assert "cannot be used" in str(source.trouble)
    assert "the bucket is asked" in str(source.trouble)


@pytest.mark.parametrize(
    "lie",
    [
        lambda path, data: (503, b"busy"),
        lambda path, data: (302, b""),
        lambda path, data: (200, b"<html>a portal</html>"),
        lambda path, data: (200, b""),
    ],
    ids=["busy", "moved", "a portal's page", "empty"],
)
def test_a_relay_that_answers_nonsense_is_gone_around(world: World, lie: Any) -> None:
    world.relay.lie = lie
    alone = world.source(fallback=False)
    with pytest.raises(UserError):
        world.follower(alone).newest()
    source = world.source(fallback=True)
    assert source.list("latest/") == alone_list(world), "the first look is at the bucket"
    assert source.list("latest/") == alone_list(world)
    assert "cannot be used" in str(source.trouble)
    world.arrives(world.follower(source))


def alone_list(world: World) -> list[str]:
    return world.chain.bucket.list("latest/")  # type: ignore[no-any-return]


def test_a_relay_that_is_back_is_used_again(world: World) -> None:
    source = world.source(fallback=True)
    source.list("latest/")
    world.relay.lie = lambda path, data: (503, b"busy")
    assert source.list("latest/") == alone_list(world)
    world.relay.lie = lambda path, data: (200, data)
    asked = len(world.relay.asked)
    source.list("shortcuts/")
    assert len(world.relay.asked) == asked, "gone around for a while"
    world.clock.now += AVOID_S + 1
    source.list("shortcuts/")
    assert len(world.relay.asked) == asked + 1
    assert source.trouble is None


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def test_a_wrong_frame_from_a_relay_is_never_taken(world: World) -> None:
    world.relay.lie = lambda path, data: (
        200,
        flipped(data) if path.startswith("objects/frames/") else data,
    )
    alone = world.follower(world.source(fallback=False))
    with pytest.raises(UserError, match="hands out a damaged"):
        alone.stage(LENGTH)
    assert state_id(alone.mirror) == world.chain.versions[0].state_id
    source = world.source(fallback=True)
    world.arrives(world.follower(source))
    assert "damaged" in str(source.trouble)


def test_a_wrong_manifest_from_a_relay_is_refused_and_then_asked_of_the_bucket(
    world: World,
) -> None:
    other = world.chain.versions[1].manifest
    world.relay.lie = lambda path, data: (
        200,
        world.chain.bucket.get(other, limit=2**26) if path.startswith("objects/manif") else data,
    )
    source = world.source(fallback=True)
    follower = world.follower(source)
    with pytest.raises(RefusedWeights) as refusal:
        follower.stage(LENGTH)
    assert state_id(follower.mirror) == world.chain.versions[0].state_id
    source.doubt(str(refusal.value))  # as the receiver does
    assert "gone around" in str(source.trouble)
    world.arrives(follower)


def test_a_relay_that_withholds_new_versions_is_noticed(world: World) -> None:
    source = world.source(fallback=True)
    follower = world.follower(source)
    assert follower.newest() == LENGTH
    world.chain.publish_next()
    world.relay.hides = {pointer_key(LENGTH + 1)}
    assert follower.newest() == LENGTH, "hidden"
    world.clock.now += 31
    assert follower.newest() == LENGTH + 1, "the bucket is asked now and then"
    follower.commit(follower.stage(LENGTH + 1))
    assert state_id(follower.mirror) == world.chain.versions[LENGTH + 1].state_id
    assert "does not know latest/" in str(source.trouble)


def test_what_neither_relay_nor_bucket_has_is_not_in_the_bucket(world: World) -> None:
    source = world.source(fallback=True)
    with pytest.raises(NotInBucket):
        source.get(pointer_key(LENGTH + 1), limit=100)
    assert source.trouble is None, "that is not the relay's fault"


def test_an_answer_beyond_the_limit_is_not_read(world: World) -> None:
    source = world.source(fallback=False)
    key = world.frame(1)
    size = len(world.chain.bucket.get(key, limit=2**26))
    with pytest.raises(TooLarge):
        source.get(key, limit=size - 1)
    assert len(source.get(key, limit=size)) == size


def test_a_relay_needs_a_key_and_a_bucket_no_fallback(
    monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    monkeypatch.delenv(KEY_NAME, raising=False)
    with pytest.raises(UserError, match=KEY_NAME):
        open_source(world.relay.url)
    with pytest.raises(UserError, match="a fallback is for a relay"):
        open_source(world.chain.bucket.url, world.chain.bucket.url)
    monkeypatch.setenv(KEY_NAME, KEY)
    source = open_source(world.relay.url, world.chain.bucket.url)
    assert isinstance(source, Relayed)
    world.sources.append(source)
    world.arrives(world.follower(source))
