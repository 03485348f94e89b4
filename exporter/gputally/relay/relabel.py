"""Writes the families of another exporter, with the labels of the only pod on a device. Pure."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from gputally.metrics.exposition import escape_label
from gputally.model import Owner, Snapshot, Unknown, Use
from gputally.relay.text import DCGM, OLD_DCGM, DeviceLabels, Dialect, Family, LabelSet


@dataclass(frozen=True, slots=True)
class PodLabels:
    """The labels that a sample gets."""

    namespace: str
    pod: str
    container: str = ""


PodOf = Callable[[DeviceLabels], PodLabels | None]


def render(families: Iterable[Family], pod_of: PodOf) -> Iterator[tuple[bytes, bytes]]:
    """Each family's name, and its Prometheus text with the labels of `pod_of` on the samples of a device.

    A metric that the exporter labels with pods itself on a device is not labelled there: it could become a
    duplicate series.
    """
    written: dict[tuple[DeviceLabels, Dialect], bytes] = {}
    for family in families:
        attributed = {labels.device for labels in family.samples if labels.attributed}
        lines = [b"# HELP %b %b\n" % (family.name, family.help)] if family.help else []
        lines.append(b"# TYPE %b %b\n" % (family.name, family.kind))
        for labels, numbers in family.samples.items():
            added = b""
            device = labels.device
            if device is not None and device not in attributed:
                key = (device, _dialect(family, labels))
                if key not in written:
                    written[key] = _written(pod_of(device), key[1])
                added = written[key]
            block = labels.text + added
            lines.append(b"%b%b %b\n" % (family.name, b"{%b}" % block if block else b"", numbers))
        yield family.name, b"".join(lines)


def _dialect(family: Family, labels: LabelSet) -> Dialect:
    return labels.dialect or (OLD_DCGM if family.name.startswith(b"dcgm_") else DCGM)


def _written(pod: PodLabels | None, dialect: Dialect) -> bytes:
    if pod is None:
        return b""
    values = (pod.container, pod.namespace, pod.pod)
    return b"".join(
        b',%b="%b"' % (name, escape_label(value).encode())
        for name, value in zip(dialect.names, values, strict=True)
        if value
    )


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
