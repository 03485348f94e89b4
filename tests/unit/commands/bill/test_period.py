"""Months and dates in time zones, also when the clocks change, and the pieces of a period."""

from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.commands.bill.period import Period, PeriodError, choose_period, time_zone

UTC_ZONE = ZoneInfo("UTC")
BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 19, 12, 0, 30, tzinfo=UTC).timestamp()
HOUR = 3600


def utc(*when: int) -> int:
    return int(datetime(*when, tzinfo=UTC).timestamp())  # type: ignore[arg-type, misc]


def test_without_a_period_it_is_the_last_whole_month() -> None:
    period = choose_period("", "", "", UTC_ZONE, NOW)
    assert (period.start, period.end) == (utc(2026, 10, 1), utc(2026, 11, 1))


def test_in_january_the_last_month_is_of_the_year_before() -> None:
    period = choose_period("", "", "", UTC_ZONE, utc(2027, 1, 1))
    assert (period.start, period.end) == (utc(2026, 12, 1), utc(2027, 1, 1))


def test_a_month_begins_at_midnight_of_its_time_zone() -> None:
    period = choose_period("2026-10", "", "", BERLIN, NOW)
    assert (period.start, period.end) == (utc(2026, 9, 30, 22), utc(2026, 10, 31, 23))
    assert (period.end - period.start) / HOUR == 31 * 24 + 1


def test_the_current_month_ends_now() -> None:
    assert choose_period("2026-11", "", "", UTC_ZONE, NOW).end == utc(2026, 11, 19, 12, 0)


@pytest.mark.parametrize(
    ("first", "last", "start", "end"),
    [
        ("2026-10-01", "2026-11-01", utc(2026, 9, 30, 22), utc(2026, 10, 31, 23)),
        ("2026-10-25T02:30", "2026-10-25T03:00", utc(2026, 10, 25, 0, 30), utc(2026, 10, 25, 2)),
        ("2026-10-01T08:30Z", "2026-10-01T09:30+01:00", utc(2026, 10, 1, 8, 30), None),
        ("2026-10-01", "", utc(2026, 9, 30, 22), utc(2026, 11, 19, 12, 0)),
    ],
    ids=["dates", "the hour that comes twice", "the same time", "until now"],
)
def test_dates_and_times_are_of_the_time_zone(first: str, last: str, start: int, end: int | None) -> None:
    if end is None:
        with pytest.raises(PeriodError, match=r"^--to: .* is not allowed; it takes a time after --from"):
            choose_period("", first, last, BERLIN, NOW)
        return
    period = choose_period("", first, last, BERLIN, NOW)
    assert (period.start, period.end) == (start, end)


@pytest.mark.parametrize(
    ("month", "first", "last", "said"),
    [
        ("2026-13", "", "", r"^--month: '2026-13' is not allowed; it takes a year and a month"),
        ("October", "", "", r"^--month: 'October' is not allowed"),
        ("2026-12", "", "", r"^--month: '2026-12' is not in the past$"),
        ("2026-10", "2026-10-01", "", r"^--month cannot be used with --from and --to$"),
        ("", "", "2026-10-01", r"^--to needs --from$"),
        ("", "yesterday", "", r"^--from: 'yesterday' is not allowed; it takes a date"),
        ("", "2026-10-01T08:30:15", "", r"^--from: .* whole minute"),
        ("", "2026-12-01", "", r"^--from: '2026-12-01' is not in the past$"),
        ("", "2026-10-02", "2026-10-01", r"^--to: '2026-10-01' is not allowed"),
    ],
)
def test_an_error_names_flag_value_and_what_is_allowed(month: str, first: str, last: str, said: str) -> None:
    with pytest.raises(PeriodError, match=said):
        choose_period(month, first, last, UTC_ZONE, NOW)


@pytest.mark.parametrize("name", ["Europe/Berlin", "UTC", "Asia/Kolkata"])
def test_a_time_zone_has_a_name(name: str) -> None:
    assert time_zone(name).key == name


@pytest.mark.parametrize("name", ["", "Mars/Base", "../etc/passwd", "/etc/passwd"])
def test_an_unknown_time_zone_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="the name of a time zone"):
        time_zone(name)


def test_pieces_are_days_of_the_time_zone_and_never_longer_than_24_hours() -> None:
    period = choose_period("2026-10", "", "", BERLIN, NOW)
    pieces = list(period.pieces(24))
    lengths = [(piece.end - piece.start) // HOUR for piece in pieces]
    assert lengths == [24] * 25 + [1] + [24] * 6  # on the 25th the clocks are set back
    spring = choose_period("2026-03", "", "", BERLIN, NOW)
    assert 23 in [(piece.end - piece.start) // HOUR for piece in spring.pieces(24)]


def test_a_day_that_begins_at_one_o_clock_begins_there() -> None:
    zone = ZoneInfo("America/Sao_Paulo")  # 2018-11-04T00:00 did not exist
    period = choose_period("", "2018-11-03", "2018-11-05", zone, NOW)
    assert [piece.local(piece.start) for piece in period.pieces(24)] == [
        "2018-11-03T00:00-03:00",
        "2018-11-04T01:00-02:00",
    ]


@given(
    start=st.integers(utc(2000, 1, 1) // 60, utc(2035, 1, 1) // 60).map(lambda minutes: minutes * 60),
    minutes=st.integers(1, 60 * 24 * 100),
    hours=st.integers(1, 24),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"]),
)
def test_the_pieces_cover_the_period_once(start: int, minutes: int, hours: int, zone: str) -> None:
    period = Period(start, start + minutes * 60, ZoneInfo(zone))
    pieces = list(period.pieces(hours))
    assert pieces[0].start == period.start
    assert pieces[-1].end == period.end
    assert all(one.end == other.start for one, other in pairwise(pieces))
    assert all(0 < piece.end - piece.start <= hours * HOUR for piece in pieces)
