"""Parses Prometheus text 0.0.4 and OpenMetrics 1.0 of an exporter that is not trusted.

What it keeps is checked and in one form, so that nothing received can make a scraper reject what is rendered
from it: families are whole, series unique, numbers and label values written anew. Gauges and counters keep
their type; the samples of histograms, summaries and state sets become untyped series of the same names.
Exemplars, units and creation times (`_created` of OpenMetrics counters) are left out.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from gputally.metrics.exposition import escape_help, number_text

MAX_BYTES = 4 * 2**20
MAX_LINES = 50_000
MAX_LINE_BYTES = 16_384
MAX_SAMPLES = 10_000
MAX_METADATA = 10_000
OWN_PREFIX = b"gputally_"
"""Of our metrics: another exporter must not set what is charged."""

_NAME = rb"[a-zA-Z_:][a-zA-Z0-9_:]*+"
_LABEL = rb'[a-zA-Z_][a-zA-Z0-9_]*+[ \t]*+=[ \t]*+"(?:[^"\\\n]++|\\[^\n])*+"'
_LABELS = rb"[ \t]*+(?:%b[ \t]*+(?:,[ \t]*+|(?=\})))*+" % _LABEL
_DECIMAL = rb"(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?"
_NUMBER = rb"(?:[+-]?(?:%b|(?i:inf(?:inity)?))|(?i:nan))" % _DECIMAL
_EXEMPLAR = rb"(?:#[ \t]++\{%b\}[ \t]*+%b(?:[ \t]++%b)?[ \t]*+)?" % (_LABELS, _NUMBER, _DECIMAL)


def _sample(timestamp: bytes, exemplar: bytes) -> re.Pattern[bytes]:
    return re.compile(
        rb"[ \t]*+(%b)(?:[ \t]*+\{(%b)\}[ \t]*+|[ \t]++)(%b)(?:[ \t]++(%b))?(?:[ \t]++%b)?"
        % (_NAME, _LABELS, _NUMBER, timestamp, exemplar)
    )


_TEXT_SAMPLE = _sample(rb"[0-9]{1,19}", b"")
_OPENMETRICS_SAMPLE = _sample(_DECIMAL, _EXEMPLAR)
_NAME_AND_VALUE = re.compile(rb'([a-zA-Z_][a-zA-Z0-9_]*+)[ \t]*+=[ \t]*+"((?:[^"\\\n]++|\\[^\n])*+)"')
_METADATA = re.compile(rb"#[ \t]++(HELP|TYPE|UNIT)(?:[ \t]++(%b)(?:[ \t](.*))?)?" % _NAME)
_LOOKS_LIKE_METADATA = re.compile(rb"#[ \t]++(?:HELP|TYPE|UNIT)(?![^ \t])")
_ESCAPE = re.compile(rb"\\(.?)")
_KINDS = {
    False: {b"counter", b"gauge", b"histogram", b"summary", b"untyped"},
    True: {
        *(b"counter", b"gauge", b"histogram", b"summary", b"unknown"),
        *(b"info", b"stateset", b"gaugehistogram"),
    },
}
_SERVED = {
    False: {b"counter": (b"", b"counter"), b"gauge": (b"", b"gauge")},
    True: {b"counter": (b"_total", b"counter"), b"gauge": (b"", b"gauge"), b"info": (b"_info", b"gauge")},
}
"""Declared type -> suffix of the sample's name, and the type in the text format; by whether OpenMetrics."""
_UNTYPED = (b"", b"untyped")
_MAX_INT64 = 2**63 - 1
_MAX_DEVICE_BYTES = 128
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class DeviceLabels:
    """The labels by which a sample identifies its GPU or GPU instance; empty where absent."""

    uuid: str = ""
    index: str = ""
    gpu_instance_id: str = ""


@dataclass(frozen=True, slots=True)
class Dialect:
    """An exporter's names of the three labels."""

    container: bytes
    namespace: bytes
    pod: bytes

    @property
    def names(self) -> tuple[bytes, bytes, bytes]:
        return self.container, self.namespace, self.pod


DCGM = Dialect(b"container", b"namespace", b"pod")
OLD_DCGM = Dialect(b"container_name", b"pod_namespace", b"pod_name")
_OWN = frozenset(DCGM.names + OLD_DCGM.names)
# A sample with one of these is attributed already, by the exporter or by a federated Prometheus.
_POD_LABELS = _OWN | {b"exported_" + name for name in _OWN}


