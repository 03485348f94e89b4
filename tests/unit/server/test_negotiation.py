import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.server.negotiation import wants_gzip, wants_openmetrics

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
def test_openmetrics_is_served_to_those_who_ask_for_it_by_name(accept: str, openmetrics: bool) -> None:
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
def test_gzip_is_served_to_those_who_accept_it(accept_encoding: str, gzip: bool) -> None:
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
def test_no_header_breaks_the_negotiation_and_the_answer_is_the_same_twice(header: str) -> None:
    assert wants_openmetrics(header) is wants_openmetrics(header)
    assert wants_gzip(header) is wants_gzip(header)


@given(st.floats(0, 1), st.floats(0, 1))
def test_the_higher_weight_wins(openmetrics: float, text: float) -> None:
    accept = f"text/plain;q={text:.3f}, application/openmetrics-text;version=1.0.0;q={openmetrics:.3f}"
    wanted = round(openmetrics, 3) > 0 and round(openmetrics, 3) >= round(text, 3)
    assert wants_openmetrics(accept) is wanted


def test_long_headers_are_understood_without_being_remembered() -> None:
    padding = ", ".join(f"application/x-{number}" for number in range(200))
    assert wants_openmetrics(f"{padding}, application/openmetrics-text")
    assert wants_gzip(f"{padding}, gzip")
