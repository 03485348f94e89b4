"""The frozen dataclasses that every part of the exporter exchanges, with the metric that each field fills.

Three rules hold everywhere. `None` means "not supported by this GPU, driver or reader": no sample is
exported. Zero is a measured zero. Units are base units and part of the field's name; the reader
converts, once. Energy and time that are summed up stay whole millijoules and microseconds, so that the
sums are exact; the catalogue exports them as joules and seconds.

A field of type `Labelled` holds several values of one kind: the key is the tuple of label values, in
the order of the labels of its declaration.

A field that is exported declares its metric: `gauge` or `counter` where it may be None, `several` where it
fills more than one, else `metric`. `LABEL` makes a field a label of its class's info metric.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gputally.declarations import (
    CORE,
    LABEL,
    STANDARD,
    Group,
    active,
    active_or_none,
    counter,
    gauge,
    info_label,
    metric,
    over_first,
    several,
    total,
    up_and_down,
)
from gputally.declarations import Labelled as Labelled  # noqa: PLC0414  # others import it from here
from gputally.declarations import Labels as Labels  # noqa: PLC0414

DeviceKey = tuple[int, str]
"""Index of the GPU, and the uuid of the GPU or of its MIG device."""


class Unavailable(Exception):
    """The source as a whole cannot be read now: no driver, no library, no tool, no permission."""

    def __init__(self, reason: str, fix: str = "", exit_code: int | None = None) -> None:
        """`exit_code` is that of the command that failed."""
        super().__init__(reason)
        self.reason = reason
        self.fix = fix
        self.exit_code = exit_code


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
SLOWDOWNS = (
    "sw_power_cap",
    "hw_slowdown",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
)
"""The throttle reasons that no user has set."""
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

FABRIC_STATES = ("not_supported", "not_started", "in_progress", "completed")
FABRIC_PROBLEMS = (
    "degraded_bandwidth",
    "route_recovery",
    "route_unhealthy",
    "access_timeout_recovery",
    "incorrect_configuration",
)


def state_set(states: tuple[str, ...], current: str) -> Labelled:
    """One value per state: 1 for the current one, 0 for the others."""
    return {(state,): float(state == current) for state in states}


@dataclass(frozen=True, slots=True)
class Gpu:
    """Identity of a GPU: what stays the same while its driver is loaded."""

    uuid: str
    index: int
    vendor: str = field(metadata=LABEL)
    model: str = field(metadata=LABEL)
    pci_bus_id: str | None = field(default=None, metadata=LABEL)
    serial: str | None = field(default=None, metadata=LABEL)
    vbios_version: str | None = field(default=None, metadata=LABEL)
    driver_version: str | None = field(default=None, metadata=LABEL)
    cuda_version: str | None = field(default=None, metadata=LABEL)
    compute_capability: str | None = field(default=None, metadata=LABEL)
    minor_number: int | None = field(default=None, metadata=LABEL)
    simulated: bool = field(default=False, metadata=LABEL)
    metered_by: str | None = None
    """The uuid of the GPU whose energy meter includes this one: of two dies in a package, one has a meter."""


@dataclass(frozen=True, slots=True)
class MigInstance:
    """Identity of a MIG device: one compute instance of one GPU instance of its parent.

    A partition of an AMD GPU has the same form: `gpu_instance_id` is the partition's number.
    """

    uuid: str
    parent_uuid: str = field(metadata=LABEL)
    parent_index: int
    gpu_instance_id: int = field(metadata=info_label("gpu_instance"))
    compute_instance_id: int = field(metadata=info_label("compute_instance"))
    profile: str | None = field(default=None, metadata=LABEL)
    device_name: str | None = None
    """The kernel's name, where it has a device of its own: 0000:c1:00.0, amdgpu_xcp_3."""
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


