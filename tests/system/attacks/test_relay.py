"""A hostile exporter behind --relay: it must not take the memory of this one, nor make its scrape invalid."""

import gzip
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.exporter import Exporter
from tests.support.prometheus import prometheus_scraping
from tests.support.text_format import check_text

SIMULATE = ("simulate", "--gpus", "2", "--interval", "200ms", "--timeout", "9s", "--max-age", "60s")
PLAIN = ("text/plain; version=0.0.4", "identity")
GZIP = ("text/plain; version=0.0.4", "gzip")
OPENMETRICS = ("application/openmetrics-text; version=1.0.0", "identity")
MIB = 2**20
MOST_MIB = 64
"""Above that of an exporter that relays nothing: together well below the limit of the chart."""
GOOD = b"# TYPE good gauge\ngood 1\n"

_PAIRS = b",".join(b'l%d="1"' % number for number in range(1_300))
_EMOJI = "\U0001f600".encode() + b"x" * 3_000
BOMBS = {
    "306 kB of gzip": (gzip.compress(b"a" * 300 * MIB), GZIP),
    "lines in gzip": (gzip.compress(b"\n" * 300 * MIB), GZIP),
    "samples in gzip": (gzip.compress(b'a{gpu="0"} 1\n' * (20 * MIB)), GZIP),
    "empty gzip blocks": (gzip.compress(b"")[:10] + b"\0\0\0\xff\xff" * (10 * MIB), GZIP),
    "50 MB in one line": (b"a 1 " + b"1" * 50_000_000, PLAIN),
    "50 MB of series": (b"".join(b'a{gpu="0",b="%d"} 1\n' % number for number in range(2_000_000)), PLAIN),
    "families": (b"".join(b"a%d 1\n" % number for number in range(500_000)), PLAIN),
    "metadata": (b"".join(b"# HELP a%d %d\n" % (number, number) for number in range(500_000)), PLAIN),
    "spellings of one series": (
        b"".join(b'a{b="1",%s} %d\n' % (b" " * (number % 8_000), number) for number in range(50_000)),
        PLAIN,
    ),
    "labels": (b"".join(b"a%d{%s} 1\n" % (number, _PAIRS) for number in range(2_000)), PLAIN),
    "devices": (
        b"".join(
            b'a{gpu="%d",UUID="%d",GPU_I_ID="%d",x="%d"} 1e300\n' % (n, n, n, n) for n in range(100_000)
        ),
        PLAIN,
    ),
    "wide characters": (
        b"".join(b'# HELP h%d %b\na{b="%d%b"} 1\n' % (n, _EMOJI, n, _EMOJI) for n in range(2_000)),
        OPENMETRICS,
    ),
}

LINES = (
    b'a{b="c",b="d"} 1',
    b'a{__name__="b"} 1',
    b"a 1e999999",
    b"a -1e309",
    b"a 1 12345678901234567890123",
    b"a 1 9223372036854775808",
    b"a 1 -5",
    b"a 1 1.5",
    b"a 1\r",
    b"a +nan",
    b"a nan(1)",
    b'a{b="\0"} 1',
    b'a{b="\xff"} 1',
    b"# HELP a \0",
    b"# HELP a \xff",
    b"# TYPE a gouge",
    b"# TYPE a counter",
    b"# EOF",
    b"  gputally_gpu_up 7",
    b"\tgputally_gpu_up{} 7",
    b"gputally_gpu_up 7",
    b"# TYPE gputally_gpu_up histogram",
    b"# TYPE process_cpu_seconds_total gauge",
    b"  process_cpu_seconds_total 7",
    b'a{b="x"} 1',
    b'a{b="x",c=""} 2',
    b'b{gpu="0"} 1',
    b'a{b="y"} 1',
    b'b{gpu="0",pod="mine",namespace="x",container="y"} 1',
    b'b{gpu="0",exported_pod="mine"} 1',
    b"# HELP a A.",
    b"# HELP a B.",
    b"# TYPE h histogram",
    b'h_bucket{le="x"} 1',
    b"h 1",
    b"# TYPE h_count gauge",
    b"h_count 1",
    b'e_total 1 # {trace="x"} 1',
    b'{"quoted.name"} 1',
    b"<html>",
)


