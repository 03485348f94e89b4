"""A server that sends the same bytes as every response: the lower limit of any exporter's cost.

Run as `python static_server.py PORT FILE`.
"""

import asyncio
import sys
from pathlib import Path


class StaticAnswer(asyncio.Protocol):
    """One connection."""

    answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._received = b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            self._received = self._received[end + 4 :]
            self._transport.write(self.answer)


async def serve(port: int, body: bytes) -> None:
    head = (
        f"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    StaticAnswer.answer = head.encode() + body
    server = await asyncio.get_running_loop().create_server(StaticAnswer, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), Path(sys.argv[2]).read_bytes()))
