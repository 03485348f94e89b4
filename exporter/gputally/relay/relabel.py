"""Adds the labels of the only pod on a device to the samples of Prometheus or OpenMetrics text. Pure.

Lines keep their order, and a line whose device has no pod stays as it is, byte by byte.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from gputally.model import Owner, Snapshot, Unknown, Use

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

_METADATA_LINE = re.compile(rb"#[ \t]++(?:HELP|TYPE|UNIT)(?![^ \t])")


def _metadata(kinds: bytes) -> re.Pattern[bytes]:
    return re.compile(
        rb"#[ \t]++(?:HELP[ \t]++%b(?:[ \t].*)?|TYPE[ \t]++%b[ \t]++(?:%b)|UNIT[ \t]++%b(?:[ \t].*)?)"
        % (_NAME, _NAME, kinds, _NAME)
    )


_TEXT_METADATA = _metadata(b"counter|gauge|histogram|summary|untyped")
_METADATA = _metadata(b"counter|gauge|histogram|summary|unknown|info|stateset|gaugehistogram")


@dataclass(frozen=True, slots=True)
class DeviceLabels:
    """The labels by which a sample identifies its GPU or GPU instance; empty where absent."""

    uuid: str = ""
    index: str = ""
    gpu_instance_id: str = ""


@dataclass(frozen=True, slots=True)
class PodLabels:
    """The labels that a sample gets."""

    namespace: str
    pod: str
    container: str = ""


PodOf = Callable[[DeviceLabels], PodLabels | None]
Attributed = Collection[tuple[bytes, DeviceLabels]]
"""Names of metrics, each with a device, that have pod labels already."""


@dataclass(frozen=True, slots=True)
class _Dialect:
    """An exporter's names of the three labels."""

    container: bytes
    namespace: bytes
    pod: bytes

    @property
    def names(self) -> tuple[bytes, bytes, bytes]:
        return self.container, self.namespace, self.pod


_DCGM = _Dialect(b"container", b"namespace", b"pod")
_OLD_DCGM = _Dialect(b"container_name", b"pod_namespace", b"pod_name")
_OWN = frozenset(_DCGM.names + _OLD_DCGM.names)
# A sample with one of these is attributed already, by the exporter or by a federated Prometheus.
_POD_LABELS = _OWN | {b"exported_" + name for name in _OWN}


def is_valid(line: bytes, *, openmetrics: bool) -> bool:
    """Whether a scraper accepts the line; it rejects the whole scrape for one invalid line."""
    if not line.isascii():
        try:
            line.decode()
        except UnicodeDecodeError:
            return False
    words = line.strip(b" \t\n")
    if words.startswith(b"#"):
        metadata = _METADATA if openmetrics else _TEXT_METADATA
        return _METADATA_LINE.match(words) is None or metadata.fullmatch(words) is not None
    sample = _SAMPLE if openmetrics else _TEXT_SAMPLE
    return not words or sample.fullmatch(line) is not None


def find_attributed(lines: Iterable[bytes]) -> Attributed:
    """The metrics that the exporter labels with pods itself, by device."""
    attributed: set[tuple[bytes, DeviceLabels]] = set()
    for line in lines:
        if b"pod" not in line and b"namespace" not in line and b"container" not in line:
            continue
        match = _SAMPLE.fullmatch(line)
        if match is None or not match[2]:
            continue
        labels = dict(_NAME_AND_VALUE.findall(match[2]))
        if _is_attributed(labels):
            attributed.add((match[1], _device(labels)))
    return frozenset(attributed)


def relabel(lines: Iterable[bytes], pod_of: PodOf, attributed: Attributed = frozenset()) -> Iterator[bytes]:
    """The same lines, with the labels of `pod_of` on the samples of a device.

    PodLabels labels with a value are kept; empty ones are filled in at their position. A metric that is
    `attributed` on a device is not labelled there: it could become a duplicate series.
    """
    # All the metrics of a device have the same labels.
    known: dict[tuple[bytes, bool], tuple[DeviceLabels, bytes] | None] = {}
    for line in lines:
        match = _SAMPLE.fullmatch(line)
        if match is None or not match[2]:
            yield line
            continue
        key = (match[2], match[1].startswith(b"dcgm_"))
        if key not in known:
            known[key] = _labelled(*key, pod_of)
        found = known[key]
        if found is None or (match[1], found[0]) in attributed:
            yield line
        else:
            yield line[: match.start(2)] + found[1] + line[match.end(2) :]


def _is_attributed(labels: Mapping[bytes, bytes]) -> bool:
    return any(labels[name] for name in _POD_LABELS & labels.keys())