def _count_by_kind(processes: Sequence[Process]) -> Labelled:
    """Processes of each kind; compute is always included, so that a GPU without processes has a 0."""
    counts: dict[Labels, float] = {("compute",): 0}
    for process in processes:
        counts[process.kind,] = counts.get((process.kind,), 0) + 1
    return counts


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """Activity of one process up to `timestamp_us` (microseconds since 1970, the driver's clock)."""

    pid: int
    timestamp_us: int
    sm_ratio: float
    memory_ratio: float | None
    encoder_ratio: float | None
    decoder_ratio: float | None
    covers_us: int = 0
    """The time of which the ratios are the mean; 0 where it is unknown (the first sample of a driver)."""


@dataclass(frozen=True, slots=True)
class AccountedProcess:
    """A process that has ended, from the driver's accounting."""

    pid: int
    started_us: int
    """Microseconds since 1970, as `ProcessSample.timestamp_us`."""
    ran_us: int
    sm_ratio: float
    """Mean over its life."""
    memory_peak_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a process: a container of a pod, or a non-pod owner on the host."""

    kind: str
    """pod, docker, podman, containerd, container, lxc, slurm, service, session or process."""
    name: str = ""
    """Name of a non-pod owner: docker/3f05ee050f82, slurm/42, service/ollama.service."""
    namespace: str = ""
    pod: str = ""
    container: str = ""
    """Empty where only the pod is known, not the container (Kata, gVisor)."""
    pod_uid: str = ""
    container_id: str = ""
    slurm_job: str = ""
    slurm_step: str = ""
    user: str = ""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The owner of a process that could not be attributed; the reason is one of UNKNOWN_REASONS."""

    reason: str
    pod_uid: str = ""
    container_id: str = ""


UNKNOWN_REASONS = (
    "exited",  # before its owner was resolved
    "zombie",
    "permission",  # no permission to read /proc/<pid>
    "unreadable",  # /proc/<pid> could not be parsed
    "unstable",  # the pid was reused while its owner was resolved
    "ambiguous_pod",  # its cgroups name two pods
    "unknown_pod",  # the UID of its pod is known, the name is in no pod source
    "unknown_container",  # its Kubernetes container is in no pod source
    "limit",  # more processes than are looked up
    "pid_namespace",  # no pid is visible: the exporter does not share the host's pid namespace
)


@dataclass(frozen=True, slots=True)
class Use:
    """Current use of one device (a GPU or a MIG device) by one owner."""

    gpu_index: int
    uuid: str
    owner: Owner | Unknown
    processes: int = field(metadata=metric("Processes of {owner} on the device.", set=STANDARD))
    memory_used_bytes: int | None = gauge("Device memory allocated by the processes of {owner}.", set=CORE)
    sm_ratio: float | None = gauge(
        "SM utilisation of {owner}: the sum over its processes of their mean since the last sample. "
        "Absent on MIG devices, where the driver does not sample processes, and for MPS clients of several "
        "owners.",
        name="sm_utilization_ratio",
        set=CORE,
    )
    memory_ratio: float | None = gauge(
        "Memory bandwidth utilisation of {owner}, computed like SM utilisation.",
        name="memory_utilization_ratio",
    )
    encoder_ratio: float | None = gauge(
        "Video encoder utilisation of {owner}, computed like SM utilisation.",
        name="encoder_utilization_ratio",
    )
    decoder_ratio: float | None = gauge(
        "Video decoder utilisation of {owner}, computed like SM utilisation.",
        name="decoder_utilization_ratio",
    )


@dataclass(frozen=True, slots=True)
class Resident:
    """A process on a device (a GPU or a MIG device) since the last sample, and its owner."""

    gpu_index: int
    uuid: str
    process: Process
    owner: Owner | Unknown
    samples: tuple[ProcessSample, ...] | None = None
    """None where the driver does not sample processes; empty when it did not run."""
    started_at_seconds: float | None = None
    ended: bool = False
    """It ran since the last sample and is no longer in the driver's list."""
    mediated: bool = False
    """An MPS server runs its work: its samples are an estimate, its part of the server's, or None."""

    def mean_ratio(self, field: str) -> float | None:
        """The mean of one ratio over its samples; 0 when it did not run, None where it is not measured."""
        if self.samples is None or self.mediated:
            return None
        if not self.samples:
            return 0.0
        ratios = [ratio for sample in self.samples if (ratio := getattr(sample, field)) is not None]
        return sum(ratios) / len(ratios) if ratios else None


