"""Which path answers what, over a real socket."""

import time
import zlib

import pytest

from gputally.server import PathError
from gputally.server.site import Site
from tests.support.http_client import OPENMETRICS, TEXT, Client, StaticPages, request, serving


def test_metrics_come_as_text_by_default() -> None:
    with serving() as server, Client(server.port) as client:
        answer = client.get("/metrics")
    assert (answer.status, answer.body) == (200, b"text\n")
    assert answer.headers["Content-Type"] == TEXT
    assert answer.headers["Vary"] == "Accept, Accept-Encoding"
    assert answer.headers["Cache-Control"] == "no-store"
    assert "Content-Encoding" not in answer.headers
    time.strptime(answer.headers["Date"], "%a, %d %b %Y %H:%M:%S GMT")


def test_metrics_come_as_compressed_openmetrics_when_asked() -> None:
    with serving() as server, Client(server.port) as client:
        answer = client.get(accept="application/openmetrics-text; version=1.0.0", accept_encoding="gzip")
    assert answer.headers["Content-Type"] == OPENMETRICS
    assert answer.headers["Content-Encoding"] == "gzip"
    assert zlib.decompress(answer.body, wbits=31) == b"openmetrics\n"


def test_a_header_that_is_sent_twice_counts_as_one_list() -> None:
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


def test_health_never_depends_on_anything() -> None:
    with serving(StaticPages(is_ready=(False, "no driver"))) as server, Client(server.port) as client:
        answer = client.get("/healthz")
    assert (answer.status, answer.body) == (200, b"ok\n")


def test_readiness_says_why_not() -> None:
    pages = StaticPages(is_ready=(False, "no snapshot yet"))
    with serving(pages) as server, Client(server.port) as client:
        answer = client.get("/readyz")
        assert (answer.status, answer.body) == (503, b"no snapshot yet\n")
        pages.is_ready = (True, "snapshot is 2 s old")
        answer = client.get("/readyz")
        assert (answer.status, answer.body) == (200, b"snapshot is 2 s old\n")


def test_the_landing_page_may_run_no_script() -> None:
    with serving() as server, Client(server.port) as client:
        answer = client.get("/")
    assert answer.body == b"<h1>landing</h1>"
    assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("path", ["/nothing", "/metrics/", "/metricsx", "//metrics", "/%6Detrics"])
def test_other_paths_say_which_there_are(path: str) -> None:
    with serving() as server, Client(server.port) as client:
        answer = client.get(path)
    assert answer.status == 404
    assert b"/metrics, /healthz, /readyz" in answer.body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_only_get_and_head_are_answered(method: str) -> None:
    with serving() as server, Client(server.port) as client:
        answer = client.get(method=method)
    assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")


def test_a_query_and_an_absolute_target_find_the_path() -> None:
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
def test_a_metrics_path_that_cannot_work_is_refused(path: str) -> None:
    with pytest.raises(PathError, match="the metrics path"):
        Site(StaticPages(), (path,), None)
