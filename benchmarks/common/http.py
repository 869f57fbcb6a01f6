"""A client that costs little: one kept connection, one request at a time, JSON both ways.

A benchmark of a server shares its cores with the client; a full-grown one would take half of them.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any


class Connection:
    """`await Connection.open(port)`; HTTP/1.1 on loopback with Content-Length."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> Connection:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def post(self, path: str, body: dict[str, Any], key: str) -> tuple[int, Any]:
        """Status and JSON of the answer; None if it has no body."""
        data = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        self._writer.write(head.encode() + data)
        lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        fields = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
        length = int(fields.get("content-length", "0"))
        answer = await self._reader.readexactly(length)
        return int(lines[0].split()[1]), json.loads(answer) if answer else None

    def close(self) -> None:
        self._writer.close()