@dataclass(frozen=True, slots=True, eq=False)
class LabelSet:
    """The labels of a series, without the empty ones, which mean the same as absent ones.

    There is one object for equal labels, so that it is compared by identity.
    """

    text: bytes
    """`name="value",...`, sorted by name."""
    device: DeviceLabels | None
    attributed: bool
    """Whether it has a pod label."""
    dialect: Dialect | None
    """That of the pod labels that it has, empty or not."""


@dataclass(frozen=True, slots=True)
class Family:
    """The samples of one name."""

    name: bytes
    kind: bytes
    help: bytes
    """Escaped."""
    samples: dict[LabelSet, bytes] = field(default_factory=dict)
    """Value, and timestamp where there is one."""


class Text:
    """The valid part of one or more texts, up to the limits."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self.samples = 0
        self.invalid = 0
        self.first_invalid = 0
        """The number of the first invalid line."""
        self.duplicates = 0
        self.cut = ""
        """The limit at which the rest was dropped."""
        self._max_bytes = self._bytes_left = max_bytes
        self._lines = 0
        self._series: dict[bytes, dict[LabelSet, bytes]] = {}
        self._kinds: dict[bytes, tuple[bytes, bytes]] = {}
        self._helps: dict[bytes, bytes] = {}
        self._parsed_labels: dict[bytes, LabelSet] = {}
        self._label_sets: dict[bytes, LabelSet] = {}

    def add(self, pieces: Iterable[bytes], *, openmetrics: bool) -> None:
        """Take in one text. It stops reading at a limit."""
        for line in self._split(pieces):
            self._lines += 1
            if self._lines > MAX_LINES:
                self.cut = f"{MAX_LINES:,} lines"
            if self.cut:
                return
            if line is None or not self._take(line, openmetrics):
                self.invalid += 1
                self.first_invalid = self.first_invalid or self._lines

    def families(self) -> list[Family]:
        """In the order of their first samples."""
        heads = {name + suffix: (name, kind) for name, (suffix, kind) in self._kinds.items()}
        families = []
        for name, samples in self._series.items():
            declared, kind = heads.get(name, (name, _UNTYPED[1]))
            families.append(Family(name, kind, self._helps.get(declared, b""), samples))
        return families

    def _split(self, pieces: Iterable[bytes]) -> Iterator[bytes | None]:
        """The lines; None for one that is too long."""
        rest = b""
        too_long = False
        for piece in pieces:
            fitting = piece[: self._bytes_left]
            self._bytes_left -= len(fitting)
            *lines, rest = (rest + fitting).split(b"\n")
            for line in lines:
                yield None if too_long or len(line) > MAX_LINE_BYTES else line
                too_long = False
            if len(rest) > MAX_LINE_BYTES:
                rest, too_long = b"", True
            if len(fitting) < len(piece):
                self.cut = f"{self._max_bytes / 2**20:g} MiB"
                return
        if rest or too_long:
            yield None if too_long else rest

    def _take(self, line: bytes, openmetrics: bool) -> bool:
        """Whether the line is valid."""
        words = line.strip(b" \t")
        if not words:
            return True
        if words.startswith(b"#"):
            return _LOOKS_LIKE_METADATA.match(words) is None or self._take_metadata(words, openmetrics)
        match = (_OPENMETRICS_SAMPLE if openmetrics else _TEXT_SAMPLE).fullmatch(line)
        if match is None or match[1].startswith(OWN_PREFIX):
            return False
        value = _value(match[3])
        timestamp = _milliseconds(match[4], openmetrics)
        if value is None or timestamp is None or (labels := self._labels(match[2] or b"")) is None:
            return False
        if not (openmetrics and self._is_creation_time(match[1])):
            self._keep(match[1], labels, value + timestamp)
        return True

    def _keep(self, name: bytes, labels: LabelSet, numbers: bytes) -> None:
        if self.samples >= MAX_SAMPLES:
            self.cut = f"{MAX_SAMPLES:,} samples"
            return
        series = self._series.setdefault(name, {})
        if labels in series:
            self.duplicates += 1
            return
        series[labels] = numbers
        self.samples += 1

    def _is_creation_time(self, name: bytes) -> bool:
        return name.endswith(b"_created") and self._kinds.get(name[:-8], _UNTYPED)[1] == b"counter"

    def _take_metadata(self, words: bytes, openmetrics: bool) -> bool:
        match = _METADATA.fullmatch(words)
        if match is None or match[2] is None:
            return False
        keyword, name, text = match[1], match[2], match[3] or b""
        if keyword == b"TYPE":
            declared = text.strip(b" \t")
            if declared not in _KINDS[openmetrics]:
                return False
            kind = _SERVED[openmetrics].get(declared, _UNTYPED)
            return _declare(self._kinds, name, kind)
        if keyword == b"HELP":
            help_text = _help(text.lstrip(b" \t"), openmetrics)
            return help_text is not None and _declare(self._helps, name, help_text)
        return True

    def _labels(self, raw: bytes) -> LabelSet | None:
        """None where they are invalid. Most samples have the labels of another one."""
        labels = self._parsed_labels.get(raw)
        if labels is None and (labels := self._parse_labels(raw)) is not None:
            self._parsed_labels[raw] = labels
        return labels

    def _parse_labels(self, raw: bytes) -> LabelSet | None:
        pairs = _NAME_AND_VALUE.findall(raw)
        labels = dict(pairs)
        if len(labels) < len(pairs) or not _is_text(raw) or any(name.startswith(b"__") for name in labels):
            return None
        filled = sorted((name, _escaped(value)) for name, value in pairs if value)
        text = b",".join(b'%b="%b"' % pair for pair in filled)
        if text not in self._label_sets:
            self._label_sets[text] = LabelSet(
                text,
                _device(labels),
                any(labels[name] for name in _POD_LABELS & labels.keys()),
                next((dialect for dialect in (DCGM, OLD_DCGM) if dialect.pod in labels), None),
            )
        return self._label_sets[text]


def _declare(known: dict[bytes, _T], name: bytes, value: _T) -> bool:
    """The first declaration counts. False for a different one, and for one too many."""
    if name not in known and len(known) < MAX_METADATA:
        known[name] = value
    return known.get(name) == value


def _value(text: bytes) -> bytes | None:
    """None where the number is larger than a float can be: a scraper does not read it as infinity."""
    value = float(text)
    infinite = text.lstrip(b"+-")[:1] in b"iI"
    if math.isinf(value) and not infinite:
        return None
    return number_text(value).encode()


def _milliseconds(text: bytes | None, openmetrics: bool) -> bytes | None:
    """The timestamp with the space before it; None where it does not fit into 64 bits."""
    if text is None:
        return b""
    milliseconds = float(text) * 1000 if openmetrics else int(text)
    if not milliseconds < _MAX_INT64:
        return None
    return b" %d" % round(milliseconds)


def _escaped(value: bytes) -> bytes:
    """Every backslash that escapes nothing is escaped, as Prometheus reads it."""
    if b"\\" not in value:
        return value
    return _ESCAPE.sub(
        lambda escape: escape[0] if escape[1] in (b"\\", b'"', b"n") else b"\\" + escape[0], value
    )


def _help(text: bytes, openmetrics: bool) -> bytes | None:
    if not _is_text(text):
        return None
    plain = {b"\\": b"\\", b"n": b"\n"} | ({b'"': b'"'} if openmetrics else {})
    unescaped = _ESCAPE.sub(lambda escape: plain.get(escape[1], escape[0]), text)
    return escape_help(unescaped.decode()).encode()


def _is_text(raw: bytes) -> bool:
    """UTF-8 without NUL, which ends a text for Prometheus."""
    if b"\0" in raw:
        return False
    try:
        raw.isascii() or raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _device(labels: Mapping[bytes, bytes]) -> DeviceLabels | None:
    # NVLink samples have gpu_uuid.
    uuid = labels.get(b"UUID") or labels.get(b"uuid") or labels.get(b"gpu_uuid", b"")
    index = labels.get(b"gpu", b"")
    named = (uuid, index, labels.get(b"GPU_I_ID", b""))
    if not (uuid or index) or max(map(len, named)) > _MAX_DEVICE_BYTES:
        return None
    return DeviceLabels(*(part.decode() for part in named))
