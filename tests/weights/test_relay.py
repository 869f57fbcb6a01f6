"""The relay of a region: all is fetched once, and late pools get the one object they need."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tradewind.relay.app import Relay
from tradewind.relay.config import RelayConfig
from tradewind.relay.main import MirrorLost, main, serve
from tradewind.relay.mirror import Mirror, WrongModel
from tradewind.relay.shelf import Shelf
from tradewind.relay.upstream import Upstream
from tradewind.types import RefusedWeights, Stalled, UserError
from tradewind.weights.bucket import Bucket, NotInBucket
from tradewind.weights.checkpoint import write_file
from tradewind.weights.digest import state_id
from tradewind.weights.follow import Follower
from tradewind.weights.manifest import Manifest, unpack
from tradewind.weights.relayed import KEY_NAME, Relayed
from tradewind.weights.shortcut import publish_shortcut, read_shortcut, shortcut_key
from tradewind.weights.state import State
from tradewind.weights.tensors import TensorSet

KEY, LENGTH, WAIT_S = "relay-key", 6, 60


class Counted(Bucket):
    """Counts what is asked of it, and can be unreachable."""

    def __init__(self, bucket: Bucket) -> None:
        super().__init__(bucket.url, bucket._store)
        self.asked: Counter[str] = Counter()
        self.down = False

    def get(self, key: str, *, limit: int) -> bytes:
        self._count(key)
        return super().get(key, limit=limit)

    def list(self, prefix: str, *, after: str | None = None) -> list[str]:
        self._count(prefix)
        return super().list(prefix, after=after)

    def _count(self, name: str) -> None:
        if self.down:
            raise UserError("the bucket cannot be read (down)", value=self.url, fix="wait")
        self.asked[name] += 1


@dataclass
class World:
    """A chain, and a relay before it, both in this process."""

    chain: Any
    folder: Path
    cache_bytes: int = 2**30
    undo_versions: int = 32
    now: float = 0.0
    """The relay's clock, for listings."""
    bucket: Counted = field(init=False)

    def __post_init__(self) -> None:
        self.bucket = Counted(self.chain.bucket)
        self.shelf = Shelf.at(self.folder / "cache", self.cache_bytes)
        self.upstream = Upstream(self.bucket, self.shelf, names_s=1.0, clock=lambda: self.now)
        config = RelayConfig(undo_versions=self.undo_versions, make_s=30)
        self.mirror = Mirror(
            self.upstream, self.shelf, config, lambda: State.of(0, self.chain.states[0])
        )

    @property
    def source(self) -> Source:
        return Source(self)

    def follower(self, held: int, *, base: bool = False) -> Follower:
        follower = Follower(
            self.source,
            self.chain.states[held],
            held,
            run_id="run",
            base_state_id=self.chain.versions[0].state_id,
        )
        if base:
            follower.read_base = lambda: dict(self.chain.states[0])
        return follower


class Source:
    """What `Relayed` is over HTTP, without HTTP."""

    def __init__(self, world: World) -> None:
        self.url, self.trouble, self.asks_next = "relay", None, False
        self._world = world
        self.get, self.list = world.upstream.get, world.upstream.list

    def shortcut(self, start: int, end: int) -> str | None:
        try:
            return self._world.mirror.shortcut(start, end)
        except (NotInBucket, UserError):
            return None

    def doubt(self, sentence: str) -> None:
        raise AssertionError(sentence)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, make_chain: Callable[..., Any]) -> Any:
    return make_chain(tmp_path_factory.mktemp("relay") / "bucket", LENGTH)


@pytest.fixture
def world(built: Any, tmp_path: Path) -> World:
    return World(built.copied(tmp_path / "bucket"), tmp_path)


def names_of(chain: Any, version: int) -> list[str]:
    """Manifest and frames."""
    packed = chain.bucket.get(chain.versions[version].manifest, limit=2**26)
    frames = Manifest.parse(unpack(packed)).frames
    return [chain.versions[version].manifest, *(frame.key for frame in frames)]


