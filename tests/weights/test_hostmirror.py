"""Pools of one host share what one of them decoded; none of them believes the files."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tradewind.types import RefusedWeights, UserError
from tradewind.weights.bucket import Bucket
from tradewind.weights.checkpoint import write_file
from tradewind.weights.digest import state_id
from tradewind.weights.follow import Follower
from tradewind.weights.hostmirror import KEEP, HostMirror
from tradewind.weights.tensors import TensorSet

LENGTH, WAIT_S = 4, 60


class Counted(Bucket):
    def __init__(self, bucket: Bucket) -> None:
        super().__init__(bucket.url, bucket._store)
        self.asked: Counter[str] = Counter()

    def get(self, key: str, *, limit: int) -> bytes:
        self.asked[key.split("/")[0]] += 1
        return super().get(key, limit=limit)


class Host:
    """Followers of one chain with one mirror folder."""

    def __init__(self, chain: Any, folder: Path) -> None:
        self.chain, self.folder = chain, folder
        self.bucket = Counted(chain.bucket)

    def follower(self, *, wait_s: float = WAIT_S, run_id: str = "run") -> Follower:
        made = Follower(self.bucket, self.chain.states[0], run_id="run")
        made.host = HostMirror(self.folder, run_id, wait_s=wait_s)
        return made

    def goes(self, follower: Follower, version: int) -> None:
        follower.commit(follower.stage(version))
        assert state_id(follower.mirror) == self.chain.versions[version].state_id

    def files(self) -> list[Path]:
        return sorted(self.folder.glob("*.safetensors"))

    def shared(self, follower: Follower) -> bool:
        """Whether every tensor of its mirror lies in a mapped file."""
        return all(_mapped(array) for array in follower.mirror.values())


def _mapped(array: Any) -> bool:
    while array is not None:
        if isinstance(array, np.memmap):
            return True
        array = array.base
    return False


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, make_chain: Callable[..., Any]) -> Any:
    return make_chain(tmp_path_factory.mktemp("host") / "bucket", LENGTH)


@pytest.fixture
def host(built: Any, tmp_path: Path) -> Host:
    return Host(built.copied(tmp_path / "bucket"), tmp_path / "mirror")


def test_the_second_pool_of_a_host_fetches_and_decodes_nothing(host: Host) -> None:
    first, second = host.follower(), host.follower()
    for version in range(1, LENGTH + 1):
        host.goes(first, version)
        fetched = host.bucket.asked["frames"]
        staged = second.stage(version)
        assert host.bucket.asked["frames"] == fetched
        assert (staged.objects, staged.changed.keys()) == (0, dict(first.mirror).keys())
        second.commit(staged)
        assert second.state_id == first.state_id == host.chain.versions[version].state_id
        assert host.shared(first) and host.shared(second)
    for version in (2, 4, 1):
        back = second.recall(version)
        assert back is not None
        second.commit(back)
        assert state_id(second.mirror) == host.chain.versions[version].state_id


def test_pools_that_want_a_version_at_the_same_time_decode_it_once(host: Host) -> None:
    followers = [host.follower() for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda follower: host.goes(follower, 1), followers))
    assert host.bucket.asked["frames"] == 1
    assert all(host.shared(follower) for follower in followers)


def test_only_the_newest_files_keep_their_names_and_old_mirrors_still_stand(host: Host) -> None:
    old, new = host.follower(), host.follower()
    host.goes(old, 1)
    for version in range(1, LENGTH + 1):
        host.goes(new, version)
    names = [path.name.split("-")[1].split(".")[0] for path in host.files()]
    assert names == [f"{version:08d}" for version in range(LENGTH - KEEP + 1, LENGTH + 1)]
    assert state_id(old.mirror) == host.chain.versions[1].state_id
    host.goes(old, LENGTH)


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize(
    "damage",
    [
        flipped,
        lambda data: data[:-1],
        lambda data: b"",
        lambda data: b"\xff" * 64,
        lambda data: data + b"x",
    ],
    ids=["flipped", "cut", "empty", "no header", "grown"],
)
def test_a_damaged_file_is_found_out_and_made_again(
    host: Host, damage: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    host.goes(host.follower(), 1)
    (path,) = host.files()
    good = path.read_bytes()
    path.unlink()
    path.write_bytes(damage(good))
    follower = host.follower()
    host.goes(follower, 1)
    assert "is made again" in caplog.text
    assert path.read_bytes() == good
    assert host.shared(follower)


def test_another_version_under_a_name_is_found_out(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    host.goes(host.follower(), 1)
    (one,) = host.files()
    first = one.read_bytes()
    one.rename(one.with_name(one.name.replace("00000001", "00000002")))
    host.goes(host.follower(), 2)
    follower = host.follower()
    host.goes(follower, 2)
    assert caplog.text.count("is made again") == 1 and host.shared(follower)
    assert all(path.read_bytes() != first for path in host.files())


def test_bytes_that_change_under_a_mapped_mirror_are_noticed(host: Host) -> None:
    follower = host.follower()
    host.goes(follower, 1)
    assert follower.intact()
    (path,) = host.files()
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(-1, 2)
        last = file.read(1)[0]
        file.seek(-1, 2)
        file.write(bytes([last ^ 1]))
    assert not follower.intact()
    with pytest.raises(RefusedWeights):
        follower.stage(2)
    base = follower.rebuild(host.follower().state, 1)
    follower.reseed(base)
    host.goes(follower, 2)


HOLDER = """
import sys, time
from pathlib import Path
from tradewind.weights.hostmirror import HostMirror
with HostMirror(Path(sys.argv[1]), "run").locked() as held:
    print(held, flush=True)
    (Path(sys.argv[1]) / "half.part").write_bytes(b"half")
    time.sleep(600)
