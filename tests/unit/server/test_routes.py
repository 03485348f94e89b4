"""Which path responds with what, over a real socket; and what a client accepts."""

import time
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.server import Endpoint, Limits, PathError, Response, text_response
from gputally.server.http1 import Request, RequestParser
from gputally.server.routes import Routes, wants_gzip, wants_openmetrics
from tests.support.http_client import OPENMETRICS, TEXT, Client, StaticPages, request, serving

PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
PROMETHEUS_PROTOBUF = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7,"
    + PROMETHEUS_3
)
PROMETHEUS_TEXT_FIRST = (
    "text/plain;version=0.0.4;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1"
)
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"


def test_metrics_are_text_by_default() -> None:
    with serving() as server, Client(server.port) as client:
        answer = client.get("/metrics")
    assert (answer.status, answer.body) == (200, b"text\n")
    assert answer.headers["Content-Type"] == TEXT
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "no-store"
    assert "Content-Encoding" not in answer.headers
    time.strptime(answer.headers["Date"], "%a, %d %b %Y %H:%M:%S GMT")


def test_metrics_are_compressed_openmetrics_on_request() -> None:
    with serving() as server, Client(server.port) as client:
        answer = client.get(accept="application/openmetrics-text; version=1.0.0", accept_encoding="gzip")
    assert answer.headers["Content-Type"] == OPENMETRICS
    assert answer.headers["Content-Encoding"] == "gzip"
    assert zlib.decompress(answer.body, wbits=31) == b"openmetrics\n"


def test_a_repeated_header_is_one_list() -> None:
    pages = StaticPages()
    twice = request(accept_encoding="br").replace(b"\r\n\r\n", b"\r\nAccept-Encoding: gzip\r\n\r\n")
    with serving(pages) as server, Client(server.port) as client:
        client.say(twice).hear()
    assert pages.asked == [("/metrics", False, True)]


def test_head_has_the_length_and_no_body() -> None:
    with serving() as server, Client(server.port) as client:
        head = client.get(method="HEAD")
        assert (head.status, head.headers["Content-Length"]) == (200, "5")
        assert client.get().body == b"text\n"  # the connection is still in step


def test_health_depends_on_nothing() -> None:
    with serving(StaticPages(is_ready=(False, "no driver"))) as server, Client(server.port) as client:
        answer = client.get("/healthz")
    assert (answer.status, answer.body) == (200, b"ok\n")


def test_readiness_has_the_reason() -> None:
    pages = StaticPages(is_ready=(False, "no snapshot yet"))
    with serving(pages) as server, Client(server.port) as client:
        answer = client.get("/readyz")
        assert (answer.status, answer.body) == (503, b"no snapshot yet\n")
        pages.is_ready = (True, "snapshot is 2 s old")
        answer = client.get("/readyz")
        assert (answer.status, answer.body) == (200, b"snapshot is 2 s old\n")


@pytest.mark.parametrize("path", ["/nothing", "/metrics/", "/metricsx", "//metrics", "/%6Detrics"])
def test_a_404_lists_the_existing_paths(path: str) -> None:
    with serving() as server, Client(server.port) as client:
        answer = client.get(path)
    assert answer.status == 404
    assert b"/metrics, /healthz, /readyz" in answer.body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_only_get_and_head_are_answered(method: str) -> None:
    with serving() as server, Client(server.port) as client:
        answer = client.get(method=method)
    assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")


def test_an_endpoint_is_narrowed_by_the_query_of_a_request() -> None:
    class Echo(Endpoint):
        def __init__(self, text: str = "whole") -> None:
            self._text = text

        def respond(self, openmetrics: bool, gzip: bool) -> Response:  # noqa: ARG002
            return text_response(200, self._text)

        def narrowed(self, query: str) -> Endpoint:
            return Echo(query)

    routes = Routes({"/metrics": Echo()}, ready=Echo(), security=None)
    assert routes.respond(Request("GET", "/metrics")).body == b"whole\n"
    assert routes.respond(Request("GET", "/metrics", "collect[]=gpu")).body == b"collect[]=gpu\n"


def test_the_query_reaches_the_request() -> None:
    parser = RequestParser(Limits())
    parser.feed(b"GET /metrics?collect[]=gpu&collect[]=pods HTTP/1.0\r\n\r\n")
    (found,) = parser.queue
    assert isinstance(found, Request)
    assert (found.path, found.query) == ("/metrics", "collect[]=gpu&collect[]=pods")


