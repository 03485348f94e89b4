"""Slow and malformed clients: `hostile_clients.py PORT COUNT [PAUSE [LOGIN]]`, until standard input ends.

Each pauses for so many seconds (0.5) after it was disconnected. Those that ask for metrics have the login, if
there is one. A program of its own, so that its cost is not taken from the scraper that is being watched.
"""

import asyncio
import base64
import json
import os
import resource
import socket
import struct
import sys
from collections import Counter
from collections.abc import Awaitable, Callable

PAUSE_SECONDS = float(sys.argv[3]) if len(sys.argv) > 3 else 0.5
LOGIN = f"Authorization: {sys.argv[4]}\r\n".encode() if len(sys.argv) > 4 else b""
REQUEST = b"GET /metrics HTTP/1.1\r\nHost: x\r\n" + LOGIN + b"\r\n"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connected = Callable[[str], None]


async def connect_and_send_nothing(streams: Streams) -> None:
    await streams[0].read()


async def send_half_a_header_byte_by_byte(streams: Streams) -> None:
    streams[1].write(b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: ")
    while not streams[0].at_eof():
        streams[1].write(b"x")
        await streams[1].drain()
        await asyncio.sleep(0.3)


async def send_a_header_without_end(streams: Streams) -> None:
    streams[1].write(b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 100_000)
    await streams[1].drain()
    await streams[0].read()


async def send_too_many_header_fields(streams: Streams) -> None:
    streams[1].write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n" + b"x:\r\n" * 3000 + b"\r\n")
    await streams[0].read()


async def send_empty_lines(streams: Streams) -> None:
    while not streams[0].at_eof():
        streams[1].write(b"\r\n" * 10_000)
        await streams[1].drain()
        await asyncio.sleep(0.05)


async def request_and_half_close(streams: Streams) -> None:
    streams[1].write(REQUEST * 10)
    streams[1].write_eof()
    await asyncio.Event().wait()


async def request_and_reset(streams: Streams) -> None:
    streams[1].write(REQUEST * 10)
    await streams[1].drain()
    linger = struct.pack("ii", 1, 0)
    streams[1].get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)


async def send_garbage(streams: Streams) -> None:
    streams[1].write(os.urandom(300))
    await streams[0].read()


async def request_and_never_read(streams: Streams) -> None:
    streams[1].transport.pause_reading()  # type: ignore[attr-defined]
    streams[1].write(REQUEST * 10)
    await asyncio.Event().wait()


async def request_once_and_idle(streams: Streams) -> None:
    streams[1].write(REQUEST.replace(b"/metrics", b"/healthz"))
    await streams[0].read()


async def request_without_end(streams: Streams) -> None:
    streams[1].write(REQUEST * 200)
    await streams[1].drain()
    await streams[0].read()


async def begin_a_handshake_and_stop(streams: Streams) -> None:
    streams[1].write(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(60))
    await streams[0].read()


async def send_an_endless_body(streams: Streams) -> None:
    streams[1].write(b"POST /metrics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    while not streams[0].at_eof():
        streams[1].write(b"4000\r\n" + b"x" * 0x4000 + b"\r\n")
        await streams[1].drain()
        await asyncio.sleep(0.05)


async def guess_a_password(streams: Streams) -> None:
    guess = base64.b64encode(b"prometheus:" + os.urandom(6).hex().encode())
    streams[1].write(b"GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Basic " + guess + b"\r\n\r\n")
    await streams[0].read()


KINDS: tuple[Callable[[Streams], Awaitable[None]], ...] = (
    connect_and_send_nothing,
    send_half_a_header_byte_by_byte,
    send_a_header_without_end,
    send_too_many_header_fields,
    send_empty_lines,
    request_and_half_close,
    request_and_reset,
    send_garbage,
    request_and_never_read,
    request_once_and_idle,
    request_without_end,
    begin_a_handshake_and_stop,
    send_an_endless_body,
    guess_a_password,
)


async def repeat(kind: Callable[[Streams], Awaitable[None]], port: int, connected: Connected) -> None:
    """Connects again after a pause, without end."""
    while True:
        try:
            streams = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(PAUSE_SECONDS)
            continue
        connected(kind.__name__)
        try:
            await kind(streams)
        except OSError:
            pass
        finally:
            streams[1].transport.abort()
        await asyncio.sleep(PAUSE_SECONDS)


async def run(port: int, count: int) -> None:
    """Prints when all have connected and when many have reconnected; at the end the count of each kind."""
    connections: Counter[str] = Counter()

    def connected(kind: str) -> None:
        connections[kind] += 1
        if connections.total() == count:
            print("connected", flush=True)
        elif connections.total() == 2 * count:
            print("reconnected", flush=True)

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda *_: None)  # being disconnected is expected
    ended = loop.run_in_executor(None, sys.stdin.read)
    tasks = [loop.create_task(repeat(KINDS[number % len(KINDS)], port, connected)) for number in range(count)]
    await ended
    print(json.dumps(connections), flush=True)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


if __name__ == "__main__":
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    asyncio.run(run(int(sys.argv[1]), int(sys.argv[2])))