def test_three_pools_follow_through_a_relay_that_fetches_everything_once(world: World) -> None:
    followers = [world.follower(0) for _ in range(3)]
    for version in world.chain.versions[1:]:
        world.now += 10
        for follower in followers:
            assert follower.newest() == LENGTH
            follower.commit(follower.stage(version.version))
            assert state_id(follower.mirror) == version.state_id
    assert world.bucket.asked.pop("latest/") == LENGTH, "one listing per look, not per pool"
    assert set(world.bucket.asked.values()) == {1}
    assert all(name in world.bucket.asked for name in names_of(world.chain, LENGTH))


def test_many_who_ask_at_once_cause_one_fetch(world: World) -> None:
    key = names_of(world.chain, 3)[1]
    get, asked, go = world.bucket.get, threading.Barrier(9), threading.Event()

    def slow(key: str, *, limit: int) -> bytes:
        assert go.wait(WAIT_S)
        return get(key, limit=limit)

    def ask() -> bytes:
        asked.wait(WAIT_S)
        return world.upstream.get(key, limit=2**26)

    world.bucket.get = slow  # type: ignore[method-assign]
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(ask) for _ in range(8)]
        asked.wait(WAIT_S)
        go.set()
        found = {answer.result(WAIT_S) for answer in answers}
    assert found == {world.chain.bucket.get(key, limit=2**26)}
    assert world.bucket.asked[key] == 1


def test_those_who_wait_for_a_fetch_are_told_why_it_failed(world: World) -> None:
    world.bucket.down = True
    with pytest.raises(UserError, match="down"):
        world.upstream.get(names_of(world.chain, 1)[0], limit=2**26)
    assert "down" in str(world.upstream.trouble)
    world.bucket.down = False
    world.upstream.get(names_of(world.chain, 1)[0], limit=2**26)
    assert world.upstream.trouble is None


def test_a_flight_that_does_not_come_back_is_not_waited_for_for_ever(world: World) -> None:
    from tradewind.relay.flights import Flights

    flights, go, begun = Flights(), threading.Event(), threading.Event()

    def job() -> int:
        begun.set()
        assert go.wait(WAIT_S)
        return 7

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(flights.once, "frames/x", job, WAIT_S)
        assert begun.wait(WAIT_S)
        with pytest.raises(Stalled, match="frames/x"):
            flights.once("frames/x", job, 0.01)
        go.set()
        assert first.result(WAIT_S) == 7
    assert flights.once("frames/x", lambda: 8, 1) == 8


@pytest.mark.parametrize("base", [False, True])
@pytest.mark.parametrize("held", range(LENGTH - 1))
def test_a_late_pool_gets_exactly_one_object(world: World, held: int, base: bool) -> None:
    follower = world.follower(held, base=base)
    staged = follower.stage(LENGTH)
    assert (staged.objects, staged.detours) == (1, ())
    follower.commit(staged)
    assert state_id(follower.mirror) == world.chain.versions[LENGTH].state_id
    singles = sum(version.bytes_shipped for version in world.chain.versions[held + 1 :])
    assert staged.bytes_fetched < singles + world.chain.versions[LENGTH].bytes_shipped


@pytest.mark.parametrize("undo", [0, 32], ids=["from the base", "from the undo log"])
def test_a_merged_delta_is_what_a_publisher_would_make(
    world: World, tmp_path: Path, undo: int
) -> None:
    made_by_relay = World(world.chain, tmp_path / "other", undo_versions=undo)
    for number in (2, 4, LENGTH):  # the mirror comes by
        made_by_relay.mirror.shortcut(number - 2, number)
    key = made_by_relay.mirror.shortcut(2, 5)
    there = Bucket.open((tmp_path / "reference").as_uri())
    states = world.chain.states
    base_id = world.chain.versions[0].state_id
    reference = publish_shortcut(
        there, "run", base_id, State.of(2, states[2]), State.of(5, states[5])
    )
    assert reference is not None and reference.key == key
    assert read_shortcut(made_by_relay.shelf, key, run_id="run") == reference
    for frame in reference.frames:
        assert made_by_relay.shelf.get(frame.key, limit=2**26) == there.get(frame.key, limit=2**26)


