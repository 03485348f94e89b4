"""One row per GPU vendor: how its GPUs are found, read, named by Kubernetes and reset.

A reader is imported only when it is built or when its fields are listed: an unused reader costs no memory.
"""

# ruff: noqa: PLC0415

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from gputally.devices import Reader

_NOTHING = re.compile(r"(?!)")
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"


@dataclass(frozen=True, slots=True)
class ReaderSettings:
    """The settings that readers are built with."""

    procfs: Path = Path("/proc")
    sysfs: Path = Path("/sys")
    timeout_seconds: float = 5.0
    nvidia_smi: str = "nvidia-smi"
    nvidia_smi_rows: bool = False
    """Whether readings have the whole row that nvidia-smi printed."""
    rocm_smi: str = "rocm-smi"
    pcie_throughput: bool = False
    release_driver: bool = False
    accounting: bool = False
    skipped_fields: frozenset[str] = frozenset()
    """The fields of `Reading` that need not be read."""

    @property
    def command_seconds(self) -> float:
        """A little less than the timeout, so that a reader itself reports a command or GPU that hangs."""
        return self.timeout_seconds * 0.8


@dataclass(frozen=True, slots=True)
class ReaderRow:
    """One reader of a vendor's GPUs."""

    name: str
    """The value of --reader, and the `source` label."""
    build: Callable[[ReaderSettings], Reader]
    module: str
    """Its `FILLS` lists the fields that the reader can fill."""

    @property
    def fills(self) -> frozenset[str]:
        fills: frozenset[str] = import_module(self.module).FILLS
        return fills


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor:
    """Everything outside its readers that differs between GPU vendors.

    The defaults are those of an unknown vendor.
    """

    name: str
    """The `vendor` label, and `Gpu.vendor`."""
    title: str
    pci_vendor: str = ""
    """As in /sys/bus/pci/devices/*/vendor."""
    kernel_module: str = ""
    """modprobe loads it."""
    loaded_module: Callable[[Path, Path], str | None] = lambda sysfs, procfs: None  # noqa: ARG005
    """(sysfs, procfs) -> version or name of the loaded kernel module; None when it is not loaded."""
    only_own_module: bool = False
    """Whether GPUs that are bound to another kernel module are left out."""
    kernel_log: str = ""
    """The driver's messages in dmesg match this."""
    readers: tuple[ReaderRow, ...] = ()
    """Best first: the next one is read while the one before it is unavailable."""

    reset_command: str = ""
    persistence_command: str = ""
    """Turns persistence mode on."""
    device_files: tuple[str, ...] = ()
    """Patterns of the files in /dev that a reader opens for reading and writing."""
    no_gpus_fix: str = ""
    """What to do when a reader works and reports no GPU."""
    denied: Mapping[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    """Field of an error "permission" or "no_permission" -> what is missing without the permission, and how to
    give it."""

    partition_label: str = "Partition {number} {profile}"
    """A partition's name on the live page; {number} is its number on the GPU, {profile} its profile."""
    partitions_replace_gpu: bool = False
    """Whether the PCI address and the minor number of a partitioned GPU are those of its partitions."""
    proxy_process: str = ""
    """Beginning of the name of a process that runs the work of other processes."""
    unsampled: frozenset[str] = frozenset()
    """Fields of `ProcessSample` that no reader of this vendor fills."""
    sampled_seconds: float = math.inf
    """The longest time before a sample of which the driver knows the SM time of processes."""

    domain: str
    """The domain of its Kubernetes resources, DRA drivers and CDI devices."""
    resources: re.Pattern[str] = _NOTHING
    """Its Kubernetes resources that are GPUs."""
    pci_address_ids: bool = True
    """Whether a device id that is a PCI address can be one of its GPUs."""
    device_ids: re.Pattern[str] = _NOTHING
    """Device ids that are its GPUs whatever the resource is called."""
    device_names: tuple[re.Pattern[str], ...] = ()
    """Device ids by which a GPU is found. Groups: `parent` (uuid of the GPU), `minor`, `gi` and `ci`
    (ids of the GPU instance and the compute instance), `profile`, `pci` (PCI address, with dashes)."""

    @property
    def reset_fix(self) -> str:
        """What to do with a GPU that is lost."""
        return f"{self.reset_command}, else reboot the node" if self.reset_command else "reboot the node"


def _build_nvml(settings: ReaderSettings) -> Reader:
    from gputally.devices.nvml import NvmlReader

    return NvmlReader(
        pcie_throughput=settings.pcie_throughput,
        release_driver=settings.release_driver,
        accounting=settings.accounting,
        gpu_seconds=settings.command_seconds,
        skipped=settings.skipped_fields,
    )


def _build_nvidia_smi(settings: ReaderSettings) -> Reader:
    from gputally.devices.nvidia_smi import NvidiaSmiReader

    return NvidiaSmiReader(
        command=settings.nvidia_smi,
        timeout_seconds=settings.command_seconds,
        every_column=settings.nvidia_smi_rows,
    )


def _build_amdgpu(settings: ReaderSettings) -> Reader:
    from gputally.devices.amdgpu import AmdgpuReader

    return AmdgpuReader(settings.sysfs, settings.procfs, pcie_throughput=settings.pcie_throughput)


def _build_rocm_smi(settings: ReaderSettings) -> Reader:
    from gputally.devices.rocm_smi import RocmSmiReader

    return RocmSmiReader(settings.rocm_smi, timeout_seconds=settings.command_seconds)


def nvidia_module_version(_: Path, procfs: Path) -> str | None:
    """Version in /proc/driver/nvidia/version; None when the module is not loaded."""
    try:
        return parse_nvidia_version((procfs / "driver/nvidia/version").read_text())
    except (OSError, UnicodeDecodeError):
        return None


def parse_nvidia_version(text: str) -> str | None:
    match = re.search(r"NVRM version:.*?\s(\d+\.\d+(?:\.\d+)?)\s", text)
    return match[1] if match else None


def _amdgpu_module(sysfs: Path, _: Path) -> str | None:
    # A module that is built into the kernel may have no directory in /sys/module.
    signs = ("module/amdgpu", "class/kfd")
    return "amdgpu" if any((sysfs / sign).is_dir() for sign in signs) else None


NVIDIA = Vendor(
    name="nvidia",
    title="NVIDIA",
    pci_vendor="0x10de",
    kernel_module="nvidia",
    loaded_module=nvidia_module_version,
    kernel_log="nvrm",
    readers=(
        ReaderRow("nvml", _build_nvml, "gputally.devices.nvml"),
        ReaderRow("nvidia-smi", _build_nvidia_smi, "gputally.devices.nvidia_smi"),
    ),
    reset_command="nvidia-smi --gpu-reset",
    persistence_command="nvidia-smi -pm 1",
    device_files=("nvidia[0-9]*", "nvidiactl"),
    no_gpus_fix="in a container: use the NVIDIA runtime with NVIDIA_VISIBLE_DEVICES=all",
    denied={
        "processes": (
            "the driver denies the processes and the memory of GPUs in MIG mode, and sends no XID errors of "
            "them: the right to monitor MIG is missing",
            "in a pod: the preset mig; in a container NVIDIA_MIG_MONITOR_DEVICES=all and CAP_SYS_ADMIN; on a "
            "host read permission for /proc/driver/nvidia/capabilities/mig/monitor",
        ),
    },
    partition_label="MIG {profile}",
    proxy_process="nvidia-cuda-mps",  # nvidia-cuda-mps-server, of which the kernel keeps 15 characters
    sampled_seconds=12,  # except in accounting mode, with driver 610 and later
    domain="nvidia.com",
    resources=re.compile(r"nvidia\.com/.+"),
    pci_address_ids=False,  # in nvidia.com these are NICs, and GPUs passed to virtual machines
    device_ids=re.compile(rf"(?:GPU|MIG|MIG-GPU)-{_UUID}.*|nvidia\d+(?:/.*)?", re.IGNORECASE),
    device_names=(
        # Drivers before 470 name a MIG device by its parent and its two instance ids.
        re.compile(rf"MIG-(?P<parent>GPU-{_UUID})/(?P<gi>[0-9]{{1,4}})/(?P<ci>[0-9]{{1,4}})", re.IGNORECASE),
        # GKE's plugin: nvidia0 is /dev/nvidia0, so the number is the minor number and not the index.
        re.compile(r"nvidia(?P<minor>[0-9]{1,4})(?:/gi(?P<gi>[0-9]{1,4}))?(?:/vgpu[0-9]+)?"),
        # The DRA driver: gpu-<minor>, and gpu-<minor>-mig-<profile>-<profile id>-<placement>.
        re.compile(r"gpu-(?P<minor>[0-9]{1,4})(?:-mig-(?P<profile>.+)-[0-9]+-[0-9]+)?"),
        # Plugins that share a GPU number the shares of a uuid.
        re.compile(rf"(?P<parent>GPU-{_UUID})-(?:_-)?[0-9]+", re.IGNORECASE),
    ),
)

AMD = Vendor(
    name="amd",
    title="AMD",
    pci_vendor="0x1002",
    kernel_module="amdgpu",
    loaded_module=_amdgpu_module,
    only_own_module=True,  # radeon has old GPUs, vfio-pci those of virtual machines
    kernel_log="amdgpu",
    readers=(
        ReaderRow("amdgpu", _build_amdgpu, "gputally.devices.amdgpu"),
        ReaderRow("rocm-smi", _build_rocm_smi, "gputally.devices.rocm_smi"),
    ),
    reset_command="rocm-smi --gpureset",
    denied={
        "fdinfo": (
            "no permission to read the open files of other users: graphics and video processes and their GPU "
            "time are missing",
            "run as root, or give CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH",
        ),
        "kfd": (
            "the kernel hides GPUs of KFD: compute processes and partitions of these GPUs are missing",
            "allow the render devices: docker run --device-cgroup-rule 'c 226:* rw'; in a service "
            "DeviceAllow=char-drm rw; in a pod privileged: true",
        ),
    },
    partitions_replace_gpu=True,
    unsampled=frozenset({"memory_ratio"}),
    domain="amd.com",
    resources=re.compile(r"amd\.com/(?:gpu.*|[sdtqc]px(?:_nps\d+)?)"),  # partitions are named by their modes
    device_ids=re.compile(r"amdgpu_xcp[_.]\d+", re.IGNORECASE),
    # The DRA driver: gpu-<number of the DRM device>-<render node>, of a GPU or of a partition.
    device_names=(re.compile(r"gpu-(?P<minor>[0-9]{1,4})-[0-9]{1,4}"),),
)

# No reader: other sources can still say which pods requested or were allocated its GPUs.
INTEL = Vendor(
    name="intel",
    title="Intel",
    domain="intel.com",
    resources=re.compile(r"gpu\.intel\.com/(?!.*monitoring).+"),  # monitoring allocates no GPU
    # The DRA driver: <PCI address>-<PCI device id>.
    device_names=(re.compile(r"(?P<pci>[0-9a-f]{4,8}-[0-9a-f]{2}-[0-9a-f]{2}-[0-7])-0x[0-9a-f]+"),),
)

VENDORS = (NVIDIA, AMD)
"""In the order in which their GPUs are read. On a host without GPUs, the first vendor's readers are tried."""

ALL_VENDORS = (*VENDORS, INTEL)
"""Also those without a reader."""

READER_NAMES = tuple(reader.name for vendor in VENDORS for reader in vendor.readers)
"""The readers of GPUs, as in --reader."""

_BY_NAME = {vendor.name: vendor for vendor in ALL_VENDORS}


def vendor_of(name: str) -> Vendor:
    """The row of `Gpu.vendor`; a row without knowledge where there is none."""
    return _BY_NAME.get(name) or Vendor(name=name, title=name, domain=f"{name}.com")


def reader_row(name: str) -> ReaderRow:
    """The row of a value of --reader."""
    return next(row for vendor in VENDORS for row in vendor.readers if row.name == name)


def readers_that_fill(field: str) -> tuple[str, ...]:
    """The readers that can fill a field of `Reading`, or of another type of the model: "Process.name"."""
    return tuple(row.name for vendor in VENDORS for row in vendor.readers if field in row.fills)


def fields_filled(vendor: Vendor) -> frozenset[str]:
    """The fields that at least one reader of a vendor's GPUs can fill, named as in `readers_that_fill`."""
    return frozenset().union(*(row.fills for row in vendor.readers))
