"""Metric families -> Prometheus text 0.0.4 and OpenMetrics 1.0, plain and gzip.

prometheus_client would render the same, but importing it costs 14 MiB of memory and rendering ten
times the CPU time; its parser and promtool check this module in the tests.
"""

import math
import re
import struct
import sys
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from itertools import groupby

from gputally.metrics.catalog import Kind, Metric
from gputally.metrics.families import FamiliesOf, Family
from gputally.model import Labels, Snapshot

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
# Level 6 saves 12 % of the bytes for three times the CPU time.
GZIP_LEVEL = 1
# Finding the unused ones costs a tenth of the rendering, so it is not done for every snapshot.
SNAPSHOTS_KEPT = 12
_GZIP_FORMAT = 31
_GZIP_HEAD = b"\x1f\x8b\x08" + bytes(6) + b"\xff"  # deflate, no name, no time, unknown system
_LAST_BLOCK = b"\x03\x00"
_EOF = b"# EOF\n"
_MAX_FLOAT = int(sys.float_info.max)
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
_SUFFIX = {Kind.COUNTER: "_total", Kind.INFO: "_info"}
"""OpenMetrics: the suffix of a sample's name that its family's name does not have."""


class LabelBlocks:
    """`{name="value",...}` of every label set, cached while in use and for some snapshots after it."""

    def __init__(self) -> None:
        self._snapshots = 0
        self._now: dict[Labels, _Blocks] = {}
        self._before: dict[Labels, _Blocks] = {}

    def next_snapshot(self) -> None:
        self._snapshots += 1
        if self._snapshots % SNAPSHOTS_KEPT:
            return
        self._before, self._now = self._now or self._before, {}
        for blocks in self._before.values():
            blocks.before = {}

    def of(self, names: Labels) -> Mapping[Labels, str]:
        """Label values -> block."""
        blocks = self._now.get(names)
        if blocks is None:
            blocks = self._now[names] = _Blocks(names, self._before.get(names, {}))
        return blocks


class _Blocks(dict[Labels, str]):
    """The blocks of one set of label names; a dict, because every sample looks one up."""

    def __init__(self, names: Labels, before: Mapping[Labels, str]) -> None:
        self.names = names
        self.before = before

    def __missing__(self, values: Labels) -> str:
        block = self[values] = self.before.get(values) or _label_block(self.names, values)
        return block


class _Numbers(dict[float, str]):
    """The text of each number. Most numbers occur more than once in a scrape."""

    def __missing__(self, value: float) -> str:
        text = self[value] = number_text(value)
        return text


def number_text(value: float) -> str:
    """The shortest text that parses to the number. Scrapers reject a number beyond the range of floats."""
    if isinstance(value, int):
        return str(int(value)) if abs(value) <= _MAX_FLOAT else ("+Inf" if value > 0 else "-Inf")
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("+Inf" if value > 0 else "-Inf")
    return repr(value).removesuffix(".0") if value else "0"


def render_text(families: Iterable[Family], blocks: LabelBlocks | None = None) -> bytes:
    """Prometheus text format 0.0.4."""
    return b"".join(_text_pieces(families, blocks or LabelBlocks()))


def _text_pieces(families: Iterable[Family], blocks: LabelBlocks) -> Iterator[bytes]:
    numbers = _Numbers()
    for family in families:
        metric = family.metric
        kind = Kind.GAUGE if metric.kind is Kind.INFO else metric.kind
        head = f"# HELP {metric.name} {escape_help(metric.help)}\n# TYPE {metric.name} {kind}\n"
        yield head.encode() + _sample_lines(family, blocks, numbers)


def render_openmetrics(families: Iterable[Family], blocks: LabelBlocks | None = None) -> bytes:
    """OpenMetrics text format 1.0: the family is named without the suffix of its samples."""
    return b"".join((*_openmetrics_pieces(families, blocks or LabelBlocks()), _EOF))


def _openmetrics_pieces(families: Iterable[Family], blocks: LabelBlocks) -> Iterator[bytes]:
    numbers = _Numbers()
    for family in families:
        metric = family.metric
        name, kind = _openmetrics_family(metric)
        head = f"# TYPE {name} {kind}\n"
        if metric.unit and name.endswith("_" + metric.unit):
            head += f"# UNIT {name} {metric.unit}\n"
        head += f"# HELP {name} {escape_label(metric.help)}\n"
        yield head.encode() + _sample_lines(family, blocks, numbers)


def _openmetrics_family(metric: Metric) -> tuple[str, str]:
    """Name and type; unknown for a counter or info metric of another tool without the suffix."""
    suffix = _SUFFIX.get(metric.kind, "")
    if metric.name.endswith(suffix):
        return metric.name.removesuffix(suffix), metric.kind
    return metric.name, "unknown"


def _sample_lines(family: Family, blocks: LabelBlocks, numbers: _Numbers) -> bytes:
    """Encoded per family, so that the memory of its text is reused for the next one."""
    name, block = family.metric.name, blocks.of(family.metric.labels)
    return "".join([f"{name}{block[values]} {numbers[value]}\n" for values, value in family.samples]).encode()