def test_a_query_string_and_an_absolute_target_are_accepted() -> None:
    with serving() as server, Client(server.port) as client:
        assert client.get("/metrics?collect[]=gpu").status == 200
        assert client.get("http://proxy.example/metrics?x=/y").status == 200
        assert client.get("http://proxy.example").body == b"<h1>landing</h1>"


def test_metrics_can_be_on_several_paths_and_at_the_root() -> None:
    pages = StaticPages()
    with serving(pages, metrics_paths=("/", "/gpu/metrics")) as server, Client(server.port) as client:
        assert client.get("/").body == b"text\n"
        assert client.get("/gpu/metrics").body == b"text\n"
        assert client.get("/metrics").status == 404
    assert [path for path, _, _ in pages.asked] == ["/", "/gpu/metrics"]


@pytest.mark.parametrize("path", ["metrics", "", "/healthz", "/readyz", "/m?x"])
def test_an_impossible_path_is_refused(path: str) -> None:
    with pytest.raises(PathError, match="path"):
        StaticPages().server(path, "/metrics")


@pytest.mark.parametrize(
    ("accept", "openmetrics"),
    [
        (PROMETHEUS_3, True),
        (PROMETHEUS_PROTOBUF, True),
        (PROMETHEUS_TEXT_FIRST, False),
        (BROWSER, False),
        ("", False),
        ("*/*", False),
        ("application/openmetrics-text", True),
        ("Application/OpenMetrics-Text; Version=1.0.0; Charset=UTF-8", True),
        ('application/openmetrics-text; version="0.0.1"', True),
        ("application/openmetrics-text; version=2.0.0", False),
        ("application/openmetrics-text; charset=iso-8859-1", False),
        ("application/openmetrics-text; q=0", False),
        ("application/openmetrics-text; q=0.5, text/plain; q=0.5", True),
        ("application/openmetrics-text; q=0.5, text/*", False),
        ("application/openmetrics-text; q=0.5, */*", False),
        # The more specific range decides: plain text is wanted less than OpenMetrics here.
        ("application/openmetrics-text; q=0.5, text/plain; q=0.1, */*", True),
        ("application/openmetrics-text; q=nan", False),
        ("application/openmetrics-text; q=2", False),
        ("application/openmetrics-text; q=", False),
        ("application/*", False),
    ],
)
def test_openmetrics_is_served_to_clients_that_name_it(accept: str, openmetrics: bool) -> None:
    assert wants_openmetrics(accept) is openmetrics


@pytest.mark.parametrize(
    ("accept_encoding", "gzip"),
    [
        ("gzip", True),
        ("GZIP", True),
        ("x-gzip", True),
        ("deflate, gzip;q=0.5, br", True),
        ("*", True),
        ("gzip;q=0.000", False),
        ("gzip;q=0, *", False),
        ("*;q=0", False),
        ("identity", False),
        ("identity;q=1, gzip;q=0.5", False),
        ("identity;q=0.5, gzip", True),
        ("br", False),
        ("", False),
        ("gzipped", False),
    ],
)
def test_gzip_is_served_to_clients_that_accept_it(accept_encoding: str, gzip: bool) -> None:
    assert wants_gzip(accept_encoding) is gzip


PIECES = st.sampled_from(
    [
        "application/openmetrics-text",
        "text/plain",
        "*/*",
        "gzip",
        ";",
        ",",
        "q=",
        "=",
        '"',
        " ",
        "0.5",
        "1e999",
    ]
)


@given(st.one_of(st.text(max_size=3000), st.lists(PIECES, max_size=40).map("".join)))
def test_any_header_is_negotiated_without_an_exception_and_deterministically(header: str) -> None:
    assert wants_openmetrics(header) is wants_openmetrics(header)
    assert wants_gzip(header) is wants_gzip(header)


@given(st.floats(0, 1), st.floats(0, 1))
def test_the_higher_weight_wins(openmetrics: float, text: float) -> None:
    accept = f"text/plain;q={text:.3f}, application/openmetrics-text;version=1.0.0;q={openmetrics:.3f}"
    wanted = round(openmetrics, 3) > 0 and round(openmetrics, 3) >= round(text, 3)
    assert wants_openmetrics(accept) is wanted


def test_a_header_longer_than_any_scraper_sends_is_ignored() -> None:
    assert wants_gzip("gzip" + "," * 1020)
    assert not wants_gzip("gzip" + "," * 1021)
    assert wants_openmetrics("application/openmetrics-text" + "," * 900)
    assert not wants_openmetrics("application/openmetrics-text" + "," * 1021)
