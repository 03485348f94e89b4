"""From the id that a device plugin or DRA driver uses for a GPU to that GPU. Pure.

An id that is unknown, or that matches more than one device, gives None: never a guess.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gputally.devices.vendors import ALL_VENDORS, vendor_of
from gputally.model import DeviceKey, MigReading, Reading

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_PCI_ID = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.IGNORECASE)

# NVIDIA's network operator names NICs and their virtual functions nvidia.com/<name>, too.
_NETWORK = re.compile(r"rdma|roce|sriov|hostdev|mlnx|infiniband|(?:^|[^a-z])(?:nic|ib|vf|bf\d?)(?:[^a-z]|$)")
# Resources of no vendor: volcano.sh/gpu-number, aliyun.com/gpu-mem.
_OTHER_GPU_RESOURCE = re.compile(r"[^/]+/(?:.*[^a-z])?[vp]?gpu(?:[^a-z].*)?")
_GPU_DRIVER = re.compile(r"(?:.*[.-])?gpu(?:[.-].*)?")

_CDI_NAME = re.compile(rf"[^=/]+/[^=/]+=(?:{_UUID}-)?(?P<name>.+)", re.IGNORECASE)
_REPLICA = re.compile(r"::\d+$")
_DOMAIN = re.compile(rf"\b(?:{'|'.join(re.escape(vendor.domain) for vendor in ALL_VENDORS)})\b")


def is_gpu_resource(resource: str) -> bool:
    """Whether the name of this resource is that of a GPU."""
    gpus = of_vendor_gpus(resource) or _OTHER_GPU_RESOURCE.fullmatch(resource)
    return bool(gpus) and not _NETWORK.search(resource.partition("/")[2].lower())


def of_vendor_gpus(resource: str) -> bool:
    """Whether a resource is one that a vendor's own device plugin uses for its GPUs."""
    return any(vendor.resources.fullmatch(resource) for vendor in ALL_VENDORS)


def is_gpu_device(resource: str, device_id: str) -> bool:
    """Whether a device that the kubelet allocated to a container is a GPU."""
    if any(vendor.device_ids.fullmatch(device_id) for vendor in ALL_VENDORS):
        return True
    if not is_gpu_resource(resource):
        return False
    by_name_only = any(
        resource.startswith(f"{vendor.domain}/") for vendor in ALL_VENDORS if not vendor.pci_address_ids
    )
    return not (by_name_only and _PCI_ID.fullmatch(device_id))


def is_gpu_driver(driver: str) -> bool:
    """Whether a DRA driver allocates GPUs: gpu.nvidia.com does, compute-domain.nvidia.com does not."""
    return bool(_GPU_DRIVER.fullmatch(driver))


def is_replica(device_id: str) -> bool:
    """Whether it is one of several ids that NVIDIA's device plugin has for one shared GPU: GPU-...::0."""
    return _REPLICA.search(device_id) is not None


def match_device(device_id: str, resource: str, readings: Sequence[Reading]) -> DeviceKey | None:
    """The device of `readings` that has this id under `resource` (or under a DRA driver)."""
    cdi = _CDI_NAME.fullmatch(device_id)
    name = _REPLICA.sub("", cdi["name"] if cdi else device_id)
    of = device_id if cdi else resource
    # A GPU that was lost before its uuid could be read has no ledger.
    candidates = [reading for reading in readings if reading.gpu.uuid and _may_be_of(of, reading.gpu.vendor)]
    for by in (_by_uuid, _by_vendor_name, _by_pci_address, _by_platform_device, _by_index):
        found = set(by(name, candidates))
        if found:
            return found.pop() if len(found) == 1 else None
    return None


def _may_be_of(resource: str, vendor: str) -> bool:
    domain = _DOMAIN.search(resource)
    return domain is None or domain[0] == vendor_of(vendor).domain