def _label_block(names: Labels, values: Labels) -> str:
    if len(names) != len(values):
        raise ValueError(f"the label values {values} do not match the labels {names}")
    if not names:
        return ""
    return "{" + ",".join(f'{n}="{escape_label(v)}"' for n, v in zip(names, values, strict=True)) + "}"


def escape_help(text: str) -> str:
    """Its characters that no scraper accepts are replaced: NUL ends a text, and surrogates are not UTF-8."""
    if not text.isprintable():
        text = _NO_TEXT.sub("\ufffd", text)
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def escape_label(text: str) -> str:
    return escape_help(text).replace('"', '\\"')


_Variant = tuple[bool, bool]  # openmetrics, gzipped


@dataclass(slots=True)
class _Section:
    """The text of neighbouring families with the same groups. It shares the memory of the whole text."""

    groups: tuple[str, ...]
    text: memoryview
    _deflated: bytes = b""

    def deflated(self) -> bytes:
        """Compressed on its own, so that any selection of sections is a gzip body."""
        if not self._deflated:
            compressor = zlib.compressobj(GZIP_LEVEL, wbits=-zlib.MAX_WBITS)
            self._deflated = compressor.compress(self.text) + compressor.flush(zlib.Z_FULL_FLUSH)
        return self._deflated


_END = _Section((), memoryview(_EOF))


@dataclass(slots=True)
class _Rendered:
    """The text of one snapshot, as far as it was requested."""

    bodies: dict[_Variant, bytes] = field(default_factory=dict)
    sections: dict[bool, list[_Section]] = field(default_factory=dict)
    """By whether OpenMetrics."""


class Exposition:
    """The newest snapshot, rendered once per format for all scrapers."""

    def __init__(self, families_of: FamiliesOf, first: Snapshot) -> None:
        self._families_of = families_of
        self._rendering = threading.Lock()
        self._snapshot = first
        self._rendered = _Rendered()
        self._wanted: set[_Variant] = set()
        self._blocks = LabelBlocks()

    @property
    def snapshot(self) -> Snapshot:
        return self._snapshot

    def publish(self, snapshot: Snapshot) -> None:
        """Set the snapshot, and render the formats that were requested of the one before."""
        wanted, self._wanted = self._wanted, set()
        rendered = _Rendered()
        with self._rendering:
            self._blocks.next_snapshot()
            for variant in sorted(wanted):
                self._render(snapshot, variant, rendered)
            self._snapshot, self._rendered = snapshot, rendered

    def body(self, *, openmetrics: bool, gzipped: bool) -> bytes:
        return self._current((openmetrics, gzipped)).bodies[openmetrics, gzipped]

    def selected(
        self, groups: Set[str], *, openmetrics: bool, gzipped: bool
    ) -> tuple[bytes | memoryview, ...]:
        """The families of these groups, in pieces that all clients and selections share."""
        sections = self._current((openmetrics, False)).sections[openmetrics]
        chosen = [one for one in sections if not groups.isdisjoint(one.groups)]
        if openmetrics:
            chosen.append(_END)
        if not gzipped:
            return tuple(one.text for one in chosen)
        checksum = length = 0
        for one in chosen:
            checksum = zlib.crc32(one.text, checksum)
            length += len(one.text)
        tail = _LAST_BLOCK + struct.pack("<II", checksum, length % 2**32)
        return (_GZIP_HEAD, *(one.deflated() for one in chosen), tail)

    def _current(self, variant: _Variant) -> _Rendered:
        """The newest snapshot's text, with this variant."""
        self._wanted.add(variant)
        rendered = self._rendered
        if variant not in rendered.bodies:
            with self._rendering:
                rendered = self._rendered
                if variant not in rendered.bodies:
                    self._render(self._snapshot, variant, rendered)
        return rendered

    def _render(self, snapshot: Snapshot, variant: _Variant, rendered: _Rendered) -> None:
        openmetrics, gzipped = variant
        if (openmetrics, False) not in rendered.bodies:
            self._render_plain(snapshot, rendered, openmetrics)
        if gzipped:
            plain = rendered.bodies[openmetrics, False]
            rendered.bodies[variant] = zlib.compress(plain, GZIP_LEVEL, wbits=_GZIP_FORMAT)

    def _render_plain(self, snapshot: Snapshot, rendered: _Rendered, openmetrics: bool) -> None:
        families = self._families_of(snapshot)
        pieces_of = _openmetrics_pieces if openmetrics else _text_pieces
        pieces = list(pieces_of(families, self._blocks))
        body = b"".join((*pieces, _EOF) if openmetrics else pieces)
        whole, start = memoryview(body), 0
        sections: list[_Section] = []
        for groups, some in groupby(zip(families, pieces, strict=True), key=lambda pair: pair[0].groups):
            end = start + sum(len(piece) for _, piece in some)
            sections.append(_Section(groups, whole[start:end]))
            start = end
        rendered.sections[openmetrics] = sections
        rendered.bodies[openmetrics, False] = body
