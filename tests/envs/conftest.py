"""Modules of this folder and of tests/worker can be imported; `serve` serves an ASGI app."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvicorn

from tradewind.http.listening import listen

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "worker"))


@asynccontextmanager
async def serving(app):
    """The app on loopback, in this event loop; its URL."""
    listener = listen("127.0.0.1", 0)
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await running


@pytest.fixture
def serve():
    return serving
