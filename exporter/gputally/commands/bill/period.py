"""The period of a bill: months and dates in a time zone, and the pieces in which it is read."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

MINUTE = 60


class PeriodError(ValueError):
    """The text names the flag, its value and what is allowed."""


@dataclass(frozen=True, slots=True)
class Period:
    """Unix times on whole minutes; the end is not part of it."""

    start: int
    end: int
    zone: ZoneInfo

    @property
    def minutes(self) -> int:
        return (self.end - self.start) // MINUTE

    def pieces(self, hours: int) -> Iterator["Period"]:
        """The period in order, cut at midnights of its time zone and after so many hours at the latest.

        A day on which the clocks change is an hour shorter or longer. 25 hours are two pieces.
        """
        start = self.start
        while start < self.end:
            midnight = _seconds(self._local(start).date() + timedelta(days=1), self.zone)
            end = min(midnight, start + hours * 3600, self.end)
            yield Period(start, end, self.zone)
            start = end

    def local(self, seconds: int) -> str:
        """A time of the period, as its time zone writes it."""
        return self._local(seconds).isoformat(timespec="minutes")

    def _local(self, seconds: int) -> datetime:
        return datetime.fromtimestamp(seconds, self.zone)


def time_zone(text: str) -> ZoneInfo:
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            "the name of a time zone that this host knows, such as UTC or Europe/Berlin"
        ) from None


def choose_period(month: str, first: str, last: str, zone: ZoneInfo, now_seconds: float) -> Period:
    """Of a month, of two times, or the last whole month. Raises PeriodError."""
    if month and (first or last):
        raise PeriodError("--month cannot be used with --from and --to")
    if last and not first:
        raise PeriodError("--to needs --from")
    now = int(now_seconds) // MINUTE * MINUTE
    if first:
        start = _time("--from", first, zone)
        end = _time("--to", last, zone) if last else now
    else:
        beginning = _month(month) if month else _previous_month(datetime.fromtimestamp(now, zone).date())
        start, end = _seconds(beginning, zone), _seconds(_next_month(beginning), zone)
    if start >= now:
        raise PeriodError(f"{'--month' if month else '--from'}: {month or first!r} is not in the past")
    # A bill of the current month is one until now.
    end = min(end, now)
    if end <= start:
        raise PeriodError(f"--to: {last!r} is not allowed; it takes a time after --from {first}")
    return Period(start, end, zone)


def _month(text: str) -> date:
    found = re.fullmatch(r"(\d{4})-(\d\d)", text, re.ASCII)
    try:
        return date(int(found[1]), int(found[2]), 1) if found else _not_allowed(text)
    except ValueError:
        return _not_allowed(text)


def _not_allowed(text: str) -> date:
    raise PeriodError(f"--month: {text!r} is not allowed; it takes a year and a month, such as 2026-10")


def _next_month(month: date) -> date:
    return (month + timedelta(days=31)).replace(day=1)


def _previous_month(day: date) -> date:
    return (day.replace(day=1) - timedelta(days=1)).replace(day=1)


def _time(flag: str, text: str, zone: ZoneInfo) -> int:
    try:
        given = datetime.fromisoformat(text)
    except ValueError:
        given = None
    if given is None or given.second or given.microsecond:
        raise PeriodError(
            f"{flag}: {text!r} is not allowed; it takes a date or a time on a whole minute, such as "
            "2026-10-01 or 2026-10-01T08:30"
        )
    if given.tzinfo is not None:
        return int(given.timestamp())
    if given.time() == time():
        return _seconds(given.date(), zone)
    return int(given.replace(tzinfo=zone).timestamp())


def _seconds(day: date, zone: ZoneInfo) -> int:
    """When the day begins: in zones that change their clocks at midnight, at the first time that exists."""
    midnight = datetime.combine(day, time(), zone)
    # A time that does not exist becomes another one on the way to UTC and back.
    return int(midnight.astimezone(UTC).timestamp())
