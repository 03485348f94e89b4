"""What a device plugin or DRA driver calls a GPU, and which GPU that is. Pure.

A name that is unknown, or that more than one device answers to, is no GPU: None, never a guess.
"""

import re
from collections.abc import Iterator, Sequence

from gputally.model import MigReading, Reading

Device = tuple[int, str]
"""Index of the GPU, and the uuid of the GPU or of its MIG device."""

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_PCI_ID = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.IGNORECASE)

# The network operator of NVIDIA names NICs and their virtual functions nvidia.com/<whatever>, too.
_NETWORK = re.compile(r"rdma|roce|sriov|hostdev|mlnx|infiniband|(?:^|[^a-z])(?:nic|ib|vf|bf\d?)(?:[^a-z]|$)")
_GPU_RESOURCE = re.compile(
    r"""nvidia\.com/.+
    | amd\.com/(?:gpu.* | [sdtqc]px(?:_nps\d+)?)  # partitions are named after their modes
    | gpu\.intel\.com/(?!.*monitoring).+          # the monitoring resource is for exporters: it holds nothing
    | [^/]+/(?:.*[^a-z])?[vp]?gpu(?:[^a-z].*)?    # volcano.sh/gpu-number, aliyun.com/gpu-mem
    """,
    re.VERBOSE,
)
_GPU_ID = re.compile(rf"(?:GPU|MIG|MIG-GPU)-{_UUID}.*|nvidia\d+(?:/.*)?|amdgpu_xcp[_.]\d+", re.IGNORECASE)
_GPU_DRIVER = re.compile(r"(?:.*[.-])?gpu(?:[.-].*)?")

_CDI_NAME = re.compile(rf"[^=/]+/[^=/]+=(?:{_UUID}-)?(?P<name>.+)", re.IGNORECASE)
_REPLICA = re.compile(r"::\d+$")
_SHARED_UUID = re.compile(rf"(?P<uuid>GPU-{_UUID})-(?:_-)?\d+", re.IGNORECASE)
_OLD_MIG = re.compile(
    rf"MIG-(?P<parent>GPU-{_UUID})/(?P<gi>[0-9]{{1,4}})/(?P<ci>[0-9]{{1,4}})", re.IGNORECASE
)
_GKE = re.compile(r"nvidia(?P<minor>[0-9]{1,4})(?:/gi(?P<gi>[0-9]{1,4}))?(?:/vgpu[0-9]+)?")
_DRA_NVIDIA = re.compile(r"gpu-(?P<minor>[0-9]{1,4})(?:-mig-(?P<profile>.+)-[0-9]+-[0-9]+)?")
_DRA_AMD = re.compile(r"gpu-(?P<card>[0-9]{1,4})-[0-9]{1,4}")
_DRA_INTEL = re.compile(r"([0-9a-f]{4,8})-([0-9a-f]{2})-([0-9a-f]{2})-([0-7])-0x[0-9a-f]+")


def is_gpu_resource(resource: str) -> bool:
    """Whether a pod that asks for this resource asks for a GPU, as far as its name says."""
    return bool(_GPU_RESOURCE.fullmatch(resource)) and not _NETWORK.search(resource.partition("/")[2].lower())


def is_gpu_device(resource: str, device_id: str) -> bool:
    """Whether a device that the kubelet gave to a container is a GPU."""
    if _GPU_ID.fullmatch(device_id):
        return True
    # NVIDIA's GPUs are never called by their PCI address, but NICs and GPUs passed to virtual machines are.
    of_nvidia = resource.startswith("nvidia.com/")
    return is_gpu_resource(resource) and not (of_nvidia and _PCI_ID.fullmatch(device_id))


def is_gpu_driver(driver: str) -> bool:
    """Whether a DRA driver hands out GPUs: gpu.nvidia.com does, compute-domain.nvidia.com does not."""
    return bool(_GPU_DRIVER.fullmatch(driver))


def match_device(device_id: str, resource: str, readings: Sequence[Reading]) -> Device | None:
    """The device of `readings` that `device_id` of `resource` (or of a DRA driver) is."""
    cdi = _CDI_NAME.fullmatch(device_id)
    name = _REPLICA.sub("", cdi["name"] if cdi else device_id)
    of = device_id if cdi else resource
    # A GPU that was lost before it said who it is has no uuid: nothing can be booked on it.
    candidates = [reading for reading in readings if reading.gpu.uuid and _may_be_of(of, reading.gpu.vendor)]
    for by in (
        *(_by_uuid, _by_old_mig_name, _by_device_node, _by_pci_address, _by_platform_device),
        *(_by_dra_name, _by_dra_name_of_amd, _by_index),
    ):
        found = set(by(name, candidates))
        if found:
            return found.pop() if len(found) == 1 else None
    return None


def _may_be_of(resource: str, vendor: str) -> bool:
    named = re.search(r"\b(nvidia|amd|intel)\.com\b", resource)
    return named is None or named[1] == vendor