@dataclass(frozen=True, slots=True)
class PodInfo:
    """One pod, as far as the pod sources report it; an empty field is not known."""

    namespace: str
    pod: str
    pod_uid: str = field(default="", metadata=LABEL)
    """As in the cgroup path: for a static pod the hash of its configuration."""
    node: str = field(default="", metadata=LABEL)
    workload: str = field(default="", metadata=LABEL)
    """Its topmost owner, as Kind/name."""
    requested: bool | None = field(default=None, metadata=LABEL)
    """Whether its specification requests a GPU, or the kubelet allocated one to it; None if unknown."""
    labels: tuple[tuple[str, str], ...] = ()
    full_name_labels: int = 0
    """How many of these, the first ones, are allowed by their full names."""
    containers: Mapping[str, str] = field(default_factory=dict)
    """Container id (64 hexadecimal digits) -> container name."""
    container_names: tuple[str, ...] = ()
    """All its containers; empty if any of them may be missing."""
    phase: str = ""
    """Pending, Running, Succeeded, Failed or Unknown."""
    started_at_seconds: float | None = None
    """When the kubelet accepted it, which is also when it allocated devices to it."""
    claim: str = field(default="", metadata=LABEL)
    """The ResourceClaims of its GPUs (dynamic resource allocation), separated by commas."""
    claim_request: str = field(default="", metadata=LABEL)
    """The requests in these claims that its containers name, separated by commas."""
    claim_requests: tuple[tuple[str, str], ...] = ()
    """ResourceClaim and request in it, for each request that a container names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """Activity of the parts of a GPU or MIG device since the last sample (NVML GPM)."""

    graphics_active_ratio: float | None = gauge(
        "Share of time in which any graphics or compute engine was active.", group=Group.UTILIZATION
    )
    sm_active_ratio: float | None = gauge(
        "Share of time in which a multiprocessor had at least one warp, averaged over all of them.",
        group=Group.UTILIZATION,
        set=CORE,
    )
    sm_occupancy_ratio: float | None = gauge(
        "Warps resident on the multiprocessors as a share of the maximum.", group=Group.UTILIZATION
    )
    tensor_active_ratio: float | None = gauge(
        "Share of time in which the tensor cores were active.", group=Group.UTILIZATION, set=CORE
    )
    dram_active_ratio: float | None = gauge(
        "Share of time in which the device memory interface transferred data.",
        group=Group.UTILIZATION,
        set=CORE,
    )
    fp64_active_ratio: float | None = gauge(
        "Share of time in which the FP64 pipe was active.", group=Group.UTILIZATION
    )
    fp32_active_ratio: float | None = gauge(
        "Share of time in which the FP32 pipe was active.", group=Group.UTILIZATION
    )
    fp16_active_ratio: float | None = gauge(
        "Share of time in which the FP16 pipe was active.", group=Group.UTILIZATION
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MigReading(Activity):
    """One MIG device, or one partition of an AMD GPU, at one moment."""

    instance: MigInstance
    graphics_active_ratio: float | None = gauge(
        "Share of time in which any graphics or compute engine of the MIG device was active.", set=STANDARD
    )
    multiprocessors: int | None = gauge("Multiprocessors of the MIG device.")
    memory_total_bytes: int | None = gauge("Device memory of the MIG device.", set=STANDARD)
    memory_used_bytes: int | None = gauge("Device memory allocated by processes on the MIG device.")
    memory_free_bytes: int | None = gauge("Free device memory of the MIG device.", set=STANDARD)
    memory_reserved_bytes: int | None = gauge(
        "Device memory of the MIG device reserved by driver and firmware."
    )
    processes: tuple[Process, ...] | None = gauge(
        "Processes that the driver lists on the MIG device.", "kind", set=STANDARD, view=_count_by_kind
    )
    process_samples: tuple[ProcessSample, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading(Activity):
    """One GPU at one moment. `up` is false when the GPU is lost: then little but `gpu` is known."""

    gpu: Gpu
    up: bool = field(
        default=True,
        metadata=metric(
            "1 when the GPU was read for this snapshot, or at most --max-age before if it hangs; 0 when it "
            "is lost, or hangs for longer.",
            group=Group.GPU,
            set=CORE,
        ),
    )
    late: bool = False
    """It did not respond in time: a reader returns it with `up` false, and the last reading replaces it until
    that is too old."""
    read_at_us: int | None = field(default=None, compare=False)
    """When it was read, by the monotonic clock; None where that is the end of the whole sample."""

    gpu_utilization_ratio: float | None = gauge(
        "Share of the driver's last sample period in which at least one kernel ran.",
        name="utilization_ratio",
        group=Group.UTILIZATION,
        set=CORE,
    )
    memory_utilization_ratio: float | None = gauge(
        "Share of the driver's last sample period in which device memory was read or written.",
        group=Group.UTILIZATION,
        set=STANDARD,
    )
    encoder_utilization_ratio: float | None = gauge("Video encoder utilisation.", group=Group.UTILIZATION)
    decoder_utilization_ratio: float | None = gauge("Video decoder utilisation.", group=Group.UTILIZATION)
    jpeg_utilization_ratio: float | None = gauge("JPEG engine utilisation.", group=Group.UTILIZATION)
    ofa_utilization_ratio: float | None = gauge(
        "Optical flow accelerator utilisation.", group=Group.UTILIZATION
    )

    memory_total_bytes: int | None = gauge("Device memory of the GPU.", group=Group.MEMORY, set=CORE)
    memory_used_bytes: int | None = gauge(
        "Device memory allocated by processes, without memory_reserved_bytes.", group=Group.MEMORY, set=CORE
    )
    memory_free_bytes: int | None = gauge("Free device memory.", group=Group.MEMORY, set=CORE)
    memory_reserved_bytes: int | None = gauge(
        "Device memory reserved by driver and firmware.", group=Group.MEMORY
    )
    memory_visible_total_bytes: int | None = gauge(
        "Device memory that the CPU can access (AMD).", group=Group.MEMORY, set=STANDARD
    )
    memory_visible_used_bytes: int | None = gauge(
        "Used device memory that the CPU can access (AMD).", group=Group.MEMORY, set=STANDARD
    )
    gtt_total_bytes: int | None = gauge("Host memory available to the GPU (GTT, AMD).", group=Group.MEMORY)
    gtt_used_bytes: int | None = gauge(
        "Host memory used by the GPU (GTT, AMD).", group=Group.MEMORY, set=STANDARD
    )
    bar1_total_bytes: int | None = gauge("Size of the BAR1 window.", group=Group.MEMORY)
    bar1_used_bytes: int | None = gauge("Mapped part of the BAR1 window.", group=Group.MEMORY)
    bar1_free_bytes: int | None = gauge("Unmapped part of the BAR1 window.", group=Group.MEMORY)

    power_watts: float | None = gauge(
        "Power draw: NVIDIA reports a one-second mean, or the instantaneous value on GA100 and older; "
        "AMD a mean where the driver has one.",
        group=Group.POWER,
        set=CORE,
    )
    power_limit_watts: float | None = gauge(
        "Power limit set by the administrator.", group=Group.POWER, set=STANDARD
    )
    power_enforced_limit_watts: float | None = gauge(
        "Power limit in force: the lowest of all limits.", group=Group.POWER, set=STANDARD
    )
    power_default_limit_watts: float | None = gauge("Power limit after a reset.", group=Group.POWER)
    power_min_limit_watts: float | None = gauge("Lowest power limit that can be set.", group=Group.POWER)
    power_max_limit_watts: float | None = gauge("Highest power limit that can be set.", group=Group.POWER)
    energy_millijoules: int | None = None
    """The hardware's counter; the ledger exports it."""

    temperature_celsius: float | None = gauge("Core temperature.", group=Group.TEMPERATURE, set=CORE)
    memory_temperature_celsius: float | None = gauge("Memory temperature.", group=Group.TEMPERATURE, set=CORE)
    memory_temperature_limit_celsius: float | None = gauge(
        "Memory temperature up to which the GPU is specified to work (NVIDIA). Absent where the driver "
        "reports none: for newer GPUs it has relative limits only.",
        group=Group.TEMPERATURE,
        set=STANDARD,
    )
    temperature_slowdown_celsius: float | None = gauge(
        "Core temperature at which the hardware slows down.", group=Group.TEMPERATURE, set=STANDARD
    )
    temperature_shutdown_celsius: float | None = gauge(
        "Core temperature at which the hardware shuts down.", group=Group.TEMPERATURE
    )
    temperature_margin_celsius: float | None = gauge(
        "Margin to the temperature at which the GPU slows down (T.Limit without the card's own offset, which "
        "the reader nvidia-smi does not know); 0 or less while it is exceeded.",
        group=Group.TEMPERATURE,
        set=STANDARD,
    )
    temperature_slowdown_offset_celsius: float | None = None
    """The card's own offset: T.Limit where it slows down, for example -2."""
    sensor_celsius: Labelled | None = gauge(
        "Temperature of each sensor: edge, junction (the hottest spot), mem and others (AMD).",
        "sensor",
        group=Group.TEMPERATURE,
        set=STANDARD,
    )
    sensor_critical_celsius: Labelled | None = gauge(
        "Temperature of the sensor at which the GPU slows down (AMD).",
        "sensor",
        group=Group.TEMPERATURE,
        set=STANDARD,
    )

    clock_hertz: Labelled | None = gauge(
        "Current clock.", "domain", group=Group.CLOCKS, set=CORE, usual=("graphics", "memory")
    )
    clock_max_hertz: Labelled | None = gauge("Maximum clock.", "domain", group=Group.CLOCKS)
    clock_application_hertz: Labelled | None = gauge(
        "Clock configured for applications.", "domain", group=Group.CLOCKS
    )
    fan_speed_ratio: Labelled | None = gauge(
        "Fan speed as a share of its maximum.", "fan", group=Group.TEMPERATURE
    )
    performance_state: int | None = gauge(
        "Performance state (P-state): 0 is the fastest, 15 the slowest.", group=Group.CLOCKS
    )
    throttle_active: Labelled | None = gauge(
        "1 while the clocks are throttled for this reason.",
        "reason",
        group=Group.CLOCKS,
        set=STANDARD,
        usual=SLOWDOWNS,
    )
    throttle_seconds: Labelled | None = counter(
        "Time for which the clocks were throttled for this reason, by the driver's count.",
        "reason",
        group=Group.CLOCKS,
    )

    ecc_errors: Labelled | None = counter(
        "ECC errors; lifetime volatile counts since the driver was loaded, aggregate since manufacture.",
        "type",
        "lifetime",
        group=Group.ECC,
        set=STANDARD,
    )
    ecc_location_errors: Labelled | None = counter(
        "ECC errors by location on the chip.", "type", "lifetime", "location", group=Group.ECC
    )
    ras_errors: Labelled | None = counter(
        "Errors by block of the chip since the driver was loaded (AMD RAS); deferred errors become "
        "uncorrected when the data is used.",
        "block",
        "type",
        group=Group.ECC,
        set=STANDARD,
    )
    retired_pages: Labelled | None = gauge(
        "Retired memory pages by cause (GPUs before Ampere).", "cause", group=Group.ECC, set=STANDARD
    )
    retired_pages_pending: bool | None = gauge(
        "1 when pages are retired at the next reset.", group=Group.ECC, set=STANDARD
    )
    remapped_rows: Labelled | None = gauge(
        "Memory rows replaced by spare rows, by cause (Ampere and newer).", "cause", group=Group.ECC, set=CORE
    )
    remapped_rows_pending: bool | None = gauge(
        "1 when rows are remapped at the next reset.", group=Group.ECC, set=STANDARD
    )
    remapped_rows_failure: bool | None = gauge(
        "1 when a row could not be remapped: replace the GPU.", group=Group.ECC, set=CORE
    )
    remap_banks: Labelled | None = gauge(
        "Memory banks by the number of spare rows left.",
        "availability",
        group=Group.ECC,
        set=STANDARD,
        usual=("low", "none"),
    )

    pcie_generation: int | None = gauge(
        "Current PCIe generation of the link.", group=Group.PCIE, set=STANDARD
    )
    pcie_generation_max: int | None = gauge(
        "Highest PCIe generation of this GPU in this slot.", group=Group.PCIE
    )
    pcie_width: int | None = gauge("PCIe lanes in use.", group=Group.PCIE, set=STANDARD)
    pcie_width_max: int | None = gauge("Maximum number of PCIe lanes.", group=Group.PCIE, set=STANDARD)
    pcie_replays: int | None = counter("Retransmitted PCIe packets.", group=Group.PCIE, set=CORE)
    pcie_throughput_bytes_per_second: Labelled | None = gauge(
        "PCIe throughput: the mean since the last sample on NVIDIA GPUs from Hopper on. On others over 20 ms "
        "(AMD: one second), and only with --pcie-throughput, because the read blocks.",
        "direction",
        group=Group.PCIE,
        set=CORE,
    )

    nvlink_up: Labelled | None = several(
        metric(
            "NVLinks of the GPU by state; read once a minute.",
            "state",
            name="nvlinks",
            group=Group.NVLINK,
            set=STANDARD,
            view=up_and_down,
        ),
        metric("1 when the NVLink is active; read once a minute.", "link", group=Group.NVLINK),
    )
    nvlink_errors: Labelled | None = several(
        metric(
            "NVLink errors by type, the sum over all links; read once a minute.",
            "type",
            counter=True,
            group=Group.NVLINK,
            set=STANDARD,
            view=over_first,
        ),
        metric(
            "NVLink errors by link, read once a minute.",
            "link",
            "type",
            name="nvlink_link_errors",
            counter=True,
            group=Group.NVLINK,
        ),
    )
    nvlink_bytes: Labelled | None = counter(
        "Data transferred over all NVLinks of the GPU.", "direction", group=Group.NVLINK, set=CORE
    )
    fabric_state: int | None = gauge(
        "State of the GPU's registration with the NVLink fabric: 1 not started, 2 in progress, 3 completed. "
        "Absent on GPUs without a fabric.",
        group=Group.NVLINK,
        set=STANDARD,
    )
    fabric_status: int | None = gauge(
        "Result of the registration with the NVLink fabric, as an NVML return code: 0 is success. Absent "
        "until it is completed.",
        group=Group.NVLINK,
        set=STANDARD,
    )
    fabric_problem: Labelled | None = gauge(
        "1 while the NVLink fabric has this problem at the GPU; the problem is none without one. Absent "
        "where the driver does not report it.",
        "problem",
        group=Group.NVLINK,
        set=STANDARD,
        view=active_or_none,
    )
    fabric_clique: Labelled | None = gauge(
        "Clique of the GPU in its NVLink fabric. GPUs with the same cluster and clique reach each other over "
        "NVLink. Absent until it is registered.",
        "fabric_cluster",
        group=Group.NVLINK,
    )
    xgmi_up: Labelled | None = several(
        metric(
            "XGMI links of the GPU by state.",
            "state",
            name="xgmi_links",
            group=Group.XGMI,
            set=STANDARD,
            view=up_and_down,
        ),
        metric("1 when the XGMI link is active.", "link", group=Group.XGMI),
    )
    xgmi_bytes: Labelled | None = several(
        metric(
            "Data transferred over all XGMI links of the GPU.",
            "direction",
            counter=True,
            group=Group.XGMI,
            set=CORE,
            view=over_first,
        ),
        metric(
            "Data transferred over each XGMI link of the GPU.",
            "link",
            "direction",
            name="xgmi_link_bytes",
            counter=True,
            group=Group.XGMI,
        ),
    )

    xid_errors: Labelled | None = several(
        metric(
            "XID errors since the exporter started. Absent where the driver does not report them.",
            counter=True,
            group=Group.XID,
            set=CORE,
            view=total,
        ),
        # A gauge, because a counter would have its first value without a zero before it.
        metric(
            "XID errors of this code since the exporter started. Absent until the first one.",
            "xid",
            name="xid_code_errors",
            group=Group.XID,
            set=STANDARD,
        ),
    )
    xid_last_timestamp_seconds: Labelled | None = gauge(
        "Unix time of the last XID error of this code.", "xid", group=Group.XID, set=STANDARD
    )
    recovery_action: Labelled | None = gauge(
        "1 for the action that the driver requests to recover the GPU.",
        "action",
        group=Group.XID,
        set=STANDARD,
        view=active,
    )

    persistence_mode: bool | None = gauge("1 when persistence mode is on.", group=Group.MODES, set=STANDARD)
    accounting_mode: bool | None = gauge("1 when accounting mode is on.", group=Group.MODES)
    ecc_mode: bool | None = gauge("1 when ECC is on.", group=Group.MODES, set=STANDARD)
    mig_mode: bool | None = gauge("1 when MIG is on.", group=Group.MODES, set=STANDARD)
    compute_mode: Labelled | None = gauge(
        "1 for the current compute mode.", "mode", group=Group.MODES, view=active
    )

    processes: tuple[Process, ...] | None = gauge(
        "Processes that the driver lists on the GPU; kind joins its lists: compute+mps.",
        "kind",
        group=Group.GPU,
        set=CORE,
        view=_count_by_kind,
    )
    process_samples: tuple[ProcessSample, ...] | None = None
    accounted: tuple[AccountedProcess, ...] | None = None
    """Processes that ended since the last sample, where the driver's accounting is requested and on."""
    mig: tuple[MigReading, ...] = ()

    # For profiles of --compat only.
    nvlink_bytes_per_second: float | None = None
    """Both directions, since the sample before; None at the first one. In PromQL: rate() of the counter."""
    nvidia_smi_row: Mapping[str, str] | None = None
    """Header -> cell of every column, as nvidia-smi printed them."""
    nvidia_smi_names: Mapping[int, str] | None = None
    """Pid -> name, as nvidia-smi printed it."""

    def lost(self) -> "Reading":
        """The reading of this GPU once it is lost: its identity and its XID errors."""
        return Reading(
            gpu=self.gpu,
            up=False,
            xid_errors=self.xid_errors,
            xid_last_timestamp_seconds=self.xid_last_timestamp_seconds,
        )


