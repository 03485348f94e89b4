"""Another exporter's text, from a URL or from files."""

import logging
import os
import time
from pathlib import Path

import pytest

from gputally.model import Unavailable
from gputally.relay import Relay, Relayed
from gputally.relay.fetch import TargetError
from gputally.relay.relabel import render
from tests.unit.relay.dcgm_texts import NEW, NEWEST, OLD, OPENMETRICS
from tests.unit.relay.raw_server import answers, raw_server
from tests.unit.relay.texts import rendered

OPEN = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def relay(target: str | Path, max_bytes: int = 2**20) -> Relay:
    return Relay(str(target), timeout_seconds=60, max_age_seconds=60, max_bytes=max_bytes)


def served(body: str | bytes, *headers: str, max_bytes: int = 2**20) -> Relayed:
    with raw_server(answers(body, *headers)) as server:
        return relay(server.url, max_bytes).read()


def text_of(relayed: Relayed) -> str:
    return b"".join(text for _, text in render(relayed.families, lambda _: None)).decode()


@pytest.mark.parametrize("text", [OLD, NEW, NEWEST])
def test_every_sample_of_valid_text_is_relayed(text: str) -> None:
    relayed = served(text, "Content-Type: text/plain; version=0.0.4; charset=utf-8; escaping=values")
    assert text_of(relayed) == rendered(text)
    assert relayed.samples == sum(not line.startswith("#") for line in text.splitlines())
    assert (relayed.errors, relayed.partial) == ({}, None)


def test_openmetrics_is_recognised_by_its_content_type() -> None:
    relayed = served(OPENMETRICS, f"Content-Type: {OPEN}")
    assert text_of(relayed) == rendered(OPENMETRICS, openmetrics=True)
    assert (relayed.samples, relayed.errors) == (2, {})


@pytest.mark.parametrize("header", [(), ("Content-Type: application/octet-stream",)])
def test_without_a_content_type_it_is_the_text_format(header: tuple[str, ...]) -> None:
    assert text_of(served("up 1", *header)) == "# TYPE up untyped\nup 1\n"


def test_a_file_and_a_pattern(tmp_path: Path) -> None:
    (tmp_path / "b.prom").write_text(NEWEST.rstrip())
    (tmp_path / "a.prom").write_text(OLD.rstrip())
    (tmp_path / "a.prom.swp").write_text("half a li")
    assert text_of(relay(tmp_path / "a.prom").read()) == rendered(OLD)
    assert text_of(relay(tmp_path / "*.prom").read()) == rendered(OLD + NEWEST)


def test_files_of_both_formats(tmp_path: Path) -> None:
    (tmp_path / "a.prom").write_text(OPENMETRICS)
    (tmp_path / "b.prom").write_text(OLD)
    relayed = relay(tmp_path / "*.prom").read()
    assert text_of(relayed) == rendered(OPENMETRICS, openmetrics=True) + rendered(OLD)
    assert relayed.errors == {}


def test_malformed_lines_are_omitted_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    text = 'up 1\nmodel{name="the "best""} 1\ntemp N/A\ndown 0\n'
    caplog.set_level(logging.WARNING)
    with raw_server(answers(text)) as server:
        source = relay(server.url)
        first, second = source.read(), source.read()
    assert [family.name for family in first.families] == [b"up", b"down"]
    assert first.errors == {("line", "invalid"): 2}
    assert second.errors == {("line", "invalid"): 4}
    (message,) = caplog.messages
    assert f"line 2 of {server.url}" in message


def test_a_label_value_with_a_line_break_affects_only_its_sample() -> None:
    relayed = served('up 1\nmodel{name="two\nlines",gpu="0"} 1\ndown 0\n')
    assert [family.name for family in relayed.families] == [b"up", b"down"]
    assert dict(relayed.errors) == {("line", "invalid"): 2}


def test_other_text_than_metrics_is_not_relayed() -> None:
    with pytest.raises(Unavailable, match=r"line 1 of .* Prometheus"):
        served("<html><body>Log in</body></html>\n", "Content-Type: text/html")


def test_an_empty_response_is_not_a_failure() -> None:
    assert served("") == Relayed([], 0)


def test_fifty_megabytes_are_cut_and_reported() -> None:
    line = b'x{gpu="0"} 1%s\n' % (b" " * 10_000)
    relayed = served(line * (50_000_000 // len(line)), max_bytes=2**20)
    assert text_of(relayed) == '# TYPE x untyped\nx{gpu="0"} 1\n'
    assert relayed.errors == {("text", "too_large"): 1, ("series", "duplicate"): 2**20 // len(line) - 1}
    assert relayed.partial is not None
    assert "1 MiB" in relayed.partial[0]


def test_many_files_share_the_limit(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x 1%s\n" % (b" " * 8_188) * 2**7)
    (tmp_path / "b").write_bytes(b"y 1\n")
    relayed = relay(tmp_path / "[ab]").read()
    assert [family.name for family in relayed.families] == [b"x"]
    assert relayed.partial is not None
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
