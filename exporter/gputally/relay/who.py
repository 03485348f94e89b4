"""The one pod on a device, by all the names that an exporter may give the device. Pure."""

from collections import defaultdict
from dataclasses import dataclass

from gputally.model import Owner, Snapshot, Unknown, Use
from gputally.relay.text import Device, Pod, Who

_NAMELESS_PODS = ("ambiguous_pod", "unknown_pod", "unknown_container")
"""Why a process is nobody's although it is some pod's: there, the pod that is known is not the only one."""


@dataclass(frozen=True, slots=True)
class _Nameless:
    """A pod on a device that cannot be named."""


def only_pods(snapshot: Snapshot) -> Who:
    """Finds the pod and container that a device's samples can be labelled with.

    None where nobody is, and where several are: what cannot be shared out belongs to none of them. Who is
    no pod does not count.
    """
    alone = {device: pods.pop() for device, pods in _present(snapshot).items() if len(pods) == 1}
    found = {device: pod for device, pod in alone.items() if isinstance(pod, Pod)}

    def who(device: Device) -> Pod | None:
        # An index is only asked for where there is no UUID: of the two, it is the one that may be another's.
        named = Device(device.uuid, "" if device.uuid else device.index, device.gpu_instance_id)
        return found.get(named)

    return who


def _present(snapshot: Snapshot) -> dict[Device, set[Pod | _Nameless]]:
    """Who is on each device, under each of its names."""
    names = _names(snapshot)
    # A container that was started again is in the books twice.
    charged: dict[tuple[str, Pod], bool] = defaultdict(bool)
    for charge in snapshot.charges:
        owner = charge.owner
        charged[charge.uuid, Pod(owner.namespace, owner.pod, owner.container)] |= charge.active
    present: dict[Device, set[Pod | _Nameless]] = defaultdict(set)
    for use in snapshot.uses:
        pod = _pod_of(use)
        if pod is None or (isinstance(pod, Pod) and not charged.get((use.uuid, pod), True)):
            continue
        for name in names.get(use.uuid, ()):
            present[name].add(pod)
    return present


def _pod_of(use: Use) -> Pod | _Nameless | None:
    match use.owner:
        case Owner(kind="pod") as owner:
            return Pod(owner.namespace, owner.pod, owner.container)
        case Unknown(reason=reason) if reason in _NAMELESS_PODS and use.processes:
            return _Nameless()
    return None


def _names(snapshot: Snapshot) -> dict[str, list[Device]]:
    """UUID of a GPU or MIG device -> the names whose samples speak of it.

    What is on a MIG device is also on its GPU instance, which may have others. It is not on the whole GPU:
    a sum over the pod's samples would have the instance twice.
    """
    indexes = [reading.gpu.index for reading in snapshot.readings]
    names: dict[str, list[Device]] = {}
    for reading in snapshot.readings:
        gpu = reading.gpu
        whole = [Device(gpu.uuid)]
        if indexes.count(gpu.index) == 1:  # GPUs of two vendors may both have it
            whole.append(Device(index=str(gpu.index)))
        names[gpu.uuid] = whole
        for mig in reading.mig:
            one = mig.instance
            own = Device(one.uuid)
            instance = (Device(name.uuid, name.index, str(one.gpu_instance_id)) for name in (own, *whole))
            names[one.uuid] = [own, *instance]
    return names
