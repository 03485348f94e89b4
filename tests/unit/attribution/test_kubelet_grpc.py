"""The gRPC client on a socket pair: replies made frame by frame, whole, odd, damaged and cut off."""

import contextlib
import socket
import time

import pytest
from hpack import Encoder
from hyperframe.frame import (
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
)
from hypothesis import given
from hypothesis import strategies as st

from gputally.attribution.kubelet_grpc import Reply, exchange
from gputally.model import Unavailable

LIMIT = 1000
NOTHING = memoryview(b"")
OK = [(":status", "200"), ("content-type", "application/grpc")]


def reply_to(answer: bytes) -> Reply:
    """What `exchange` makes of a server that sends `answer` and then closes."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(answer)
        theirs.shutdown(socket.SHUT_WR)
        return exchange(ours, "/v1.Service/Method", time.monotonic() + 30, LIMIT)


def frames(*some: Frame) -> bytes:
    return b"".join(frame.serialize() for frame in (SettingsFrame(0), *some))


def headers(encoder: Encoder, *fields: tuple[str, str], last: bool = False) -> HeadersFrame:
    flags = ["END_HEADERS", "END_STREAM"] if last else ["END_HEADERS"]
    return HeadersFrame(1, encoder.encode(list(fields)), flags=flags)


def whole_reply(*pieces: bytes, status: str = "0", error: str = "") -> bytes:
    encoder = Encoder()
    return frames(
        headers(encoder, *OK),
        PingFrame(0, b"12345678"),
        *(DataFrame(1, piece) for piece in pieces),
        headers(encoder, ("grpc-status", status), ("grpc-message", error), last=True),
    )


def test_a_message_in_several_frames_is_joined() -> None:
    assert reply_to(whole_reply(b"\0\0\0", b"\0\5he", b"", b"llo")) == Reply(0, "", memoryview(b"hello"))


def test_an_error_has_the_message_of_the_server() -> None:
    assert reply_to(whole_reply(status="8", error="100%25 full%2c")) == Reply(8, "100% full,", NOTHING)


def test_an_error_without_a_message() -> None:
    only_trailers = headers(Encoder(), *OK, ("grpc-status", "12"), last=True)

    assert reply_to(frames(only_trailers)) == Reply(12, "", NOTHING)


def test_the_message_of_an_error_is_cut() -> None:
    assert reply_to(whole_reply(status="8", error="x" * 9_000)) == Reply(8, "x" * 300, NOTHING)


def test_a_reply_of_too_many_bytes_is_refused() -> None:
    with pytest.raises(Unavailable, match="the kubelet's answer is too large: more than 1000 bytes"):
        reply_to(whole_reply(b"\0\0\0\x10\0" + bytes(LIMIT)))


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (whole_reply(b"\0\0\0\0\5hell"), "whole"),
        (whole_reply(b"\0\0\0\0\1hello"), "whole"),
        (whole_reply(b"\1\0\0\0\5hello"), "uncompressed"),
        (whole_reply(), "whole"),
        (whole_reply(b"\0\0\0\0\0", status="fine"), "no gRPC status"),
        (frames(headers(Encoder(), (":status", "404"), last=True)), "HTTP status 404"),
        (b"\0\0\5\0\0\0\0\0\0hello", "HTTP/2"),
    ],
)
def test_a_reply_other_than_grpc_is_reported(answer: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        reply_to(answer)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        frames(),
        whole_reply(b"\0\0\0\0\5hello")[:-3],
        frames(RstStreamFrame(1, 7)),
        frames(GoAwayFrame(0, last_stream_id=0, error_code=2)),
    ],
    ids=["closed", "HTTP/1.1", "no reply", "cut off", "reset", "going away"],
)
def test_an_interrupted_call_is_an_os_error(answer: bytes) -> None:
    with pytest.raises(ConnectionResetError):
        reply_to(answer)


def test_the_deadline_is_kept() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(TimeoutError):
        exchange(ours, "/v1.Service/Method", time.monotonic() + 0.1, LIMIT)


@given(st.data())
def test_a_damaged_reply_is_a_value_error_an_os_error_or_a_reply(data: st.DataObject) -> None:
    answer = bytearray(whole_reply(b"\0\0\0\0\5he", b"llo"))
    for _ in range(data.draw(st.integers(1, 4))):
        answer[data.draw(st.integers(0, len(answer) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ValueError, OSError):
        reply_to(bytes(answer))


@given(st.binary(max_size=100))
def test_random_bytes_are_a_value_error_or_an_os_error(noise: bytes) -> None:
    with pytest.raises((ValueError, OSError)):
        reply_to(frames() + noise)
