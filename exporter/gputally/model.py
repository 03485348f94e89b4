"""What every part of the exporter speaks: frozen facts about GPUs at one moment.

Three rules hold everywhere. `None` means "this card, driver or reader cannot tell": no sample is
exported. Zero is a measured zero. Units are base units and stand in the field's name; the reader
converts, once. Energy alone stays in whole millijoules, as the driver counts it, so that sums of it
stay exact.

A field of type `Labelled` holds several values of one kind: the key is the tuple of label values, in
the order in which the catalog names the labels.
"""

from collections.abc import Mapping
from dataclasses import dataclass

Labels = tuple[str, ...]
Labelled = Mapping[Labels, float]


class Unavailable(Exception):
    """The source as a whole cannot be read now: no driver, no library, no tool, no permission."""

    def __init__(self, reason: str, fix: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.fix = fix


THROTTLE_REASONS = (
    "gpu_idle",
    "applications_clocks_setting",
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "display_clock_setting",
)
COMPUTE_MODES = ("default", "exclusive_thread", "prohibited", "exclusive_process")
RECOVERY_ACTIONS = (
    "none",
    "gpu_reset",
    "node_reboot",
    "drain_p2p",
    "drain_and_reset",
    "recover_imex_domain",
    "bus_reset",
    "system_reboot",
)


def state_set(states: tuple[str, ...], current: str) -> Labelled:
    """One value per state: 1 for the current one, 0 for the others."""
    return {(state,): float(state == current) for state in states}


@dataclass(frozen=True, slots=True)
class Gpu:
    """Who a GPU is: what stays the same while its driver is loaded."""

    uuid: str
    index: int
    vendor: str
    model: str
    pci_bus_id: str | None = None
    serial: str | None = None
    vbios_version: str | None = None
    driver_version: str | None = None
    cuda_version: str | None = None
    compute_capability: str | None = None
    minor_number: int | None = None
    simulated: bool = False
    metered_by: str | None = None
    """The uuid of the GPU whose meter measures this one too: of two dies in a package, one has a meter."""


ENERGY_SOURCES = ("counter", "integrated")


@dataclass(frozen=True, slots=True)
class MigInstance:
    """Who a MIG device is: one compute instance of one GPU instance of its parent.

    The partitions of an AMD GPU are told in the same way: `gpu_instance_id` is the partition's number.
    """

    uuid: str
    parent_uuid: str
    parent_index: int
    gpu_instance_id: int
    compute_instance_id: int
    profile: str | None = None
    device_name: str | None = None
    """What the kernel calls it, where it has a device of its own: 0000:c1:00.0, amdgpu_xcp_3."""
    minor_number: int | None = None


@dataclass(frozen=True, slots=True)
class Process:
    """A process that the driver lists on a GPU. `kind` joins its lists: compute, graphics, mps."""

    pid: int
    kind: str
    name: str | None = None
    memory_used_bytes: int | None = None
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """What one process did up to `timestamp_us` (microseconds since 1970, the driver's clock)."""

    pid: int
    timestamp_us: int
    sm_ratio: float
    memory_ratio: float | None
    encoder_ratio: float | None
    decoder_ratio: float | None
    covers_us: int = 0
    """How long a time the ratios are the mean of, without a gap or an overlap to the sample before it; 0
    where that cannot be told (the first look at a driver): such a sample says nothing about time."""


@dataclass(frozen=True, slots=True)
class AccountedProcess:
    """A process that has ended, as the driver's accounting keeps it."""

    pid: int
    started_us: int
    """Microseconds since 1970, as `ProcessSample.timestamp_us`."""
    ran_us: int
    sm_ratio: float
    """Mean over its life."""
    memory_peak_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Owner:
    """Whoever a process belongs to: a container of a pod, or something of the host."""

    kind: str
    """pod, docker, podman, containerd, container, lxc, slurm, service, session or process."""
    name: str = ""
    """What is no pod is named here, for people: docker/3f05ee050f82, slurm/42, service/ollama.service."""
    namespace: str = ""
    pod: str = ""
    container: str = ""
    """Empty where the pod is known but not which of its containers (Kata, gVisor)."""
    pod_uid: str = ""
    container_id: str = ""
    slurm_job: str = ""
    slurm_step: str = ""
    user: str = ""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A process whose owner cannot be told, and why: one of UNKNOWN_REASONS."""

    reason: str
    pod_uid: str = ""
    container_id: str = ""


UNKNOWN_REASONS = (
    "exited",  # gone before it could be looked up
    "zombie",
    "permission",  # /proc/<pid> may not be read
    "unreadable",  # it was read, and makes no sense
    "unstable",  # the pid was given to another process while it was looked up
    "ambiguous_pod",  # its cgroups name two pods
    "unknown_pod",  # its pod's UID is known, but no source knows the pod's name
    "unknown_container",  # it is in a container of Kubernetes that no source knows
    "mediated",  # the MPS server, which speaks for others
    "pid_namespace",  # no pid at all is to be seen: the exporter does not share the host's pid namespace
)


@dataclass(frozen=True, slots=True)
class Use:
    """What one owner does on one device (a GPU or a MIG device)."""

    gpu_index: int
    uuid: str
    owner: Owner | Unknown
    processes: int
    memory_used_bytes: int | None = None
    sm_ratio: float | None = None
    memory_ratio: float | None = None
    encoder_ratio: float | None = None
    decoder_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Resident:
    """A process on a device (a GPU or a MIG device) since the last look, and whose it is."""

    gpu_index: int
    uuid: str
    process: Process
    owner: Owner | Unknown
    samples: tuple[ProcessSample, ...] | None = None
    """None where the driver does not sample processes; empty when it did not run."""
    started_at_seconds: float | None = None
    ended: bool = False
    """It ran since the last look and is gone from the driver's list."""

    def mean_ratio(self, field: str) -> float | None:
        """The mean of one ratio over its samples; 0 when it did not run, None where it is not measured."""
        if self.samples is None:
            return None
        if not self.samples:
            return 0.0
        ratios = [ratio for sample in self.samples if (ratio := getattr(sample, field)) is not None]
        return sum(ratios) / len(ratios) if ratios else None


@dataclass(frozen=True, slots=True)
class PodOnGpu:
    """A pod that uses or holds a device of this node."""

    namespace: str
    pod: str
    pod_uid: str = ""
    node: str = ""
    workload: str = ""
    """Its topmost owner, as Kind/name."""
    requested: bool | None = None
    """Whether the kubelet gave it a device; None when no source can tell."""
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """How busy the parts of a GPU, or of a MIG instance, were since the last reading (NVML GPM)."""

    graphics_active_ratio: float | None = None
    sm_active_ratio: float | None = None
    sm_occupancy_ratio: float | None = None
    tensor_active_ratio: float | None = None
    dram_active_ratio: float | None = None
    fp64_active_ratio: float | None = None
    fp32_active_ratio: float | None = None
    fp16_active_ratio: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MigReading(Activity):
    """One MIG device, or one partition of an AMD GPU, at one moment."""

    instance: MigInstance
    multiprocessors: int | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    memory_free_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    processes: tuple[Process, ...] | None = None
    process_samples: tuple[ProcessSample, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading(Activity):
    """One GPU at one moment. `up` is false when the GPU is lost: then little but `gpu` is known."""

    gpu: Gpu
    up: bool = True

    gpu_utilization_ratio: float | None = None
    memory_utilization_ratio: float | None = None
    encoder_utilization_ratio: float | None = None
    decoder_utilization_ratio: float | None = None
    jpeg_utilization_ratio: float | None = None
    ofa_utilization_ratio: float | None = None

    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    memory_free_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    memory_visible_total_bytes: int | None = None
    memory_visible_used_bytes: int | None = None
    gtt_total_bytes: int | None = None
    gtt_used_bytes: int | None = None
    bar1_total_bytes: int | None = None
    bar1_used_bytes: int | None = None
    bar1_free_bytes: int | None = None

    power_watts: float | None = None
    power_limit_watts: float | None = None
    power_enforced_limit_watts: float | None = None
    power_default_limit_watts: float | None = None
    power_min_limit_watts: float | None = None
    power_max_limit_watts: float | None = None
    energy_millijoules: int | None = None

    temperature_celsius: float | None = None
    memory_temperature_celsius: float | None = None
    temperature_slowdown_celsius: float | None = None
    temperature_shutdown_celsius: float | None = None
    temperature_margin_celsius: float | None = None
    sensor_celsius: Labelled | None = None  # sensor
    sensor_critical_celsius: Labelled | None = None  # sensor

    clock_hertz: Labelled | None = None  # domain
    clock_max_hertz: Labelled | None = None  # domain
    clock_application_hertz: Labelled | None = None  # domain
    fan_speed_ratio: Labelled | None = None  # fan
    performance_state: int | None = None
    throttle_active: Labelled | None = None  # reason
    throttle_seconds: Labelled | None = None  # reason

    ecc_errors: Labelled | None = None  # type, lifetime
    ecc_location_errors: Labelled | None = None  # type, lifetime, location
    retired_pages: Labelled | None = None  # cause
    retired_pages_pending: bool | None = None
    remapped_rows: Labelled | None = None  # cause
    remapped_rows_pending: bool | None = None
    remapped_rows_failure: bool | None = None
    remap_banks: Labelled | None = None  # availability

    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    pcie_replays: int | None = None
    pcie_throughput_bytes_per_second: Labelled | None = None  # direction

    nvlink_up: Labelled | None = None  # link
    nvlink_errors: Labelled | None = None  # link, type
    nvlink_bytes: Labelled | None = None  # direction

    ras_errors: Labelled | None = None  # block, type
    xgmi_bytes: Labelled | None = None  # link, direction
    xgmi_up: Labelled | None = None  # link

    xid_errors: Labelled | None = None  # xid
    xid_last_timestamp_seconds: Labelled | None = None  # xid
    recovery_action: Labelled | None = None  # action

    persistence_mode: bool | None = None
    accounting_mode: bool | None = None
    ecc_mode: bool | None = None
    mig_mode: bool | None = None
    compute_mode: Labelled | None = None  # mode

    processes: tuple[Process, ...] | None = None
    process_samples: tuple[ProcessSample, ...] | None = None
    accounted: tuple[AccountedProcess, ...] | None = None
    """Processes that ended since the last look, where the driver's accounting is asked for and on."""
    mig: tuple[MigReading, ...] = ()

    def lost(self) -> "Reading":
        """What is left to say when the GPU does not answer any more: who it is, and its last XID errors."""
        return Reading(
            gpu=self.gpu,
            up=False,
            xid_errors=self.xid_errors,
            xid_last_timestamp_seconds=self.xid_last_timestamp_seconds,
        )


BASES = ("measured", "shared", "held")
UNATTRIBUTED = ("idle", "unknown", "unobserved", "initial", "expired")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuBook:
    """The energy of one GPU, and the part of it that no owner in the books was charged for."""

    gpu_index: int
    uuid: str
    began_at_seconds: float
    energy_source: str
    """One of ENERGY_SOURCES: the hardware's counter, or its power over time where it has none."""
    energy_millijoules: int
    unattributed_millijoules: Labelled  # reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """What one owner was charged on one device (a GPU or a MIG device)."""

    gpu_index: int
    uuid: str
    owner: Owner
    active: bool
    """Whether it holds or uses the device now."""
    energy_millijoules: Labelled | None = None  # basis
    held_microseconds: int = 0
    busy_microseconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessCharge:
    """What one process does on one device, and its part of its owner's charge."""

    gpu_index: int
    uuid: str
    pid: int
    name: str
    owner: Owner | Unknown
    active: bool
    started_at_seconds: float | None = None
    memory_used_bytes: int | None = None
    sm_ratio: float | None = None
    memory_ratio: float | None = None
    energy_millijoules: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """How one source of facts fares: what `gputally_source_*` says of it."""

    name: str
    up: bool
    reason: str = ""
    """Why it is not up, in one line; empty when it is."""
    fix: str = ""
    """What a person can do about it; empty when nothing is known to help."""
    gpus: int = 0
    duration_seconds: float | None = None
    last_success_seconds: float | None = None
    failures: int = 0
    overruns: int = 0
    errors: Mapping[tuple[str, str], int] | None = None
    """(field, error) -> how often that field could not be read, or was dropped as implausible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All that is known at one moment; immutable, shared by every scraper."""

    taken_at_seconds: float
    age_seconds: float
    """Age of the oldest reading in it: 0 when every source has just answered."""
    readings: tuple[Reading, ...]
    sources: tuple[SourceState, ...]
    uses: tuple[Use, ...] = ()
    """Who does what on which device."""
    books: tuple[GpuBook, ...] = ()
    charges: tuple[Charge, ...] = ()
    processes: tuple[ProcessCharge, ...] = ()
    """Each process, where they are asked for."""
    pods: tuple[PodOnGpu, ...] = ()
    """The pods among them."""
    node_labels: tuple[tuple[str, str], ...] = ()
    """Labels of this node in Kubernetes that may be shown."""
