"""A PostgreSQL server of our own: the system's programs, a throwaway folder, a socket in it.

It listens on no port, trusts whoever can enter its closed folder, and ends with the context. It
refuses to run as root, so then it runs as another user.
"""

from __future__ import annotations

import os
import pwd
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import OperationalError

WAIT_S = 60
MISSING = "there is no PostgreSQL server here; install it: apt-get install postgresql"
_PLACES = "/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin"


def programs() -> Path | None:
    """The folder with `initdb` and `postgres`, newest version first; None if there is none."""
    on_path = shutil.which("initdb")
    found = [Path(on_path).resolve().parent] if on_path else []
    for pattern in _PLACES:
        found += sorted(Path("/").glob(pattern.lstrip("/")), key=_version, reverse=True)
    whole = (place for place in found if (place / "postgres").exists())
    return next(whole, None)


@contextmanager
def server(**settings: str) -> Iterator[str]:
    """Its SQLAlchemy URL, of a database that nobody uses; `settings` are those of postgresql.conf.

    Ask `programs` first whether there is one.
    """
    with running(**settings) as found:
        yield found.url


@contextmanager
def running(password: str | None = None, **settings: str) -> Iterator[Server]:
    """The same, as something that can crash and start again; with `password` it asks for that."""
    bin_folder = programs()
    assert bin_folder is not None, MISSING
    with tempfile.TemporaryDirectory(prefix="tradewind-pg-", ignore_cleanup_errors=True) as place:
        user = _owner(Path(place))
        made = [str(bin_folder / "initdb"), "-D", f"{place}/data", "-U", "tradewind", "-A", "trust"]
        made += ["-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions"]
        if password is not None:
            (Path(place) / "password").write_text(password)
            made += ["--pwfile", f"{place}/password", "-A", "scram-sha-256"]
        subprocess.run(made, check=True, stdout=subprocess.DEVNULL, cwd=place, user=user)
        settings = {"listen_addresses": "", "unix_socket_directories": place, **settings}
        argv = [str(bin_folder / "postgres"), "-D", f"{place}/data"]
        argv += [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        who = "tradewind" if password is None else f"tradewind:{password}"
        port = settings.get("port", "5432")
        url = f"postgresql+psycopg://{who}@/postgres?host={place}&port={port}"
        found = Server(url, Path(place), argv, user)
        found.start()
        try:
            yield found
        finally:
            found.crash()  # nothing of it is kept, so nothing needs to be written


class Server:
    """One server in its folder."""

    def __init__(self, url: str, place: Path, argv: list[str], user: int | None) -> None:
        self.url = url
        self._place, self._argv, self._user = place, argv, user
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when it answers."""
        log = self._place / "log"
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                self._argv, stdout=file, stderr=file, cwd=self._place, user=self._user
            )
        _await(self.url, self._process, log)

    def crash(self) -> None:
        """Lose what is in its memory: whatever was not written to the log on disk is gone."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)  # its word for: at once
            self._process.wait(WAIT_S)
            self._process = None


def new_database(url: str, copy_of: str = "template1") -> str:
    """The URL of a new database on the same server."""
    name = f"ledger_{secrets.token_hex(8)}"
    engine = create_engine(make_url(url).set(database="postgres"), isolation_level="AUTOCOMMIT")
    with engine.connect() as conn:
        conn.execute(text(f"CREATE DATABASE {name} TEMPLATE {copy_of}"))
    engine.dispose()
    return make_url(url).set(database=name).render_as_string(hide_password=False)


def new_copy(url: str) -> str:
    """The URL of a copy of a database that nobody is connected to."""
    return new_database(url, make_url(url).database or "template1")


def _version(place: Path) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", place.parent.name)))


def _owner(place: Path) -> int | None:
    """Who runs the server: None is the caller; if that is root, `postgres` or `nobody`."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    entry = names.get("postgres") or names["nobody"]
    os.chown(place, entry.pw_uid, entry.pw_gid)
    return entry.pw_uid


def _await(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    engine = create_engine(url)
    deadline = time.monotonic() + WAIT_S
    try:
        while True:
            assert process.poll() is None, f"PostgreSQL ended: {log.read_text()}"
            assert time.monotonic() < deadline, f"PostgreSQL does not answer: {log.read_text()}"
            try:
                engine.connect().close()
                return
            except OperationalError:  # it does not listen yet
                time.sleep(0.05)
    finally:
        engine.dispose()
