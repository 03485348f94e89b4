"""Puts pods on the samples of Prometheus or OpenMetrics text, line by line: pure, and blind to all else.

Nothing is reordered or written anew: a line whose device has no pod to name comes out as it went in.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

_NAME = rb"[a-zA-Z_:][a-zA-Z0-9_:]*+"
_LABEL = rb'[a-zA-Z_][a-zA-Z0-9_]*+[ \t]*+=[ \t]*+"(?:[^"\\\n]++|\\[^\n])*+"'
_LABELS = rb"[ \t]*+(?:%b[ \t]*+(?:,[ \t]*+|(?=\})))*+" % _LABEL
_DECIMAL = rb"(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?"
_NUMBER = rb"(?:[+-]?(?:%b|(?i:inf(?:inity)?))|(?i:nan))" % _DECIMAL
_SECONDS = rb"-?%b" % _DECIMAL
_EXEMPLAR = rb"(?:#[ \t]++\{%b\}[ \t]*+%b(?:[ \t]++%b)?[ \t]*+)?" % (_LABELS, _NUMBER, _SECONDS)


def _sample(timestamp: bytes, exemplar: bytes) -> re.Pattern[bytes]:
    return re.compile(
        rb"[ \t]*+(%b)(?:[ \t]*+\{(%b)\}[ \t]*+|[ \t]++)%b(?:[ \t]++%b)?(?:[ \t]++%b)?\n?"
        % (_NAME, _LABELS, _NUMBER, timestamp, exemplar)
    )


_TEXT_SAMPLE = _sample(rb"-?[0-9]++", b"")
_SAMPLE = _sample(_SECONDS, _EXEMPLAR)
_NAME_AND_VALUE = re.compile(rb'([a-zA-Z_][a-zA-Z0-9_]*+)[ \t]*+=[ \t]*+"((?:[^"\\\n]++|\\[^\n])*+)"')

_ABOUT_A_FAMILY = re.compile(rb"#[ \t]++(?:HELP|TYPE|UNIT)(?![^ \t])")


def _about_a_family(kinds: bytes) -> re.Pattern[bytes]:
    return re.compile(
        rb"#[ \t]++(?:HELP[ \t]++%b(?:[ \t].*)?|TYPE[ \t]++%b[ \t]++(?:%b)|UNIT[ \t]++%b(?:[ \t].*)?)"
        % (_NAME, _NAME, kinds, _NAME)
    )


_TEXT_WELL_SAID = _about_a_family(b"counter|gauge|histogram|summary|untyped")
_WELL_SAID = _about_a_family(b"counter|gauge|histogram|summary|unknown|info|stateset|gaugehistogram")


@dataclass(frozen=True, slots=True)
class Device:
    """How a sample names its GPU, or a GPU instance of it; empty is not said."""

    uuid: str = ""
    index: str = ""
    gpu_instance_id: str = ""


@dataclass(frozen=True, slots=True)
class Pod:
    """Whom a sample is labelled with."""

    namespace: str
    pod: str
    container: str = ""


Who = Callable[[Device], Pod | None]
Told = Collection[tuple[bytes, Device]]
"""Names of metrics, each with a device."""


@dataclass(frozen=True, slots=True)
class _Dialect:
    """What an exporter calls the three labels."""

    container: bytes
    namespace: bytes
    pod: bytes

    @property
    def names(self) -> tuple[bytes, bytes, bytes]:
        return self.container, self.namespace, self.pod


_DCGM = _Dialect(b"container", b"namespace", b"pod")
_OLD_DCGM = _Dialect(b"container_name", b"pod_namespace", b"pod_name")
_OWN = frozenset(_DCGM.names + _OLD_DCGM.names)
# Somebody has told already whose it is: the exporter itself, or a Prometheus that it was federated from.
_TOLD = _OWN | {b"exported_" + name for name in _OWN}


def is_valid(line: bytes, *, openmetrics: bool) -> bool:
    """Whether a scraper would take the line; one that it does not take costs it all the others."""
    if not line.isascii():
        try:
            line.decode()
        except UnicodeDecodeError:
            return False
    words = line.strip(b" \t\n")
    if words.startswith(b"#"):
        well_said = _WELL_SAID if openmetrics else _TEXT_WELL_SAID
        return _ABOUT_A_FAMILY.match(words) is None or well_said.fullmatch(words) is not None
    sample = _SAMPLE if openmetrics else _TEXT_SAMPLE
    return not words or sample.fullmatch(line) is not None


def find_told(lines: Iterable[bytes]) -> Told:
    """What the exporter itself shares out among pods, be it to one pod alone."""
    told: set[tuple[bytes, Device]] = set()
    for line in lines:
        if b"pod" not in line and b"namespace" not in line and b"container" not in line:
            continue
        match = _SAMPLE.fullmatch(line)
        if match is None or not match[2]:
            continue
        labels = dict(_NAME_AND_VALUE.findall(match[2]))
        if _is_told(labels):
            told.add((match[1], _device(labels)))
    return frozenset(told)


def relabel(lines: Iterable[bytes], who: Who, told: Told = frozenset()) -> Iterator[bytes]:
    """The same lines, the samples of a device with the labels of the pod that `who` names.

    Labels that tell already whose it is are kept; empty ones are filled in, in their places. What is `told`
    for some pod is not labelled beside it: it could become the same series twice.
    """
    # All the metrics of a device have the same labels.
    known: dict[tuple[bytes, bool], tuple[Device, bytes] | None] = {}
    for line in lines:
        match = _SAMPLE.fullmatch(line)
        if match is None or not match[2]:
            yield line
            continue
        key = (match[2], match[1].startswith(b"dcgm_"))
        if key not in known:
            known[key] = _labelled(*key, who)
        found = known[key]
        if found is None or (match[1], found[0]) in told:
            yield line
        else:
            yield line[: match.start(2)] + found[1] + line[match.end(2) :]


def _is_told(labels: Mapping[bytes, bytes]) -> bool:
    return any(labels[name] for name in _TOLD & labels.keys())


def _device(labels: Mapping[bytes, bytes]) -> Device:
    # gpu_uuid is on the samples of NVLink.
    uuid = labels.get(b"UUID") or labels.get(b"uuid") or labels.get(b"gpu_uuid", b"")
    named = (uuid, labels.get(b"gpu", b""), labels.get(b"GPU_I_ID", b""))
    return Device(*(part.decode(errors="replace") for part in named))


def _labelled(inside: bytes, old: bool, who: Who) -> tuple[Device, bytes] | None:
    """The device, and what is between the braces with its pod's labels; None where that stays as it is."""
    labels = dict(_NAME_AND_VALUE.findall(inside))
    device = _device(labels)
    if not (device.uuid or device.index) or _is_told(labels):
        return None
    pod = who(device)
    if pod is None:
        return None
    if _DCGM.pod in labels or (_OLD_DCGM.pod not in labels and not old):
        written = _written(pod, _DCGM)
    else:
        written = _written(pod, _OLD_DCGM)
    filled = _NAME_AND_VALUE.sub(lambda label: written.get(label[1], label[0]), inside)
    missing = (text for name, text in written.items() if name not in labels)
    return device, b",".join((filled.rstrip(b" \t,"), *missing))


def _written(pod: Pod, dialect: _Dialect) -> dict[bytes, bytes]:
    values = (pod.container, pod.namespace, pod.pod)
    return {
        name: b'%b="%b"' % (name, _escaped(value))
        for name, value in zip(dialect.names, values, strict=True)
        if value
    }


def _escaped(value: str) -> bytes:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n").encode()
