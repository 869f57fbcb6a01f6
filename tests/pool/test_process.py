"""The whole pool process over loopback HTTP: routes, reports, shutdown, bad input."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tradewind.pool.config import PoolConfig
from tradewind.pool.main import main, serve
from tradewind.pool.receiver import EngineLost
from tradewind.run.goto import go_to
from tradewind.types import (
    GenerateChunk,
    GenerateRequest,
    PoolReport,
    PoolState,
    Stalled,
    UserError,
)
from tradewind.weights.checkpoint import write_file
from tradewind.weights.tensors import TensorSet

KEY = "pool-key"
WAIT_S = 60


class Pool:
    """`serve` in a thread."""

    def __init__(self, config: PoolConfig, engine: Any) -> None:
        self._thread = threading.Thread(
            target=serve, args=(config,), kwargs={"open_engine": lambda *_: engine}, daemon=True
        )
        self._thread.start()

    def join(self) -> None:
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "the pool did not end"


@pytest.fixture
def pool_url(
    history: Any,
    engine: Any,
    folder: Path,
    controller: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[str]:
    monkeypatch.setenv("TRADEWIND_POOL_KEY", KEY)
    config = PoolConfig(
        name="paris",
        model=folder,
        bucket=history.url,
        controller=controller.url,
        poll_s=0.01,
        report_s=0.02,
    )
    pool = Pool(config, engine)
    report = controller.wait_for(PoolState.SERVING, 0)
    yield report.url
    controller.stop = True
    pool.join()


def client(url: str, key: str = KEY) -> httpx.Client:
    return httpx.Client(
        base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=WAIT_S, trust_env=False
    )


def request(name: str, tokens: int = 5) -> str:
    return GenerateRequest(
        request_id=name, prompt_ids=(1, 2), max_tokens=tokens, stop_ids=()
    ).model_dump_json()


def test_tokens_stream_as_lines_until_a_finish_reason(pool_url: str) -> None:
    with client(pool_url) as http:
        answer = http.post("/v1/generate", content=request("a"))
    chunks = [GenerateChunk.model_validate_json(line) for line in answer.text.splitlines()]
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert [i for chunk in chunks for i in chunk.ids] == [0, 1, 2, 3, 4]
    assert [chunk.finish_reason for chunk in chunks] == [None] * 4 + ["length"]


def test_a_client_that_goes_away_cancels_its_request(pool_url: str, engine: Any) -> None:
    with (
        client(pool_url) as http,
        http.stream("POST", "/v1/generate", content=request("gone", 10**9)) as answer,
    ):
        next(answer.iter_lines())
    assert engine.cancelled.wait(WAIT_S)


def test_cancel_ends_the_stream_with_its_reason(pool_url: str) -> None:
    with (
        client(pool_url) as http,
        http.stream("POST", "/v1/generate", content=request("x", 10**9)) as answer,
    ):
        lines = answer.iter_lines()
        next(lines)
        assert httpx.post(f"{pool_url}/v1/cancel/x", trust_env=False).status_code == 401
        headers = {"Authorization": f"Bearer {KEY}"}
        done = httpx.post(f"{pool_url}/v1/cancel/x", headers=headers, trust_env=False)
        assert done.status_code == 204
        *_, last = lines
    assert GenerateChunk.model_validate_json(last).finish_reason == "cancelled"


def test_a_wrong_key_gets_no_tokens(pool_url: str) -> None:
    with client(pool_url, "wrong") as http:
        answer = http.post("/v1/generate", content=request("a"))
    assert answer.status_code == 401
    assert "pool key" in answer.json()["error"]


@pytest.mark.parametrize("body", ["", "{}", '{"request_id": 1}', "[1]"])
def test_what_is_no_request_gets_a_sentence(pool_url: str, body: str) -> None:
    with client(pool_url) as http:
        answer = http.post("/v1/generate", content=body)
    assert answer.status_code == 422
    assert "not a generate request" in answer.json()["error"]


def test_health_shows_the_report(pool_url: str) -> None:
    with client(pool_url) as http:
        report = PoolReport.model_validate_json(http.get("/v1/health").content)
    assert (report.pool, report.state, report.url) == ("paris", PoolState.SERVING, pool_url)


def test_a_version_is_swapped_in_while_a_request_runs(
    pool_url: str, history: Any, controller: Any
) -> None:
    with (
        client(pool_url) as http,
        http.stream("POST", "/v1/generate", content=request("long", 10**9)) as answer,
    ):
        lines = answer.iter_lines()
        assert GenerateChunk.model_validate_json(next(lines)).version == 0
        published = history.publish_next()
        report = controller.wait_for(PoolState.SERVING, 1)
        assert report.attestations[-1].state_id == published.state_id
        seen = (GenerateChunk.model_validate_json(line).version for line in lines)
        assert next(version for version in seen if version != 0) == 1


def test_a_pool_can_only_be_sent_back_by_a_restart(
    pool_url: str, history: Any, controller: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRADEWIND_POOL_KEY", KEY)
    for _ in range(3):
        history.publish_next()
    controller.wait_for(PoolState.SERVING, 3)
    with (
        client(pool_url) as http,
        http.stream("POST", "/v1/generate", content=request("long", 10**9)) as answer,
    ):
        lines = answer.iter_lines()
        for version in (1, 2, 0):
            report = go_to(pool_url, version, WAIT_S)
            assert (report.version, report.pinned, report.state) == (version, version, "serving")
            seen = (GenerateChunk.model_validate_json(line).version for line in lines)
            assert next(v for v in seen if v == version) == version, "the running request goes on"
        history.publish_next()
        assert go_to(pool_url, 0, WAIT_S).version == 0, "it stays there"
        assert go_to(pool_url, None, WAIT_S).pinned is None
        controller.wait_for(PoolState.SERVING, 4)


def test_an_alarm_sends_a_pool_back_and_what_is_published_meanwhile_changes_nothing(
    pool_url: str, history: Any, controller: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRADEWIND_POOL_KEY", KEY)
    for _ in range(2):
        history.publish_next()
    controller.wait_for(PoolState.SERVING, 2)
    controller.order = {"number": 1, "version": 1}
    assert controller.wait_for(PoolState.SERVING, 1).pinned == 1
    history.publish_next()
    assert go_to(pool_url, 2, WAIT_S).version == 2, "a person's word is not overruled"
    controller.wait_for(PoolState.SERVING, 2)
    controller.order = {"number": 2, "version": None}
    assert controller.wait_for(PoolState.SERVING, 3).pinned is None


def test_a_pool_is_sent_to_what_is_no_version_or_by_a_stranger(
    pool_url: str, history: Any, controller: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRADEWIND_POOL_KEY")
    with pytest.raises(UserError, match="no pool key"):
        go_to(pool_url, 0, 0)
    monkeypatch.setenv("TRADEWIND_POOL_KEY", "wrong")
    with pytest.raises(UserError, match="401"):
        go_to(pool_url, 0, 0)
    monkeypatch.setenv("TRADEWIND_POOL_KEY", KEY)
    with pytest.raises(UserError, match="no pool answers there"):
        go_to("http://127.0.0.1:1", 0, 0)
    with pytest.raises(Stalled, match="version 7 in pool paris"):
        go_to(pool_url, 7, 0.1)
    with client(pool_url) as http:
        for body in ("", "{}", '{"version": -1}', '{"version": "x"}'):
            assert http.post("/v1/weights/go-to", content=body).status_code == 422
        pinned = PoolReport.model_validate_json(http.get("/v1/health").content).pinned
    assert pinned == 7, "what was refused has changed nothing"


def test_attestations_are_repeated_until_acknowledged(
    pool_url: str, history: Any, controller: Any
) -> None:
    controller.acknowledge = False
    history.publish_next()
    for _ in range(3):
        report = controller.wait_for(PoolState.SERVING, 1)
        assert 1 in [proof.version for proof in report.attestations]
    controller.acknowledge = True
    while controller.wait_for(PoolState.SERVING, 1).attestations:
        pass


def test_a_controller_that_refuses_reports_is_told_and_survived(
    pool_url: str, controller: Any
) -> None:
    controller.status = 401
    while not (report := controller.reports.get(timeout=WAIT_S)).detail:
        pass
    assert "refuses reports (401" in report.detail
    with client(pool_url) as http:
        assert http.post("/v1/generate", content=request("a")).status_code == 200
    controller.status = 200
    while controller.reports.get(timeout=WAIT_S).detail:
        pass


def test_a_pool_that_stops_ends_its_streams_with_an_error(pool_url: str, controller: Any) -> None:
    with (
        client(pool_url) as http,
        http.stream("POST", "/v1/generate", content=request("long", 10**9)) as answer,
    ):
        lines = answer.iter_lines()
        next(lines)
        controller.stop = True
        *_, last = lines
    chunk = GenerateChunk.model_validate_json(last)
    assert (chunk.finish_reason, chunk.error) == (None, "the pool was stopped")


@pytest.fixture
def arguments(history: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("TRADEWIND_POOL_KEY", KEY)
    return ["--model", str(folder), "--bucket", history.url]


def test_a_port_in_use_is_a_sentence(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main([*arguments, "--port", str(port)]) == 2
    assert f"127.0.0.1:{port}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (["--threads", "0"], "--threads does not work"),
        (["--bucket", "ftp://x"], "a bucket must be a folder or an object store"),
        (["--model", "nowhere"], "the model folder does not exist"),
        (["--config", "nowhere.json"], "the configuration cannot be read"),
    ],
)
def test_a_bad_option_is_a_sentence(
    arguments: list[str], capsys: pytest.CaptureFixture[str], change: list[str], sentence: str
) -> None:
    assert main([*arguments, *change]) == 2
    assert sentence in capsys.readouterr().err


def test_a_pool_without_a_key_does_not_start(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TRADEWIND_POOL_KEY")
    assert main(arguments) == 2
    assert "TRADEWIND_POOL_KEY" in capsys.readouterr().err


def test_an_unreachable_controller_is_survived(
    history: Any, engine: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tradewind.pool.reporter import Reporter, controller_client
    from tradewind.pool.status import PoolStatus

    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    status = PoolStatus("paris", "http://127.0.0.1:1", "b3:0")
    with controller_client(url, KEY) as http:
        Reporter(http, status, engine, on_stop=lambda: None).report()
    detail = status.report(engine.load()).detail
    assert detail is not None and "does not answer" in detail


def test_a_pool_with_another_base_model_ends_with_a_sentence(
    history: Any, engine: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRADEWIND_POOL_KEY", KEY)
    write_file(folder / "model.safetensors", TensorSet({"norm.weight": np.zeros(16, np.float32)}))
    config = PoolConfig(model=folder, bucket=history.url)
    with pytest.raises(UserError, match="another base model"):
        serve(config, open_engine=lambda *_: engine)


def test_an_engine_that_dies_ends_the_pool_with_its_reason(
    history: Any, engine: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRADEWIND_POOL_KEY", KEY)
    engine.error = "the engine died: out of memory"
    with pytest.raises(EngineLost, match="out of memory"):
        serve(PoolConfig(model=folder, bucket=history.url), open_engine=lambda *_: engine)
