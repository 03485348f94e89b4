"""Another exporter's text, from a URL or from files."""

import logging
import os
import time
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from gputally.model import Unavailable
from gputally.relay import TEXT, Relay, Relayed
from gputally.relay.fetch import TargetError
from gputally.relay.relabel import DeviceLabels
from tests.unit.relay.dcgm_texts import NEW, NEWEST, OLD, OPENMETRICS, TRAIN
from tests.unit.relay.raw_server import answers, raw_server

OPEN = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def relay(target: str | Path, max_bytes: int = 2**20) -> Relay:
    return Relay(str(target), timeout_seconds=60, max_age_seconds=60, max_bytes=max_bytes)


def served(body: str | bytes, *headers: str, max_bytes: int = 2**20) -> Relayed:
    with raw_server(answers(body, *headers)) as server:
        return relay(server.url, max_bytes).read()


@pytest.mark.parametrize("text", [OLD, NEW, NEWEST])
def test_valid_text_is_unchanged(text: str) -> None:
    kind = "text/plain; version=0.0.4; charset=utf-8; escaping=values"
    relayed = served(text, f"Content-Type: {kind}")
    samples = sum(not line.startswith("#") for line in text.splitlines())
    assert (relayed.text, relayed.content_type, relayed.samples) == (text.encode(), kind, samples)
    assert (relayed.errors, relayed.partial) == ({}, None)
    assert not relayed.openmetrics


def test_openmetrics_is_unchanged() -> None:
    relayed = served(OPENMETRICS, f"Content-Type: {OPEN}")
    assert (relayed.text, relayed.content_type, relayed.samples) == (OPENMETRICS.encode(), OPEN, 3)
    assert relayed.openmetrics


@pytest.mark.parametrize("header", [(), ("Content-Type: application/octet-stream",)])
def test_without_a_content_type_it_is_the_text_format(header: tuple[str, ...]) -> None:
    assert served("up 1", *header) == Relayed(b"up 1\n", TEXT, 1)


def test_a_file_and_a_pattern(tmp_path: Path) -> None:
    (tmp_path / "b.prom").write_text(NEWEST.rstrip())
    (tmp_path / "a.prom").write_text(OLD.rstrip())
    (tmp_path / "a.prom.swp").write_text("half a li")
    assert relay(tmp_path / "a.prom").read() == Relayed(OLD.encode(), TEXT, 6)
    assert relay(tmp_path / "*.prom").read().text == (OLD + NEWEST).encode()


def test_a_file_of_openmetrics_is_recognised_by_its_end_marker(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(OPENMETRICS)
    assert relay(tmp_path / "a").read() == Relayed(OPENMETRICS.encode(), OPEN, 3)


def test_it_recognises_values_that_the_upstream_divides_among_pods() -> None:
    assert served(NEW).attributed == {(b"DCGM_FI_DEV_POWER_USAGE", DeviceLabels(TRAIN, "0"))}


def test_malformed_lines_are_omitted_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    text = 'up 1\nmodel{name="the "best""} 1\ntemp N/A\ndown 0\n'
    caplog.set_level(logging.WARNING)
    with raw_server(answers(text)) as server:
        source = relay(server.url)
        first, second = source.read(), source.read()
    assert first == Relayed(b"up 1\ndown 0\n", TEXT, 2, errors={("line", "invalid"): 2})
    assert second.errors == {("line", "invalid"): 4}
    (message,) = caplog.messages
    assert f"line 2 of {server.url}" in message


def test_a_label_value_with_a_line_break_affects_only_its_sample() -> None:
    relayed = served('up 1\nmodel{name="two\nlines",gpu="0"} 1\ndown 0\n')
    assert (relayed.text, dict(relayed.errors)) == (b"up 1\ndown 0\n", {("line", "invalid"): 2})


def test_other_text_than_metrics_is_not_relayed() -> None:
    with pytest.raises(Unavailable, match=r"line 1 of .* Prometheus"):
        served("<html><body>Log in</body></html>\n", "Content-Type: text/html")


def test_an_empty_response_is_not_a_failure() -> None:
    assert served("") == Relayed(b"", TEXT, 0)


def test_fifty_megabytes_are_truncated_after_the_last_complete_line() -> None:
    line = b'x{gpu="0"} 123456789012345678901234567890\n'
    relayed = served(line * (50_000_000 // len(line)))
    assert relayed.text == line * (2**20 // len(line))
    assert relayed.errors == {("text", "too_large"): 1}
    assert relayed.partial is not None
    assert "1 MiB" in relayed.partial[0]


def test_truncated_openmetrics_has_an_end_marker() -> None:
    text = OPENMETRICS.replace("# EOF\n", "# TYPE x gauge\n" + "x 1\n")
    relayed = served(text + "# EOF\n", f"Content-Type: {OPEN}", max_bytes=len(text) + 3)
    assert relayed.partial is not None
    assert [family.name for family in text_string_to_metric_families(relayed.text.decode())][-1] == "x"


def test_a_large_file_is_truncated(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x 1\n" * 2**18)
    (tmp_path / "b").write_bytes(b"y 1\n")
    (tmp_path / "c").write_bytes(b"z 1\n")
    relayed = relay(tmp_path / "[abc]").read()
    assert (len(relayed.text), relayed.partial is not None) == (2**20, True)
    assert relay(tmp_path / "a").read().partial is None


def test_a_stale_file_is_not_relayed(tmp_path: Path) -> None:
    file = tmp_path / "dcgm.prom"
    file.write_text(OLD)
    os.utime(file, (time.time() - 90, time.time() - 90))
    with pytest.raises(Unavailable, match="was written 90 s ago"):
        relay(file).read()


def test_unreadable_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name, reason in (
        ("missing", "No such file"),
        ("*.prom", "No such file"),
        ("pipe", "not a regular file"),
        ("folder", "cannot be read|not a regular file"),
    ):
        with pytest.raises(Unavailable, match=reason):
            relay(tmp_path / name).read()


@pytest.mark.parametrize("target", ["", "ftp://host/x", "http://"])
def test_invalid_targets(target: str) -> None:
    with pytest.raises(TargetError):
        relay(target)