class Hostile:
    """A server whose answer the test sets: body, and content type and encoding."""

    def __init__(self) -> None:
        self.answer = (GOOD, PLAIN)
        self.url = ""


@contextmanager
def hostile_exporter() -> Iterator[Hostile]:
    upstream = Hostile()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body, (content_type, encoding) = upstream.answer
            self.send_response(200)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Encoding", encoding)
            self.end_headers()
            try:
                self.wfile.write(body)
            except OSError:
                self.close_connection = True  # the client has had enough

        def log_message(self, format: str, *args: object) -> None:
            """Nothing to say."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        upstream.url = f"http://127.0.0.1:{server.server_port}/metrics"
        try:
            yield upstream
        finally:
            server.shutdown()
            thread.join()


def memory(exporter: Exporter, field: str) -> int:
    status = Path(f"/proc/{exporter.process.pid}/status").read_text()
    (value,) = (line.split()[1] for line in status.splitlines() if line.startswith(field))
    return int(value) * 1024


def value(exporter: Exporter, series: str) -> float | None:
    """A parser takes seconds for the largest scrapes here."""
    match = re.search(rf"^{re.escape(series)} (\S+)$", exporter.scrape(), re.MULTILINE)
    return float(match[1]) if match else None


def wait_for(exporter: Exporter, series: str, expected: float) -> None:
    exporter.wait_until(lambda: value(exporter, series) == expected, f"{series} is {expected}")


def wait_for_more_snapshots(exporter: Exporter) -> None:
    for _ in range(3):
        before = value(exporter, "gputally_snapshot_timestamp_seconds")
        exporter.wait_until(
            lambda: value(exporter, "gputally_snapshot_timestamp_seconds") != before,  # noqa: B023
            "there is a new snapshot",
        )


UP = 'gputally_source_up{source="relay"}'


def test_no_answer_of_an_upstream_takes_much_memory_and_the_devices_stay_served(tmp_path: Path) -> None:
    with (
        hostile_exporter() as upstream,
        Exporter(tmp_path / "log", *SIMULATE, "--relay", upstream.url, "--relay-metrics") as exporter,
    ):
        wait_for(exporter, "good", 1)
        idle = memory(exporter, "VmRSS")
        peaks = {}
        for name, answer in BOMBS.items():
            upstream.answer = answer
            wait_for(exporter, UP, 0)
            wait_for_more_snapshots(exporter)
            exporter.get("/gpu/metrics")
            assert "gputally_gpu_up{" in exporter.scrape(), name
            peaks[name] = (memory(exporter, "VmHWM") - idle) / MIB
            upstream.answer = (GOOD, PLAIN)
            wait_for(exporter, UP, 1)
        print(f"MiB above {idle / MIB:.1f}: {peaks}")
        assert max(peaks.values()) < MOST_MIB, peaks


@pytest.mark.parametrize("kind", [PLAIN, OPENMETRICS])
@pytest.mark.parametrize("lines", [LINES, LINES[::-1]])
def test_prometheus_stores_what_is_good_whatever_line_stands_beside_it(
    tmp_path: Path, kind: tuple[str, str], lines: tuple[bytes, ...]
) -> None:
    with hostile_exporter() as upstream:
        upstream.answer = (b"\n".join((*lines, b"good 1", b"")), kind)
        flags = ("--relay", upstream.url, "--relay-metrics")
        with (
            Exporter(tmp_path / "log", *SIMULATE, *flags) as exporter,
            prometheus_scraping(exporter, tmp_path, "PrometheusText0.0.4") as prometheus,
        ):
            wait_for(exporter, "good", 1)
            check_text(exporter.get("/metrics")[1])
            check_text(exporter.get("/gpu/metrics")[1])
            prometheus.wait_for("good == 1")
            prometheus.wait_for('up{job="gputally"} == 1')
            assert {float(one["value"][1]) for one in prometheus.wait_for("gputally_gpu_up")} == {1}