def test_a_merged_delta_is_made_once(world: World) -> None:
    with ThreadPoolExecutor(4) as pool:
        keys = set(pool.map(lambda _: world.mirror.shortcut(1, 4), range(4)))
    assert keys == {shortcut_key(1, 4, world.chain.versions[4].state_id)}
    assert world.mirror.status.made == 1


@pytest.mark.parametrize(("start", "end"), [(3, 3), (4, 2), (1, LENGTH + 1)])
def test_no_shortcut_is_made_where_none_can_lead(world: World, start: int, end: int) -> None:
    with pytest.raises(NotInBucket):
        world.mirror.shortcut(start, end)


def test_a_mirror_waits_for_the_run_to_begin(bucket: Bucket, tmp_path: Path) -> None:
    shelf = Shelf.at(tmp_path / "cache", 2**20)
    mirror = Mirror(
        Upstream(bucket, shelf, names_s=1), shelf, RelayConfig(), lambda: State.of(0, {})
    )
    mirror.follow()
    assert "waits for version 0" in str(mirror.status.last_error)


def test_a_mirror_of_another_model_makes_nothing(world: World) -> None:
    world.mirror._read_base = lambda: State.of(0, world.chain.states[1])
    with pytest.raises(WrongModel, match="another base model than the run 'run'"):
        world.mirror.follow()


def test_a_mirror_says_why_it_cannot_follow_and_goes_on_when_it_can(world: World) -> None:
    world.mirror.follow()
    world.bucket.down, world.now = True, 10
    world.mirror.follow()
    assert "down" in str(world.mirror.status.last_error)
    world.bucket.down, world.now = False, 20
    world.mirror.follow()
    assert world.mirror.status.last_error is None
    assert world.mirror.status.version == LENGTH


def test_a_mirror_that_is_busy_for_too_long_says_so_and_lives(world: World) -> None:
    world.mirror._config = RelayConfig(make_s=0.01)
    with world.mirror._locked():
        world.mirror.follow()
        assert "another merged delta" in str(world.mirror.status.last_error)
        with pytest.raises(Stalled):
            world.mirror.shortcut(1, 3)
    world.mirror.follow()
    assert world.mirror.status.last_error is None


DAMAGES: list[Callable[[bytes], bytes]] = [
    lambda data: data[:-1],
    lambda data: data + b"x",
    lambda data: data[:9] + bytes([data[9] ^ 1]) + data[10:],
    lambda data: b"",
]


@pytest.mark.parametrize("index", [0, 1], ids=["manifest", "frame"])
def test_what_rots_in_the_cache_is_fetched_again(world: World, index: int) -> None:
    key = names_of(world.chain, 2)[index]
    good = world.upstream.get(key, limit=2**26)
    for count, damage in enumerate(DAMAGES, 2):
        (world.folder / "cache" / key).write_bytes(damage(good))
        assert world.upstream.get(key, limit=2**26) == good
        assert world.bucket.asked[key] == count
    assert world.upstream.traffic.damaged == len(DAMAGES)


@pytest.mark.parametrize("index", [0, 1], ids=["manifest", "frame"])
def test_what_is_damaged_in_the_bucket_is_neither_given_out_nor_kept(
    world: World, index: int
) -> None:
    key = names_of(world.chain, 2)[index]
    path = world.chain.folder / key
    good = path.read_bytes()
    for damage in DAMAGES:
        path.write_bytes(damage(good))
        with pytest.raises(UserError):
            world.upstream.get(key, limit=2**26)
        assert not world.shelf.exists(key)
    path.write_bytes(good)
    assert world.upstream.get(key, limit=2**26) == good


