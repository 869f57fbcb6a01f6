"""The gateway as a process of its own: killed, started again, ended, and badly configured."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tradewind.gateway.main import main

KEYS = {"TRADEWIND_POOL_KEY": "pool-key", "TRADEWIND_USER_KEY": "user-key"}
SOURCES = Path(__file__).parents[2] / "src"


def command(world, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "tradewind.gateway", "--workspace", str(world.folder), *arguments]


def environment(**keys: str) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("TRADEWIND_")}
    return {**own, "PYTHONPATH": str(SOURCES), **keys}


@contextlib.contextmanager
def process(world) -> Iterator[subprocess.Popen[str]]:
    """Runs until killed; `world.url` is its address."""
    config = world.folder / "gateway.toml"
    config.write_text(f"port = 0\npool_alive_s = 600.0\nmodel_folder = '{world.model}'\n")
    started = subprocess.Popen(
        command(world, "--config", str(config)),
        env=environment(**KEYS),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert started.stderr is not None
        line = next(line for line in started.stderr if "listens on" in line)
        world.url = line.split()[-1]
        yield started
    finally:
        started.kill()
        started.wait(20)
        started.stderr.close()


def post(world, key: str, **headers: str) -> httpx.Response:
    return httpx.post(
        f"{world.url}/v1/chat/completions",
        headers={"Authorization": f"Bearer {key}", **headers},
        json={"model": "m", "messages": [{"role": "user", "content": "hi"}]},
        timeout=30,
    )


def test_kill_9_in_mid_answer_loses_that_turn_and_nothing_else(bare_world):
    world = bare_world
    lease = world.lease()
    world.paris.script.extend([world.reply("one"), world.reply("two", stall_after=2)])
    with process(world) as first:
        assert "one" in post(world, lease.model_key).text
        killer = threading.Thread(target=lambda: (world.paris.stalled.wait(20), first.kill()))
        killer.start()
        with pytest.raises(httpx.TransportError):
            post(world, lease.model_key)
        killer.join()
    assert [t.state.value for t in world.turns(lease)] == ["done", "intent"]
    with process(world):
        assert "one" in post(world, lease.model_key, **{"x-stainless-retry-count": "1"}).text
        assert "hello" in post(world, lease.model_key).text
    assert [t.state.value for t in world.turns(lease)] == ["done", "lost", "done"]


def test_sigterm_ends_it_and_records_what_was_in_flight_as_lost(bare_world):
    world = bare_world
    lease = world.lease()
    world.paris.script.append(world.reply("one", stall_after=2))
    with process(world) as running:
        headers = {"Authorization": f"Bearer {lease.model_key}"}
        body = {"messages": [{"role": "user", "content": "hi"}], "stream": True}
        url = f"{world.url}/v1/chat/completions"
        with httpx.stream("POST", url, headers=headers, json=body, timeout=30) as answer:
            assert answer.status_code == 200
            world.paris.stalled.wait(20)
            running.send_signal(signal.SIGTERM)
            assert running.wait(20) == 0
    assert [t.state.value for t in world.turns(lease)] == ["lost"]


@pytest.mark.parametrize(
    ("config", "keys", "sentence"),
    [
        ("prot = 1", KEYS, "prot"),
        ("port = ", KEYS, "neither JSON nor TOML"),
        ("model_folder = '/nowhere'", KEYS, "no tokenizer.json"),
        ("", {}, "Fix: set TRADEWIND_POOL_KEY"),
    ],
    ids=["unknown key", "no toml", "no model", "no pool key"],
)
def test_bad_start_gets_a_sentence(bare_world, monkeypatch, capsys, config, keys, sentence):
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    for name, value in keys.items():
        monkeypatch.setenv(name, value)
    file = bare_world.folder / "gateway.toml"
    file.write_text(config)
    assert main(["--config", str(file), "--workspace", str(bare_world.folder)]) == 2
    assert sentence in capsys.readouterr().err


def test_port_in_use_gets_a_sentence(world, monkeypatch, capsys):
    monkeypatch.setenv("TRADEWIND_POOL_KEY", "pool-key")
    port = int(world.url.rpartition(":")[2])
    file = world.folder / "gateway.json"
    file.write_text(json.dumps({"port": port, "model_folder": str(world.model)}))
    assert main(["--config", str(file), "--workspace", str(world.folder)]) == 2
    assert f"127.0.0.1:{port}" in capsys.readouterr().err


def test_parameter_table_is_printed(capsys):
    assert main(["--parameters"]) == 0
    assert "temperature" in capsys.readouterr().out
