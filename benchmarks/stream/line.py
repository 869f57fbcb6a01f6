"""A long line in user space: a TCP proxy with a rate and a delay.

    pool ──► accept, one round trip ──► [ rate ] ──► [ delay ] ──► bucket
         ◄────────── [ delay ] ◄── [ rate ] ◄────────────────────

All connections of a line share its rate in each direction (a token bucket of `BURST_S` of credit);
every chunk arrives half a round trip after it has left. A new connection costs a round trip more,
as TCP's handshake does. Not modelled: slow start, loss, and what a TLS handshake would add.

    python -m stream.line TARGET RTT_MS:MBIT_S [...]     lines on free ports, until stdin ends
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from common.side import report

CHUNK = 16 * 1024
"""Bytes that leave at a time."""
BURST_S = 0.005
"""Credit of an idle line: as long as a timer may be late."""


@dataclass
class Lane:
    """One direction of a line. Rates in bytes/s, times in seconds of the loop's clock."""

    rate: float
    delay_s: float
    size: int = 0
    """Bytes that have left so far."""
    _free_at: float = 0.0

    def send(self, size: int, now: float) -> tuple[float, float]:
        """When the chunk has left, and when it arrives."""
        self._free_at = max(now - BURST_S, self._free_at) + size / self.rate
        self.size += size
        return self._free_at, max(now, self._free_at) + self.delay_s


@dataclass
class Line:
    """A proxy to `host:port` over a line."""

    host: str
    port: int
    rtt_s: float
    mbit_s: float
    up: Lane = field(init=False)
    down: Lane = field(init=False)

    def __post_init__(self) -> None:
        rate = self.mbit_s * 1e6 / 8
        self.up, self.down = Lane(rate, self.rtt_s / 2), Lane(rate, self.rtt_s / 2)

    async def listen(self) -> tuple[asyncio.Server, int]:
        """The server and its port on loopback."""
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        port: int = server.sockets[0].getsockname()[1]
        return server, port

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(self.host, self.port)
        except OSError:
            writer.close()
            return
        opened = asyncio.get_running_loop().time() + self.rtt_s
        try:
            await asyncio.gather(
                self._carry(reader, back, self.up, opened), self._carry(there, writer, self.down, 0)
            )
        except OSError:
            pass  # an end hung up: so does the line
        finally:
            writer.close()
            back.close()

    async def _carry(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, lane: Lane, opened: float
    ) -> None:
        """One direction of one connection, until its source ends."""
        clock = asyncio.get_running_loop().time
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def deliver() -> None:
            while True:
                at, data = await under_way.get()
                await asyncio.sleep(at - clock())
                if not data:
                    break
                sink.write(data)
                await sink.drain()
            if sink.can_write_eof():
                sink.write_eof()

        delivery = asyncio.create_task(deliver())
        try:
            while data := await source.read(CHUNK):
                left, arrives = lane.send(len(data), clock())
                under_way.put_nowait((max(arrives, opened + lane.delay_s), data))
                await asyncio.sleep(left - clock())
            under_way.put_nowait((clock() + lane.delay_s, b""))
            await delivery
        finally:
            delivery.cancel()


async def run(target: str, lines: Sequence[str]) -> None:
    """Prints the ports, then the bytes of each line whenever a line of text comes in."""
    host, _, port = target.rpartition(":")
    made = []
    for text in lines:
        rtt_ms, mbit_s = map(float, text.split(":"))
        made.append(Line(host, int(port), rtt_ms / 1000, mbit_s))
    servers = [await line.listen() for line in made]
    report("ports", ports=[port for _, port in servers])
    while await asyncio.to_thread(sys.stdin.readline):
        report("bytes", down=[line.down.size for line in made], up=[line.up.size for line in made])


def main() -> None:
    asyncio.run(run(sys.argv[1], sys.argv[2:]))


if __name__ == "__main__":
    main()