def test_swapped_objects_are_not_given_out(world: World) -> None:
    one, two = (world.chain.folder / names_of(world.chain, n)[0] for n in (1, 2))
    data = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(data)
    with pytest.raises(RefusedWeights, match="under another name"):
        world.upstream.get(f"manifests/{one.name}", limit=2**26)


@pytest.mark.parametrize(
    "name",
    ["", "writable", "frames/../latest/00000001", "/etc/passwd", "frames/" + "0" * 63, "latest/1"],
)
def test_a_name_that_no_object_has_never_reaches_the_bucket(world: World, name: str) -> None:
    with pytest.raises(NotInBucket):
        world.upstream.get(name, limit=100)
    assert not world.bucket.asked


def test_only_folders_of_pointers_and_shortcuts_are_listed(world: World) -> None:
    with pytest.raises(NotInBucket):
        world.upstream.list("frames/")
    assert len(world.upstream.list("latest/")) == LENGTH + 1


def test_a_listing_is_as_old_as_it_may_be_and_no_older(world: World) -> None:
    assert world.upstream.list("latest/")[-1] == f"latest/{LENGTH:08d}"
    published = world.chain.publish_next()
    world.now += 0.9
    assert world.upstream.list("latest/")[-1] == f"latest/{LENGTH:08d}"
    world.now += 0.2
    assert world.upstream.list("latest/", after=f"latest/{LENGTH:08d}") == [
        f"latest/{published.version:08d}"
    ]
    assert world.bucket.asked["latest/"] == 2


def test_a_relay_that_lost_its_bucket_goes_on_with_what_it_has(world: World) -> None:
    follower = world.follower(0)
    follower.commit(follower.stage(1))
    world.bucket.down = True
    again = world.follower(0)
    assert again.stage(1).state_id == world.chain.versions[1].state_id
    with pytest.raises(UserError, match="down"):
        again.stage(2)