def _by_uuid(name: str, readings: Sequence[Reading]) -> Iterator[DeviceKey]:
    uuid = name.lower()
    for reading in readings:
        if reading.gpu.uuid.lower() == uuid:
            yield _whole(reading)
        yield from (_slice(mig) for mig in reading.mig if mig.instance.uuid.lower() == uuid)


def _by_vendor_name(name: str, readings: Sequence[Reading]) -> Iterator[DeviceKey]:
    """The names that the vendor's device plugins and DRA driver use."""
    for reading in readings:
        vendor = vendor_of(reading.gpu.vendor)
        for pattern in vendor.device_names:
            match = pattern.fullmatch(name)
            if match is not None:
                yield from _named(match.groupdict(), reading, by_partitions=vendor.partitions_replace_gpu)


def _named(groups: Mapping[str, str | None], reading: Reading, *, by_partitions: bool) -> Iterator[DeviceKey]:
    """The devices of a GPU that the groups of a vendor's `device_names` stand for."""
    parent, minor, profile, pci = (groups.get(group) for group in ("parent", "minor", "profile", "pci"))
    gpu_instance, compute_instance = (groups.get(group) for group in ("gi", "ci"))
    if pci is not None:
        yield from _at_address(_pci_address(pci.split("-")), [reading])
        return
    if minor is not None and reading.mig and by_partitions:
        yield from (_slice(mig) for mig in reading.mig if mig.instance.minor_number == int(minor))
        return
    if parent is not None and reading.gpu.uuid.lower() != parent.lower():
        return
    if minor is not None and reading.gpu.minor_number != int(minor):
        return
    if gpu_instance is None and profile is None:
        yield _whole(reading)
        return
    for mig in reading.mig:
        instance = mig.instance
        # Readers do not report placements: two devices of one profile are ambiguous.
        if (
            (gpu_instance is None or instance.gpu_instance_id == int(gpu_instance))
            and (compute_instance is None or instance.compute_instance_id == int(compute_instance))
            and (profile is None or _plain(instance.profile) == _plain(profile))
        ):
            yield _slice(mig)


def _by_pci_address(name: str, readings: Sequence[Reading]) -> Iterator[DeviceKey]:
    match = _PCI_ID.fullmatch(name)
    return _at_address(_pci_address(match.groups()), readings) if match else iter(())


def _at_address(address: tuple[int, ...], readings: Sequence[Reading]) -> Iterator[DeviceKey]:
    """The GPU at a PCI address, or its first partition where partitions replace the GPU."""
    for reading in readings:
        if reading.mig and vendor_of(reading.gpu.vendor).partitions_replace_gpu:
            yield from (_slice(mig) for mig in reading.mig if _is_at(mig.instance.device_name, address))
        elif _is_at(reading.gpu.pci_bus_id, address):
            yield _whole(reading)


def _by_platform_device(name: str, readings: Sequence[Reading]) -> Iterator[DeviceKey]:
    """The kernel's name of a partition that has a device of its own."""
    for reading in readings:
        yield from (_slice(mig) for mig in reading.mig if mig.instance.device_name == name)


def _by_index(name: str, readings: Sequence[Reading]) -> Iterator[DeviceKey]:
    if re.fullmatch(r"[0-9]{1,4}", name):
        yield from (_whole(reading) for reading in readings if reading.gpu.index == int(name))


def _whole(reading: Reading) -> DeviceKey:
    return reading.gpu.index, reading.gpu.uuid


def _slice(mig: MigReading) -> DeviceKey:
    return mig.instance.parent_index, mig.instance.uuid


def _is_at(device: str | None, address: tuple[int, ...]) -> bool:
    match = _PCI_ID.fullmatch(device or "")
    return match is not None and _pci_address(match.groups()) == address


def _pci_address(parts: Iterable[str]) -> tuple[int, ...]:
    return tuple(int(part, 16) for part in parts)


def _plain(profile: str | None) -> str:
    """1g.10gb+me -> 1g10gbme: a profile's name as it appears in the name of a Kubernetes object."""
    return re.sub(r"[^0-9a-z]", "", (profile or "").lower())