def _by_uuid(name: str, readings: Sequence[Reading]) -> Iterator[Device]:
    shared = _SHARED_UUID.fullmatch(name)
    uuid = (shared["uuid"] if shared else name).lower()
    for reading in readings:
        if reading.gpu.uuid.lower() == uuid:
            yield _whole(reading)
        yield from (_slice(mig) for mig in reading.mig if mig.instance.uuid.lower() == uuid)


def _by_old_mig_name(name: str, readings: Sequence[Reading]) -> Iterator[Device]:
    """Drivers before 470 call a MIG device by its parent and its two instance ids."""
    match = _OLD_MIG.fullmatch(name)
    if match is None:
        return
    place = (int(match["gi"]), int(match["ci"]))
    for reading in readings:
        if reading.gpu.uuid.lower() == match["parent"].lower():
            for mig in reading.mig:
                if (mig.instance.gpu_instance_id, mig.instance.compute_instance_id) == place:
                    yield _slice(mig)


def _by_device_node(name: str, readings: Sequence[Reading]) -> Iterator[Device]:
    """GKE's plugin: nvidia0 is /dev/nvidia0, so the number is the minor number and not the index."""
    match = _GKE.fullmatch(name)
    if match is None:
        return
    for reading in _with_minor(int(match["minor"]), readings):
        if match["gi"] is None:
            yield _whole(reading)
        else:
            gpu_instance = int(match["gi"])
            yield from (_slice(mig) for mig in reading.mig if mig.instance.gpu_instance_id == gpu_instance)


def _by_pci_address(name: str, readings: Sequence[Reading]) -> Iterator[Device]:
    """AMD's plugin, and Intel's DRA driver with dashes and the model behind it.

    Of an AMD GPU in partitions the address is that of the first one.
    """
    address = _pci_address(_PCI_ID.fullmatch(name) or _DRA_INTEL.fullmatch(name))
    if address is None:
        return
    for reading in readings:
        if reading.gpu.vendor == "amd" and reading.mig:
            for mig in reading.mig:
                if _pci_address(_PCI_ID.fullmatch(mig.instance.device_name or "")) == address:
                    yield _slice(mig)
        elif _pci_address(_PCI_ID.fullmatch(reading.gpu.pci_bus_id or "")) == address:
            yield _whole(reading)


def _by_platform_device(name: str, readings: Sequence[Reading]) -> Iterator[Device]:
    """AMD's plugin: amdgpu_xcp_<n> is any but the first partition of a GPU, numbered over all GPUs."""
    for reading in readings:
        yield from (_slice(mig) for mig in reading.mig if mig.instance.device_name == name)


def _by_dra_name(name: str, readings: Sequence[Reading]) -> Iterator[Device]:
    """NVIDIA's DRA driver: gpu-<minor>, and gpu-<minor>-mig-<profile>-<profile id>-<placement>."""
    match = _DRA_NVIDIA.fullmatch(name)
    if match is None:
        return
    for reading in _with_minor(int(match["minor"]), readings):
        if match["profile"] is None:
            yield _whole(reading)
        else:
            # No reader knows placements: of two devices of one profile it cannot be told which it is.
            yield from (
                _slice(mig) for mig in reading.mig if _plain(mig.instance.profile) == _plain(match["profile"])
            )


def _by_dra_name_of_amd(name: str, readings: Sequence[Reading]) -> Iterator[Device]:
    """AMD's DRA driver: gpu-<card>-<render node>, of a GPU or of a partition."""
    match = _DRA_AMD.fullmatch(name)
    if match is None:
        return
    card = int(match["card"])
    for reading in readings:
        if reading.gpu.vendor != "amd":
            continue
        if not reading.mig and reading.gpu.minor_number == card:
            yield _whole(reading)
        yield from (_slice(mig) for mig in reading.mig if mig.instance.minor_number == card)


def _by_index(name: str, readings: Sequence[Reading]) -> Iterator[Device]:
    if re.fullmatch(r"[0-9]{1,4}", name):
        yield from (_whole(reading) for reading in readings if reading.gpu.index == int(name))


def _whole(reading: Reading) -> Device:
    return reading.gpu.index, reading.gpu.uuid


def _slice(mig: MigReading) -> Device:
    return mig.instance.parent_index, mig.instance.uuid


def _with_minor(minor: int, readings: Sequence[Reading]) -> Iterator[Reading]:
    return (
        reading
        for reading in readings
        if reading.gpu.vendor == "nvidia" and reading.gpu.minor_number == minor
    )


def _pci_address(match: re.Match[str] | None) -> tuple[int, ...] | None:
    return tuple(int(part, 16) for part in match.groups()) if match else None


def _plain(profile: str | None) -> str:
    """1g.10gb+me -> 1g10gbme: what is left of a profile's name in the name of a Kubernetes object."""
    return re.sub(r"[^0-9a-z]", "", (profile or "").lower())