def _device(labels: Mapping[bytes, bytes]) -> DeviceLabels:
    # NVLink samples have gpu_uuid.
    uuid = labels.get(b"UUID") or labels.get(b"uuid") or labels.get(b"gpu_uuid", b"")
    named = (uuid, labels.get(b"gpu", b""), labels.get(b"GPU_I_ID", b""))
    return DeviceLabels(*(part.decode(errors="replace") for part in named))


def _labelled(inside: bytes, old: bool, pod_of: PodOf) -> tuple[DeviceLabels, bytes] | None:
    """The device, and the text between the braces with its pod's labels; None where that is unchanged."""
    labels = dict(_NAME_AND_VALUE.findall(inside))
    device = _device(labels)
    if not (device.uuid or device.index) or _is_attributed(labels):
        return None
    pod = pod_of(device)
    if pod is None:
        return None
    if _DCGM.pod in labels or (_OLD_DCGM.pod not in labels and not old):
        written = _written(pod, _DCGM)
    else:
        written = _written(pod, _OLD_DCGM)
    filled = _NAME_AND_VALUE.sub(lambda label: written.get(label[1], label[0]), inside)
    missing = (text for name, text in written.items() if name not in labels)
    return device, b",".join((filled.rstrip(b" \t,"), *missing))


def _written(pod: PodLabels, dialect: _Dialect) -> dict[bytes, bytes]:
    values = (pod.container, pod.namespace, pod.pod)
    return {
        name: b'%b="%b"' % (name, _escaped(value))
        for name, value in zip(dialect.names, values, strict=True)
        if value
    }


def _escaped(value: str) -> bytes:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n").encode()


_NAMELESS_PODS = ("ambiguous_pod", "unknown_pod", "unknown_container")
"""Reasons of an unknown owner that is a pod: on its device a named pod is not the only one."""


@dataclass(frozen=True, slots=True)
class _Nameless:
    """A pod without a known name."""


def find_only_pods(snapshot: Snapshot) -> PodOf:
    """Device -> the pod and container that its samples are labelled with.

    None where no pod or several pods are on it: a value that cannot be split belongs to none of them.
    Non-pod owners do not count.
    """
    alone = {device: pods.pop() for device, pods in _present(snapshot).items() if len(pods) == 1}
    found = {device: pod for device, pod in alone.items() if isinstance(pod, PodLabels)}

    def pod_of(device: DeviceLabels) -> PodLabels | None:
        # The index counts only where there is no UUID: another exporter may number GPUs differently.
        named = DeviceLabels(device.uuid, "" if device.uuid else device.index, device.gpu_instance_id)
        return found.get(named)

    return pod_of


def _present(snapshot: Snapshot) -> dict[DeviceLabels, set[PodLabels | _Nameless]]:
    """The pods on each device, under each of its names."""
    names = _names(snapshot)
    # A restarted container is in the ledger twice.
    charged: dict[tuple[str, PodLabels], bool] = defaultdict(bool)
    for charge in snapshot.charges:
        owner = charge.owner
        charged[charge.uuid, PodLabels(owner.namespace, owner.pod, owner.container)] |= charge.active
    present: dict[DeviceLabels, set[PodLabels | _Nameless]] = defaultdict(set)
    for use in snapshot.uses:
        pod = _pod_of(use)
        if pod is None or (isinstance(pod, PodLabels) and not charged.get((use.uuid, pod), True)):
            continue
        for name in names.get(use.uuid, ()):
            present[name].add(pod)
    return present


def _pod_of(use: Use) -> PodLabels | _Nameless | None:
    match use.owner:
        case Owner(kind="pod") as owner:
            return PodLabels(owner.namespace, owner.pod, owner.container)
        case Unknown(reason=reason) if reason in _NAMELESS_PODS and use.processes:
            return _Nameless()
    return None


def _names(snapshot: Snapshot) -> dict[str, list[DeviceLabels]]:
    """UUID of a GPU or MIG device -> the names under which samples refer to it.

    A pod on a MIG device is also on its GPU instance, which may have others. It is not on the whole GPU:
    a sum over the pod's samples would count the instance twice.
    """
    indexes = [reading.gpu.index for reading in snapshot.readings]
    names: dict[str, list[DeviceLabels]] = {}
    for reading in snapshot.readings:
        gpu = reading.gpu
        whole = [DeviceLabels(gpu.uuid)]
        if indexes.count(gpu.index) == 1:  # GPUs of two vendors may have the same index
            whole.append(DeviceLabels(index=str(gpu.index)))
        names[gpu.uuid] = whole
        for mig in reading.mig:
            one = mig.instance
            own = DeviceLabels(one.uuid)
            instance = (
                DeviceLabels(name.uuid, name.index, str(one.gpu_instance_id)) for name in (own, *whole)
            )
            names[one.uuid] = [own, *instance]
    return names