BASES = ("measured", "shared", "held")
UNATTRIBUTED = ("idle", "unknown", "unobserved", "initial", "expired")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLedger:
    """The energy of one GPU, and the part of it that is unattributed."""

    gpu_index: int
    uuid: str
    energy_source: str = field(metadata=LABEL)
    """`counter`: the hardware's own; `integrated`: its power over time, where it has no counter."""
    energy_millijoules: int = field(
        metadata=metric(
            "Energy used, by the hardware's counter (power over time where it has none), continued when the "
            "driver is loaded again; the sum of pods, host and unattributed, to the millijoule.",
            counter=True,
            group=Group.ENERGY,
            set=CORE,
        )
    )
    unattributed_millijoules: Labelled = field(
        metadata=metric(
            "Unattributed energy by reason. idle: no process and no allocation; unknown: processes of an "
            "unknown owner; unobserved: the exporter was not sampling; initial: the counter's value when the "
            "ledger began; expired: charged to owners whose series have expired. Exclude initial and expired "
            "from increase().",
            "reason",
            name="unattributed_energy_joules",
            counter=True,
            group=Group.ENERGY,
            set=STANDARD,
        )
    )
    began_at_seconds: float = field(
        metadata=metric(
            "Unix time at which the ledger of this GPU began; it continues over restarts with --state-file.",
            name="ledger_start_timestamp_seconds",
            group=Group.ENERGY,
            set=STANDARD,
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """The charge of one owner for one device (a GPU or a MIG device)."""

    gpu_index: int
    uuid: str
    owner: Owner
    energy_millijoules: Labelled | None = counter(
        "Energy charged to {owner} by basis. measured: sole user of the device; shared: apportioned by "
        "activity among several users; held: an equal part of the idle power of a device that several hold, "
        "or of all its power while none of them uses it.",
        "basis",
        set=CORE,
    )
    held_microseconds: int = field(
        default=0,
        metadata=metric(
            "Time for which the device was held by {owner}: allocated (by the kubelet) or in use (by a "
            "process).",
            counter=True,
            set=STANDARD,
        ),
    )
    busy_microseconds: int | None = counter(
        "SM time of {owner}, from the driver's samples of processes (AMD: its part of the GPU's busy time); "
        "held minus busy is idle. Absent where the driver does not sample processes, and while an MPS server "
        "runs the work of several owners.",
        set=STANDARD,
    )
    active: bool = field(
        metadata=metric(
            "1 while {owner} holds the device, 0 from then until --retention has passed.", set=CORE
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessCharge:
    """Current use of one device by one process, and its part of its owner's charge."""

    gpu_index: int
    uuid: str
    pid: int
    name: str
    owner: Owner | Unknown
    energy_millijoules: int | None = counter(
        "Energy charged to the process: its part of its owner's energy.", set=STANDARD
    )
    memory_used_bytes: int | None = gauge("Device memory allocated by the process.", set=STANDARD)
    sm_ratio: float | None = gauge(
        "Mean SM utilisation of the process over the driver's samples since the last reading.",
        name="sm_utilization_ratio",
        set=STANDARD,
    )
    memory_ratio: float | None = None
    started_at_seconds: float | None = gauge(
        "Unix time at which the process started.", name="start_time_seconds", set=STANDARD
    )
    active: bool = field(
        metadata=metric(
            "1 while the process is on the device, 0 from then until --retention has passed.", set=STANDARD
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """Health of one source."""

    name: str
    up: bool = field(metadata=metric("1 when the source was read for this snapshot.", set=CORE))
    reason: str = ""
    """Why it is not up, in one line; empty when it is."""
    fix: str = ""
    """The remedy; empty when none is known."""
    gpus: int = field(default=0, metadata=metric("GPUs reported by the source.", set=STANDARD))
    duration_seconds: float | None = gauge(
        "Duration of the last finished sample of the source.", set=STANDARD
    )
    last_success_seconds: float | None = gauge(
        "Unix time of the last successful sample of the source.",
        name="last_success_timestamp_seconds",
        set=STANDARD,
    )
    failures: int = field(
        default=0,
        metadata=metric("Samples of the source that failed as a whole.", counter=True, set=STANDARD),
    )
    overruns: int = field(
        default=0,
        metadata=metric(
            "Samples of the source that took longer than --timeout and were not waited for.",
            counter=True,
            set=STANDARD,
        ),
    )
    exit_code: int | None = None
    """Of the command that was run for the last sample; None where there was none or it did not end."""
    errors: Mapping[tuple[str, str], int] | None = several(
        metric(
            "Values that could not be read, are implausible or beyond a limit.",
            counter=True,
            set=STANDARD,
            view=total,
        ),
        # A gauge, because a counter would have its first value without a zero before it.
        metric(
            "Values that could not be read, are implausible or beyond a limit since the exporter started, by "
            "field and error. Absent until the first one.",
            "field",
            "error",
            name="field_errors",
            set=STANDARD,
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything known at one moment; immutable, shared by all scrapers."""

    taken_at_seconds: float = field(
        metadata=metric(
            "Unix time of this snapshot; time() minus this is its age.", name="timestamp_seconds", set=CORE
        )
    )
    age_seconds: float = field(
        metadata=metric(
            "Age of the oldest reading when this snapshot was taken; 0 unless a source is late.", set=STANDARD
        )
    )
    readings: tuple[Reading, ...]
    sources: tuple[SourceState, ...]
    uses: tuple[Use, ...] = ()
    gpu_ledgers: tuple[GpuLedger, ...] = ()
    charges: tuple[Charge, ...] = ()
    processes: tuple[ProcessCharge, ...] = ()
    """Empty unless a metric of single processes is exported."""
    pods: tuple[PodInfo, ...] = ()
    """The pods among the owners."""
    node_labels: tuple[tuple[str, str], ...] = ()
    """The allowed Kubernetes labels of this node."""