"""


def test_the_lock_of_a_pool_that_was_killed_is_free(host: Host) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(host.folder)], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == "True"
        holder.send_signal(signal.SIGKILL)
    follower = host.follower()
    host.goes(follower, 1)
    assert host.shared(follower)


def test_a_pool_that_hangs_is_not_waited_for_for_ever(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    hanging, hung, go = HostMirror(host.folder, "run"), threading.Event(), threading.Event()

    def hang() -> None:
        with hanging.locked():
            hung.set()
            assert go.wait(WAIT_S)

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(hang)
        assert hung.wait(WAIT_S)
        follower = host.follower(wait_s=0.01)
        host.goes(follower, 1)
        assert "is locked" in caplog.text
        assert not host.shared(follower), "it has decoded for itself"
        go.set()
        done.result(WAIT_S)


def test_a_full_disk_takes_the_sharing_and_not_the_version(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    follower = host.follower()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
    try:
        host.goes(follower, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "is not mirrored" in caplog.text
    assert [path.suffix for path in host.folder.iterdir()] == [".lock"], "nothing half is left"
    host.goes(follower, 2)
    assert host.shared(follower)


def test_runs_in_one_folder_do_not_meet(host: Host) -> None:
    host.goes(host.follower(), 1)
    host.goes(host.follower(run_id="other"), 1)
    assert len(host.files()) == 2


def test_a_mirror_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="mirror's folder cannot be made"):
        HostMirror(tmp_path / "file" / "mirror", "run")


def test_a_mirrored_state_is_byte_equal_to_the_decoded_one(host: Host, tmp_path: Path) -> None:
    """The dtypes of the small model, and its scalar, come back with their tags."""
    follower = host.follower()
    host.goes(follower, 1)
    alone = Follower(host.bucket, host.chain.states[0], run_id="run").stage(1).state
    assert follower.state.leaves == alone.leaves
    write_file(tmp_path / "x.safetensors", TensorSet.of(alone.tensors))
    assert (tmp_path / "x.safetensors").read_bytes() == host.files()[0].read_bytes()
