"""Metric families -> Prometheus text 0.0.4 and OpenMetrics 1.0, plain and gzip.

prometheus_client would render the same, but importing it costs 14 MiB of memory and rendering ten
times the CPU time; its parser and promtool check this module in the tests.
"""

import os
import threading
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

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
    """The shortest text that parses to the number. Most numbers occur more than once in a scrape."""

    def __missing__(self, value: float) -> str:
        text = str(int(value)) if isinstance(value, int) or not value else repr(value).removesuffix(".0")
        self[value] = text
        return text


def render_text(families: Iterable[Family], blocks: LabelBlocks | None = None) -> bytes:
    """Prometheus text format 0.0.4."""
    blocks, numbers = blocks or LabelBlocks(), _Numbers()
    pieces: list[bytes] = []
    for family in families:
        metric = family.metric
        kind = Kind.GAUGE if metric.kind is Kind.INFO else metric.kind
        head = f"# HELP {metric.name} {_escape_help(metric.help)}\n# TYPE {metric.name} {kind}\n"
        pieces += (head.encode(), _sample_lines(family, blocks, numbers))
    return b"".join(pieces)


def render_openmetrics(families: Iterable[Family], blocks: LabelBlocks | None = None) -> bytes:
    """OpenMetrics text format 1.0: the family is named without the suffix of its samples."""
    blocks, numbers = blocks or LabelBlocks(), _Numbers()
    pieces: list[bytes] = []
    for family in families:
        metric = family.metric
        name, kind = _openmetrics_family(metric)
        head = f"# TYPE {name} {kind}\n"
        if metric.unit and name.endswith("_" + metric.unit):
            head += f"# UNIT {name} {metric.unit}\n"
        head += f"# HELP {name} {_escape_label(metric.help)}\n"
        pieces += (head.encode(), _sample_lines(family, blocks, numbers))
    pieces.append(b"# EOF\n")
    return b"".join(pieces)


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
    return "{" + ",".join(f'{n}="{_escape_label(v)}"' for n, v in zip(names, values, strict=True)) + "}"


def _escape_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _escape_label(text: str) -> str:
    return _escape_help(text).replace('"', '\\"')


_Variant = tuple[bool, bool]  # openmetrics, gzipped


class Exposition:
    """The newest snapshot, rendered once per format for all scrapers."""

    def __init__(self, families_of: FamiliesOf, first: Snapshot) -> None:
        self._families_of = families_of
        self._rendering = threading.Lock()
        self._snapshot = first
        self._rendered: dict[_Variant, bytes] = {}
        self._wanted: set[_Variant] = set()
        self._blocks = LabelBlocks()

    @property
    def snapshot(self) -> Snapshot:
        return self._snapshot

    def publish(self, snapshot: Snapshot) -> None:
        """Set the snapshot, and render the formats that were requested of the one before."""
        wanted, self._wanted = self._wanted, set()
        rendered: dict[_Variant, bytes] = {}
        with self._rendering:
            self._blocks.next_snapshot()
            for variant in sorted(wanted):
                self._render(snapshot, variant, rendered)
            self._snapshot, self._rendered = snapshot, rendered

    def body(self, *, openmetrics: bool, gzipped: bool) -> bytes:
        variant = (openmetrics, gzipped)
        self._wanted.add(variant)
        body = self._rendered.get(variant)
        if body is not None:
            return body
        with self._rendering:
            return self._rendered.get(variant) or self._render(self._snapshot, variant, self._rendered)

    def _render(self, snapshot: Snapshot, variant: _Variant, rendered: dict[_Variant, bytes]) -> bytes:
        openmetrics, gzipped = variant
        plain = rendered.get((openmetrics, False))
        if plain is None:
            families = self._families_of(snapshot)
            render = render_openmetrics if openmetrics else render_text
            plain = render(families, self._blocks)
        rendered[variant] = zlib.compress(plain, GZIP_LEVEL, wbits=_GZIP_FORMAT) if gzipped else plain
        return rendered[variant]


def write_metrics_file(path: Path, body: bytes) -> None:
    """Replace the file atomically: a reader gets the old metrics or the new ones, never a part."""
    # The collector reads *.prom, so the unfinished file must not match.
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        unfinished.write_bytes(body)
        unfinished.chmod(0o644)
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
