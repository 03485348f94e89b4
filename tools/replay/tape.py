"""Encodes what Prometheus would store from one target as pieces of a remote-write request.

Series that a scrape no longer has are marked as stale, as by a real scrape. `promtool tsdb
create-blocks-from`, which reads OpenMetrics text, has no such mark.
The format: https://prometheus.io/docs/specs/prw/remote_write_spec/ (protobuf message, version 1.0).
"""

import struct
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from gputally.metrics.families import Family

LabelPairs = tuple[tuple[str, str], ...]
EncodedSeries = tuple[LabelPairs, bytes]
"""The exporter's labels with `__name__`, and the encoded samples, oldest first."""

_Family = tuple[str, tuple[str, ...]]  # the name of the metric, those of its labels
_Values = dict[tuple[str, ...], float]  # values of the labels -> value
_SAMPLE = struct.Struct("<3sd7s").pack
_STALE_SAMPLE = struct.Struct("<3sQ7s").pack
_STALE = 0x7FF0_0000_0000_0002
_NOTHING: _Values = {}


class Tape:
    """The scrapes of one target since the last `take`."""

    def __init__(self, scrape_seconds: float) -> None:
        """`scrape_seconds` is written as the duration of each scrape."""
        self._scrape_seconds = scrape_seconds
        self._samples: dict[_Family, defaultdict[tuple[str, ...], bytearray]] = {}
        self._last: dict[_Family, _Values] = {}

    def scrape(self, families: Iterable[Family], at_ms: int) -> None:
        """Adds a successful scrape."""
        self._store(
            {(family.metric.name, family.metric.labels): dict(family.samples) for family in families}, at_ms
        )

    def miss(self, at_ms: int) -> None:
        """Adds a failed scrape."""
        self._store({}, at_ms)

    def take(self) -> list[EncodedSeries]:
        """Removes and returns everything stored so far."""
        taken = [
            ((("__name__", name), *zip(names, values, strict=True)), bytes(samples))
            for (name, names), series in self._samples.items()
            for values, samples in series.items()
        ]
        self._samples = {}
        return taken

    def _store(self, scraped: dict[_Family, _Values], at_ms: int) -> None:
        """The samples, the stale marks and the series that Prometheus adds to each scrape."""
        head, tail = _sample_frame(at_ms)
        added = 0
        for key, now in scraped.items():
            series = self._series(key)
            for values, value in now.items():
                series[values] += _SAMPLE(head, value, tail)
            added += len(now.keys() - self._last.get(key, _NOTHING).keys())
        for key, before in self._last.items():
            for values in before.keys() - scraped.get(key, _NOTHING).keys():
                self._series(key)[values] += _STALE_SAMPLE(head, _STALE, tail)
        count = sum(map(len, scraped.values()))
        for name, value in (
            ("up", bool(scraped)),
            ("scrape_duration_seconds", self._scrape_seconds),
            ("scrape_samples_scraped", count),
            ("scrape_samples_post_metric_relabeling", count),
            ("scrape_series_added", added),
        ):
            self._series((name, ()))[()] += _SAMPLE(head, value, tail)
        self._last = scraped

    def _series(self, key: _Family) -> defaultdict[tuple[str, ...], bytearray]:
        series = self._samples.get(key)
        if series is None:
            series = self._samples[key] = defaultdict(bytearray)
        return series


def with_target(scraped: LabelPairs, target: Mapping[str, str]) -> dict[str, str]:
    """The labels that Prometheus stores with `honor_labels: true`; empty labels are removed."""
    return {name: value for name, value in {**target, **dict(scraped)}.items() if value}


def encode_series(labels: Mapping[str, str], samples: bytes) -> bytes:
    """One series of a write request, which is a concatenation of them."""
    encoded = b"".join([_label(name, value) for name, value in sorted(labels.items())])
    return _field(1, encoded + samples)


def encode_sample(value: float | None, at_ms: int) -> bytes:
    """One sample of a series; None marks it as stale."""
    head, tail = _sample_frame(at_ms)
    return _STALE_SAMPLE(head, _STALE, tail) if value is None else _SAMPLE(head, value, tail)


def snappy(message: Sequence[bytes]) -> list[bytes]:
    """The message in Snappy's block format, uncompressed: on one machine compression only costs time."""
    length = sum(map(len, message))
    literal_of_four_byte_length = b"\xfc"
    return [_varint(length), literal_of_four_byte_length + struct.pack("<I", length - 1), *message]


def _sample_frame(at_ms: int) -> tuple[bytes, bytes]:
    """The bytes before and after the eight bytes of a value."""
    tail = b"\x10" + _varint(at_ms)
    if len(tail) != 7:
        raise ValueError(f"{at_ms} ms since 1970 is not of this century")
    return b"\x12\x10\x09", tail


@lru_cache(maxsize=100_000)
def _label(name: str, value: str) -> bytes:
    return _field(1, _field(1, name.encode()) + _field(2, value.encode()))


def _field(number: int, content: bytes) -> bytes:
    return bytes((number << 3 | 2,)) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
