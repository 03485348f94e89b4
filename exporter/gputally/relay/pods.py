"""The only pod on a device, by every name that an exporter may use for the device. Pure."""

from collections import defaultdict
from dataclasses import dataclass

from gputally.model import Owner, Snapshot, Unknown, Use
from gputally.relay.text import DeviceLabels, PodLabels, PodOf

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
