"""From bytes to requests, however the bytes are cut."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.server.http1 import Request, RequestParser, Response, encode_head, path_of, text_response
from gputally.server.limits import Limits
from tests.support.http_client import request
from tests.support.http_verdicts import VERDICTS


def read(pieces: Iterable[bytes], limits: Limits | None = None) -> RequestParser:
    parser = RequestParser(limits or Limits())
    for piece in pieces:
        parser.feed(piece)
    return parser


def refusal(*pieces: bytes, limits: Limits | None = None) -> int | None:
    """The status with which the last request is refused, if it is."""
    queue = read(pieces, limits).queue
    last = queue[-1] if queue else None
    return last.status if isinstance(last, Response) else None


REQUESTS = st.lists(
    st.builds(
        request,
        st.sampled_from(["/metrics", "/", "/healthz?x=1", "/" + "p" * 300]),
        st.sampled_from(["GET", "HEAD", "POST"]),
        accept=st.sampled_from(["*/*", "application/openmetrics-text;version=1.0.0"]),
        accept_encoding=st.sampled_from(["gzip", "", "identity;q=0.5, *"]),
    ),
    min_size=1,
    max_size=5,
)


@given(REQUESTS, st.data())
def test_requests_are_the_same_for_any_division_of_the_bytes(
    requests: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(requests)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    whole, pieced = read([stream]), read(pieces)
    assert len(whole.queue) == len(requests)
    assert list(pieced.queue) == list(whole.queue)
    assert not pieced.complete


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_any_bytes_are_read_without_an_exception(pieces: list[bytes]) -> None:
    parser = read(pieces)
    assert parser.complete or all(isinstance(item, Request) for item in parser.queue)


@given(REQUESTS, st.binary(min_size=1, max_size=40), st.data())
def test_damaged_bytes_are_read_without_an_exception(
    requests: list[bytes], damage: bytes, data: st.DataObject
) -> None:
    stream = b"".join(requests)
    at = data.draw(st.integers(0, len(stream)))
    parser = read([stream[:at] + damage + stream[at + len(damage) :]])
    assert len(parser.queue) <= Limits().pipelined_requests + 1


def test_an_internal_error_refuses_the_request_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(target: str) -> str:
        raise RuntimeError("a bug")

    monkeypatch.setattr("gputally.server.http1.path_of", fail)
    assert refusal(request()) == 400
    assert not caplog.records


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 40,  # a TLS client hello
        b"\0\0\0\0",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /metrics FTP/1.1\r\n\r\n",
    ],
)
def test_malformed_bytes_are_refused_as_a_bad_request(garbage: bytes) -> None:
    assert refusal(garbage) == 400


@pytest.mark.parametrize(("data", "status"), VERDICTS.values(), ids=VERDICTS.keys())
def test_what_the_standard_calls_invalid_is_refused(data: bytes, status: int | None) -> None:
    assert refusal(data) == status
    assert refusal(*(data[at : at + 1] for at in range(len(data)))) == status


def test_other_versions_are_refused() -> None:
    assert refusal(b"GET /\r\n\r\n") in (400, 505)
    assert refusal(b"GET / HTTP/2.0\r\nHost: x\r\n\r\n") == 505


@pytest.mark.parametrize(
    "header",
    [
        "X: " + "x" * 17000,
        "\r\n".join(f"X-{number}: y" for number in range(3000)),
        "Y" * 17000 + ": x",
    ],
    ids=["one long value", "many fields", "one long name"],
)
@pytest.mark.parametrize("cut", [100000, 1000, 37])
def test_a_large_header_is_refused_in_any_division(header: str, cut: int) -> None:
    stream = f"GET / HTTP/1.1\r\nHost: x\r\n{header}\r\n\r\n".encode()
    assert refusal(*(stream[at : at + cut] for at in range(0, len(stream), cut))) == 431


def test_a_long_target_is_refused() -> None:
    assert refusal(request("/" + "x" * 17000)) == 431


def test_an_endless_header_is_refused_at_the_size_limit() -> None:
    parser = read([b"GET / HTTP/1.1\r\nX: "])
    sent = 0
    while not parser.complete:
        parser.feed(b"x" * 1000)
        sent += 1000
    assert sent < 32 * 1024
    assert isinstance(parser.queue[-1], Response)


def test_a_header_just_within_the_limits_is_read() -> None:
    assert refusal(request(x="x" * 16000)) is None
    assert refusal(request(**{f"x{number}": "" for number in range(127)})) is None
    assert refusal(request(**{f"x{number}": "" for number in range(128)})) == 431


def test_many_requests_in_one_read_do_not_count_as_one_large_header() -> None:
    one = request(x="x" * 4000)
    parser = read([one * 8 + one[:100], one[100:200], one[200:]])
    assert len(parser.queue) == 9
    assert not parser.complete


def test_a_small_body_is_discarded_and_the_next_request_is_read() -> None:
    parser = read([request(method="POST", content_length="5") + b"hello" + request("/next")])
    assert [item.path for item in parser.queue if isinstance(item, Request)] == ["/metrics", "/next"]


@pytest.mark.parametrize(
    "field", ["Content-Length: 4097", "Content-Length: 99999999999", "Transfer-Encoding: chunked"]
)
def test_a_large_or_chunked_body_is_refused_before_it_is_sent(field: str) -> None:
    assert refusal(f"POST / HTTP/1.1\r\nHost: x\r\n{field}\r\n\r\n".encode()) == 413


def test_too_many_pipelined_requests_close_the_connection_after_the_first_ones() -> None:
    parser = read([request() * 6000])
    assert len(parser.queue) == Limits().pipelined_requests
    assert parser.complete


def test_an_upgrade_is_answered_without_upgrading() -> None:
    parser = read([request(connection="Upgrade, HTTP2-Settings", upgrade="h2c") + b"\0\0garbage"])
    assert [type(item) for item in parser.queue] == [Request]
    assert parser.complete


@pytest.mark.parametrize(
    ("head", "stays"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", True),
        (b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", True),
    ],
)
def test_the_connection_is_kept_open_as_requested(head: bytes, stays: bool) -> None:
    assert read([head]).complete is not stays


@given(st.text(max_size=60))
def test_any_target_is_parsed_without_an_exception(target: str) -> None:
    assert "?" not in path_of(target)


def test_the_date_has_the_format_of_the_standard() -> None:
    assert b"\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n" in encode_head(
        text_response(200, "ok"), 784111777.9, True
    )


def test_a_response_head_ends_with_an_empty_line_and_has_the_connection_header() -> None:
    response = text_response(503, "busy", ("Retry-After", "1"))
    head = encode_head(response, 0.0, keep_alive=False)
    assert head.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert head.endswith(b"\r\nRetry-After: 1\r\n\r\n")
    assert b"\r\nConnection: close\r\n" in head
    assert b"\r\nConnection: keep-alive\r\n" in encode_head(response, 0.0, keep_alive=True)
    assert b"\r\nContent-Length: 5\r\n" in head