def test_a_full_disk_stops_only_the_caching(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(self: Bucket, key: str, data: bytes) -> None:
        raise UserError("the bucket cannot be written (No space left on device)", fix="free some")

    monkeypatch.setattr(Shelf, "put_new", full)
    follower = world.follower(0)
    follower.commit(follower.stage(LENGTH))
    assert state_id(follower.mirror) == world.chain.versions[LENGTH].state_id
    assert "No space left" in caplog.text


def test_a_shelf_keeps_what_was_asked_for_last(tmp_path: Path) -> None:
    shelf = Shelf.at(tmp_path / "shelf", 30)
    for name in "abc":
        shelf.put_new(f"frames/{name}", bytes(10))
    shelf.get("frames/a", limit=10)
    shelf.put_new("frames/d", bytes(10))
    assert shelf.list("frames/") == ["frames/a", "frames/c", "frames/d"]
    shelf.put_new("frames/e", bytes(31))
    assert shelf.list("frames/") == [], "what is larger than the shelf leaves nothing"
    assert shelf.size == 0


def test_a_shelf_that_is_opened_with_less_room_drops_what_is_too_much(tmp_path: Path) -> None:
    shelf = Shelf.at(tmp_path / "shelf", 100)
    for name in "abcd":
        shelf.put_new(f"frames/{name}", bytes(20))
    again = Shelf.at(tmp_path / "shelf", 50)
    assert again.size <= 50
    assert len(again.list("frames/")) == 2


# over HTTP


@pytest.fixture
def model_folder(built: Any, tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    write_file(folder / "model.safetensors", TensorSet(built.states[0]))
    return folder


@pytest.fixture
def url(world: World, model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A whole relay process, but in a thread."""
    monkeypatch.setenv(KEY_NAME, KEY)
    config = RelayConfig(
        bucket=world.chain.folder.as_uri(),
        model=model_folder,
        cache=world.folder / "http-cache",
        port=0,
        names_s=0,
        follow_s=0.05,
    )
    ready: list[Any] = []
    told = threading.Event()
    thread = threading.Thread(
        target=serve, args=(config, lambda *given: (ready.extend(given), told.set())), daemon=True
    )
    thread.start()
    assert told.wait(WAIT_S)
    yield ready[0]
    ready[1]()
    thread.join(WAIT_S)
    assert not thread.is_alive()


def test_a_pool_follows_and_joins_late_over_http(world: World, url: str) -> None:
    source = Relayed(url, KEY)
    base_id = world.chain.versions[0].state_id
    follower = Follower(source, world.chain.states[0], run_id="run")
    assert follower.newest() == LENGTH
    for version in world.chain.versions[1:]:
        follower.commit(follower.stage(version.version))
        assert state_id(follower.mirror) == version.state_id
    late = Follower(source, world.chain.states[1], 1, run_id="run", base_state_id=base_id)
    staged = late.stage(LENGTH)
    assert (staged.objects, staged.detours) == (1, ())
    assert staged.state_id == world.chain.versions[LENGTH].state_id
    status = httpx.get(f"{url}/v1/status", trust_env=False).json()
    assert status["mirror"]["made"] == 1
    assert status["traffic"]["fetched"] < status["traffic"]["asked"]
    assert source.trouble is None
    source.close()


def test_without_the_key_nothing_is_given_out(url: str) -> None:
    for path in ("objects/latest/00000000", "names?prefix=latest/", "shortcuts/0/3"):
        assert httpx.get(f"{url}/v1/{path}", trust_env=False).status_code == 401


def test_nothing_can_be_written_through_a_relay(url: str) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    for method in ("PUT", "POST", "DELETE"):
        answer = httpx.request(
            method, f"{url}/v1/objects/latest/00000099", headers=headers, trust_env=False
        )
        assert answer.status_code == 405


def test_a_relay_without_a_model_caches_and_makes_nothing(world: World) -> None:
    from starlette.testclient import TestClient

    app = Relay(world.upstream, world.shelf, None, KEY).app()
    with TestClient(app, headers={"Authorization": f"Bearer {KEY}"}) as client:
        assert client.get("/v1/shortcuts/0/3").status_code == 404
        assert client.get("/v1/objects/latest/00000003").status_code == 200
        assert client.get("/v1/status").json()["mirror"] is None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "no bucket"),
        (["--bucket", "ftp://x"], "must be a folder or an object store"),
        (["--bucket", "file:///tmp", "--model", "nowhere"], "model folder does not exist"),
        (["--bucket", "file:///tmp", "--port", "-1"], "--port does not work"),
    ],
)
def test_a_relay_that_cannot_work_ends_with_a_sentence(
    arguments: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(KEY_NAME, KEY)
    assert main([*arguments, "--cache", str(tmp_path / "cache")]) == 2
    assert sentence in capsys.readouterr().err


def test_a_relay_of_another_model_ends_with_a_sentence(
    world: World, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_NAME, KEY)
    write_file(model_folder / "model.safetensors", TensorSet(world.chain.states[1]))
    config = RelayConfig(
        bucket=world.chain.folder.as_uri(), model=model_folder, cache=world.folder / "c", port=0
    )
    with pytest.raises(UserError, match="another base model"):
        serve(config)


def test_a_mirror_that_dies_ends_the_relay_with_its_reason(
    world: World, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_NAME, KEY)

    def die(mirror: Mirror) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(Mirror, "follow", die)
    config = RelayConfig(
        bucket=world.chain.folder.as_uri(), model=model_folder, cache=world.folder / "c", port=0
    )
    with pytest.raises(MirrorLost, match="ZeroDivisionError: a bug"):
        serve(config)


def test_a_relay_without_a_key_does_not_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(KEY_NAME, raising=False)
    assert main(["--bucket", "file:///tmp"]) == 2
    assert KEY_NAME in capsys.readouterr().err
