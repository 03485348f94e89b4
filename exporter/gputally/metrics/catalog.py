"""Every metric once: name, kind, help, labels, and the model field that fills it.

Dashboards, rules and docs take their names from here. A name ends in its unit (bytes, watts, hertz,
celsius, ratio, seconds, joules) and a counter in `_total`; both stand in the name alone, so that
the two cannot disagree.
"""

from dataclasses import dataclass
from enum import StrEnum

from gputally.model import Labels

UNITS = ("bytes_per_second", "bytes", "watts", "joules", "celsius", "hertz", "ratio", "seconds")
NVML = ("nvml", "simulated")
NVIDIA = ("nvml", "nvidia-smi", "simulated")
AMDGPU = ("amdgpu",)
AMD = ("amdgpu", "rocm-smi")
ALL = NVIDIA + AMD


class Kind(StrEnum):
    """Prometheus metric types that GPUTally uses. An info metric is a gauge that is always 1."""

    GAUGE = "gauge"
    COUNTER = "counter"
    INFO = "info"


class Scope(StrEnum):
    """What one sample is about; decides the leading labels."""

    GPU = "gpu"
    MIG = "mig"
    POD = "pod"
    HOST = "host"
    UNKNOWN = "unknown"
    POD_INFO = "pod_info"
    PROCESS = "process"
    SOURCE = "source"
    EXPORTER = "exporter"


SCOPE_LABELS: dict[Scope, Labels] = {
    Scope.GPU: ("gpu", "uuid"),
    Scope.MIG: ("gpu", "uuid"),
    Scope.POD: ("gpu", "uuid", "namespace", "pod", "container"),
    Scope.HOST: ("gpu", "uuid", "owner"),
    Scope.UNKNOWN: ("gpu", "uuid", "reason"),
    Scope.POD_INFO: ("namespace", "pod"),
    Scope.PROCESS: ("gpu", "uuid", "pid", "process_name", "namespace", "pod", "container", "owner"),
    Scope.SOURCE: ("source",),
    Scope.EXPORTER: (),
}


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the catalog."""

    name: str
    kind: Kind
    scope: Scope
    field: str
    """The field of the scope's model class (or a value that `families` computes)."""
    help: str
    extra_labels: Labels = ()
    readers: tuple[str, ...] = ()
    """Readers that can fill it; empty where no reader is involved."""
    per: int = 1
    """The field is divided by this: 1000 where the model keeps thousandths to stay exact."""

    @property
    def labels(self) -> Labels:
        return SCOPE_LABELS[self.scope] + self.extra_labels

    @property
    def unit(self) -> str:
        base = self.name.removesuffix("_total")
        return next((unit for unit in UNITS if base.endswith("_" + unit)), "")


def _gauge(
    scope: Scope, name: str, field: str, help: str, *labels: str, readers: tuple[str, ...] = ALL
) -> Metric:
    return Metric(name, Kind.GAUGE, scope, field, help, labels, readers)


def _counter(
    scope: Scope,
    name: str,
    field: str,
    help: str,
    *labels: str,
    readers: tuple[str, ...] = ALL,
    per: int = 1,
) -> Metric:
    return Metric(name, Kind.COUNTER, scope, field, help, labels, readers, per)


_G, _M, _P, _S, _E = Scope.GPU, Scope.MIG, Scope.PROCESS, Scope.SOURCE, Scope.EXPORTER

_ACTIVITY = (
    ("graphics_active", "Share of time that any graphics or compute engine was active."),
    ("sm_active", "Share of time that a multiprocessor had at least one warp, averaged over all."),
    ("sm_occupancy", "Warps resident on the multiprocessors, as a share of the most they can hold."),
    ("tensor_active", "Share of time that the tensor cores were active."),
    ("dram_active", "Share of time that the device memory interface was moving data."),
    ("fp64_active", "Share of time that the FP64 pipe was active."),
    ("fp32_active", "Share of time that the FP32 pipe was active."),
    ("fp16_active", "Share of time that the FP16 pipe was active."),
)

GPU_METRICS: tuple[Metric, ...] = (
    Metric(
        "gputally_gpu_info",
        Kind.INFO,
        _G,
        "info",
        "Who the GPU is. simulated is true when the values come from the simulator; energy_source is counter "
        "when the hardware counts its energy, integrated when that is its power over time.",
        (
            "vendor",
            "model",
            "pci_bus_id",
            "serial",
            "vbios_version",
            "driver_version",
            "cuda_version",
            "compute_capability",
            "minor_number",
            "simulated",
            "energy_source",
        ),
        ALL,
    ),
    _gauge(_G, "gputally_gpu_up", "up", "1 when the GPU answered in this snapshot, 0 when it is lost."),
    # utilisation
    _gauge(
        _G,
        "gputally_gpu_utilization_ratio",
        "gpu_utilization_ratio",
        "Share of the driver's last sample period in which at least one kernel ran.",
    ),
    _gauge(
        _G,
        "gputally_gpu_memory_utilization_ratio",
        "memory_utilization_ratio",
        "Share of the driver's last sample period in which device memory was read or written.",
    ),
    _gauge(
        _G,
        "gputally_gpu_encoder_utilization_ratio",
        "encoder_utilization_ratio",
        "Video encoder use.",
        readers=NVIDIA,
    ),
    _gauge(
        _G,
        "gputally_gpu_decoder_utilization_ratio",
        "decoder_utilization_ratio",
        "Video decoder use.",
        readers=NVIDIA,
    ),
    _gauge(
        _G,
        "gputally_gpu_jpeg_utilization_ratio",
        "jpeg_utilization_ratio",
        "JPEG engine use.",
        readers=NVIDIA + AMDGPU,
    ),
    _gauge(
        _G,
        "gputally_gpu_ofa_utilization_ratio",
        "ofa_utilization_ratio",
        "Optical flow accelerator use.",
        readers=NVIDIA,
    ),
    *(
        _gauge(_G, f"gputally_gpu_{name}_ratio", f"{name}_ratio", help, readers=NVML)
        for name, help in _ACTIVITY
    ),
    # memory
    _gauge(_G, "gputally_gpu_memory_total_bytes", "memory_total_bytes", "Device memory on the card."),
    _gauge(
        _G,
        "gputally_gpu_memory_used_bytes",
        "memory_used_bytes",
        "Device memory that processes have allocated; without what the driver reserves.",
    ),
    _gauge(_G, "gputally_gpu_memory_free_bytes", "memory_free_bytes", "Device memory that is free."),
    _gauge(
        _G,
        "gputally_gpu_memory_reserved_bytes",
        "memory_reserved_bytes",
        "Device memory that the driver and firmware keep for themselves.",
        readers=NVIDIA,
    ),
    _gauge(
        _G,
        "gputally_gpu_memory_visible_total_bytes",
        "memory_visible_total_bytes",
        "Device memory that the CPU can reach.",
        readers=(*AMD, "simulated"),
    ),
    _gauge(
        _G,
        "gputally_gpu_memory_visible_used_bytes",
        "memory_visible_used_bytes",
        "Device memory in use that the CPU can reach.",
        readers=(*AMD, "simulated"),
    ),
    _gauge(
        _G,
        "gputally_gpu_gtt_total_bytes",
        "gtt_total_bytes",
        "Host memory that the GPU may use (GTT).",
        readers=(*AMD, "simulated"),
    ),
    _gauge(
        _G,
        "gputally_gpu_gtt_used_bytes",
        "gtt_used_bytes",
        "Host memory that the GPU uses.",
        readers=(*AMD, "simulated"),
    ),
    _gauge(_G, "gputally_gpu_bar1_total_bytes", "bar1_total_bytes", "BAR1 window size.", readers=NVML),
    _gauge(_G, "gputally_gpu_bar1_used_bytes", "bar1_used_bytes", "BAR1 window mapped.", readers=NVML),
    _gauge(_G, "gputally_gpu_bar1_free_bytes", "bar1_free_bytes", "BAR1 window unmapped.", readers=NVML),
    # power and energy
    _gauge(
        _G,
        "gputally_gpu_power_watts",
        "power_watts",
        "Power draw: on NVIDIA a one-second average, instantaneous on GA100 and older; on AMD the driver's "
        "mean where it has one.",
    ),
    _gauge(_G, "gputally_gpu_power_limit_watts", "power_limit_watts", "Power limit set by the operator."),
    _gauge(
        _G,
        "gputally_gpu_power_enforced_limit_watts",
        "power_enforced_limit_watts",
        "Power limit in force: the lowest of all that apply.",
        readers=NVIDIA,
    ),
    _gauge(
        _G,
        "gputally_gpu_power_default_limit_watts",
        "power_default_limit_watts",
        "Power limit after a reset.",
        readers=NVIDIA + AMDGPU,
    ),
    _gauge(
        _G, "gputally_gpu_power_min_limit_watts", "power_min_limit_watts", "Lowest power limit one can set."
    ),
    _gauge(
        _G, "gputally_gpu_power_max_limit_watts", "power_max_limit_watts", "Highest power limit one can set."
    ),
    # temperature, clocks, fans, throttling
    _gauge(_G, "gputally_gpu_temperature_celsius", "temperature_celsius", "Core temperature."),
    _gauge(
        _G, "gputally_gpu_memory_temperature_celsius", "memory_temperature_celsius", "Memory temperature."
    ),
    _gauge(
        _G,
        "gputally_gpu_temperature_slowdown_celsius",
        "temperature_slowdown_celsius",
        "Core temperature at which the hardware slows down.",
        readers=NVML + AMD,
    ),
    _gauge(
        _G,
        "gputally_gpu_temperature_shutdown_celsius",
        "temperature_shutdown_celsius",
        "Core temperature at which the hardware shuts down.",
        readers=NVML + AMD,
    ),
    _gauge(
        _G,
        "gputally_gpu_temperature_margin_celsius",
        "temperature_margin_celsius",
        "Degrees left until the nearest slowdown limit (T.Limit); negative is past it.",
        readers=NVIDIA,
    ),
    _gauge(
        _G,
        "gputally_gpu_sensor_celsius",
        "sensor_celsius",
        "Temperature at each sensor: edge, junction (the hottest spot), mem, and what else the card has.",
        "sensor",
        readers=(*AMD, "simulated"),
    ),
    _gauge(
        _G,
        "gputally_gpu_sensor_critical_celsius",
        "sensor_critical_celsius",
        "Temperature at the sensor at which the card slows down.",
        "sensor",
        readers=(*AMDGPU, "simulated"),
    ),
    _gauge(_G, "gputally_gpu_clock_hertz", "clock_hertz", "Clock now.", "domain"),
    _gauge(_G, "gputally_gpu_clock_max_hertz", "clock_max_hertz", "Highest clock.", "domain"),
    _gauge(
        _G,
        "gputally_gpu_clock_application_hertz",
        "clock_application_hertz",
        "Clock that applications are set to run at.",
        "domain",
        readers=NVIDIA,
    ),
    _gauge(_G, "gputally_gpu_fan_speed_ratio", "fan_speed_ratio", "Fan speed as a share of its most.", "fan"),
    _gauge(
        _G,
        "gputally_gpu_performance_state",
        "performance_state",
        "Performance state: 0 is the fastest, 15 the slowest.",
        readers=NVIDIA,
    ),
    _gauge(
        _G,
        "gputally_gpu_throttle_active",
        "throttle_active",
        "1 while the clocks are held down for this reason.",
        "reason",
        readers=NVIDIA + AMDGPU,
    ),
    _counter(
        _G,
        "gputally_gpu_throttle_seconds_total",
        "throttle_seconds",
        "Time for which the clocks were held down for this reason, as the driver counts it.",
        "reason",
        readers=NVIDIA,
    ),
    # memory health
    _counter(
        _G,
        "gputally_gpu_ecc_errors_total",
        "ecc_errors",
        "ECC errors. volatile counts since the driver was loaded, aggregate over the card's life.",
        "type",
        "lifetime",
    ),
    _counter(
        _G,
        "gputally_gpu_ecc_location_errors_total",
        "ecc_location_errors",
        "ECC errors by the part of the chip in which they were found.",
        "type",
        "lifetime",
        "location",
        readers=NVIDIA,
    ),
    _counter(
        _G,
        "gputally_gpu_ras_errors_total",
        "ras_errors",
        "Errors since the driver was loaded, by the block of the chip that had them (AMD's RAS). Deferred "
        "ones become uncorrected if the data is used.",
        "block",
        "type",
        readers=(*AMD, "simulated"),
    ),
    _gauge(
        _G,
        "gputally_gpu_retired_pages",
        "retired_pages",
        "Memory pages retired for good, by cause (cards before Ampere).",
        "cause",
        readers=NVIDIA,
    ),
    _gauge(
        _G,
        "gputally_gpu_retired_pages_pending",
        "retired_pages_pending",
        "1 when pages wait for a reset to be retired.",
        readers=NVIDIA,
    ),
    _gauge(
        _G,
        "gputally_gpu_remapped_rows",
        "remapped_rows",
        "Memory rows replaced by spare ones, by cause (Ampere and newer).",
        "cause",
        readers=NVML,
    ),
    _gauge(
        _G,
        "gputally_gpu_remapped_rows_pending",
        "remapped_rows_pending",
        "1 when rows wait for a reset to be remapped.",
        readers=NVML,
    ),
    _gauge(
        _G,
        "gputally_gpu_remapped_rows_failure",
        "remapped_rows_failure",
        "1 when a row could not be remapped: the card is to be replaced.",
        readers=NVML,
    ),
    _gauge(
        _G,
        "gputally_gpu_remap_banks",
        "remap_banks",
        "Memory banks by how many spare rows they have left.",
        "availability",
        readers=NVML,
    ),
    # links
    _gauge(_G, "gputally_gpu_pcie_generation", "pcie_generation", "PCIe generation of the link now."),
    _gauge(
        _G,
        "gputally_gpu_pcie_generation_max",
        "pcie_generation_max",
        "Highest PCIe generation that this card in this slot can reach.",
        readers=NVIDIA + AMDGPU,
    ),
    _gauge(_G, "gputally_gpu_pcie_width", "pcie_width", "PCIe lanes in use."),
    _gauge(_G, "gputally_gpu_pcie_width_max", "pcie_width_max", "Most PCIe lanes.", readers=NVIDIA + AMDGPU),
    _counter(
        _G, "gputally_gpu_pcie_replays_total", "pcie_replays", "PCIe packets sent again.", readers=NVML + AMD
    ),
    _gauge(
        _G,
        "gputally_gpu_pcie_throughput_bytes_per_second",
        "pcie_throughput_bytes_per_second",
        "PCIe throughput over 20 ms, of AMD GPUs over one second; only with --pcie-throughput, because "
        "reading it blocks.",
        "direction",
        readers=NVML + AMDGPU,
    ),
    _gauge(_G, "gputally_gpu_nvlink_up", "nvlink_up", "1 when the NVLink is active.", "link", readers=NVML),
    _counter(
        _G,
        "gputally_gpu_nvlink_errors_total",
        "nvlink_errors",
        "NVLink errors by link.",
        "link",
        "type",
        readers=NVML,
    ),
    _counter(
        _G,
        "gputally_gpu_nvlink_bytes_total",
        "nvlink_bytes",
        "Data moved over all NVLinks of the GPU.",
        "direction",
        readers=NVML,
    ),
    _gauge(
        _G,
        "gputally_gpu_xgmi_up",
        "xgmi_up",
        "1 when the XGMI link is active.",
        "link",
        readers=(*AMDGPU, "simulated"),
    ),
    _counter(
        _G,
        "gputally_gpu_xgmi_bytes_total",
        "xgmi_bytes",
        "Data moved over each XGMI link of the GPU.",
        "link",
        "direction",
        readers=(*AMDGPU, "simulated"),
    ),
    # faults and modes
    _counter(
        _G,
        "gputally_gpu_xid_errors_total",
        "xid_errors",
        "XID errors by code since the exporter started. A code appears with its first error.",
        "xid",
        readers=NVML,
    ),
    _gauge(
        _G,
        "gputally_gpu_xid_last_timestamp_seconds",
        "xid_last_timestamp_seconds",
        "When the last XID error of this code came.",
        "xid",
        readers=NVML,
    ),
    _gauge(
        _G,
        "gputally_gpu_recovery_action",
        "recovery_action",
        "1 for what the driver asks to be done to bring the GPU back to health.",
        "action",
        readers=NVIDIA,
    ),
    _gauge(
        _G,
        "gputally_gpu_persistence_mode",
        "persistence_mode",
        "1 when persistence mode is on.",
        readers=NVIDIA,
    ),
    _gauge(
        _G, "gputally_gpu_accounting_mode", "accounting_mode", "1 when accounting mode is on.", readers=NVIDIA
    ),
    _gauge(_G, "gputally_gpu_ecc_mode", "ecc_mode", "1 when ECC is on.", readers=NVIDIA),
    _gauge(_G, "gputally_gpu_mig_mode", "mig_mode", "1 when MIG is on.", readers=NVIDIA),
    _gauge(
        _G,
        "gputally_gpu_compute_mode",
        "compute_mode",
        "1 for the compute mode in force.",
        "mode",
        readers=NVIDIA,
    ),
    _gauge(
        _G,
        "gputally_gpu_processes",
        "process_count",
        "Processes that the driver lists on the GPU; on several lists at once: compute+mps.",
        "kind",
    ),
)

BOOK_METRICS: tuple[Metric, ...] = (
    _counter(
        _G,
        "gputally_gpu_energy_joules_total",
        "energy_millijoules",
        "Energy used, by the hardware's own counter, continued when the driver is loaded anew; by power over "
        "time where there is no counter. Pods, host and unattributed add up to it, to the millijoule.",
        per=1000,
    ),
    _counter(
        _G,
        "gputally_gpu_unattributed_energy_joules_total",
        "unattributed_millijoules",
        "Energy that nobody in the books is charged for. idle: nobody was there; unknown: whoever was cannot "
        "be named; unobserved: used while the exporter did not look; initial: what the counter held when the "
        "books began; expired: charged to owners whose series have gone since. Leave those two out of "
        "increase().",
        "reason",
        per=1000,
    ),
    _gauge(
        _G,
        "gputally_gpu_ledger_start_timestamp_seconds",
        "began_at_seconds",
        "When the books of this GPU began. They go on over restarts with --state-file.",
    ),
)

MIG_METRICS: tuple[Metric, ...] = (
    Metric(
        "gputally_mig_info",
        Kind.INFO,
        _M,
        "info",
        "Who the MIG device, or the partition of an AMD GPU, is. gpu is its parent's index, uuid its own.",
        ("parent_uuid", "profile", "gpu_instance", "compute_instance"),
        NVML + AMD,
    ),
    _gauge(
        _M, "gputally_mig_multiprocessors", "multiprocessors", "Multiprocessors it was given.", readers=NVML
    ),
    *(
        _gauge(_M, f"gputally_mig_memory_{part}_bytes", f"memory_{part}_bytes", help, readers=readers)
        for part, help, readers in (
            ("total", "Device memory of the MIG device.", (*NVML, "rocm-smi")),
            ("used", "Device memory that processes have allocated in it.", (*NVML, "rocm-smi")),
            ("free", "Device memory that is free in it.", (*NVML, "rocm-smi")),
            ("reserved", "Device memory that the driver and firmware keep in it.", NVML),
        )
    ),
    *(
        _gauge(
            _M,
            f"gputally_mig_{name}_ratio",
            f"{name}_ratio",
            help,
            readers=NVML + AMD if name == "graphics_active" else NVML,
        )
        for name, help in _ACTIVITY
    ),
    _gauge(
        _M,
        "gputally_mig_processes",
        "process_count",
        "Processes that the driver lists on the MIG device.",
        "kind",
        readers=NVML + AMDGPU,
    ),
)

# What is said alike of a pod's container, of an owner on the host, and of those who cannot be named.
_USE = (
    ("processes", "processes", "Processes of {whose} on the device.", ALL),
    (
        "memory_used_bytes",
        "memory_used_bytes",
        "Device memory that the processes of {whose} have allocated.",
        ALL,
    ),
    (
        "sm_utilization_ratio",
        "sm_ratio",
        "SM use of {whose}: the sum over its processes of their mean over the driver's samples since the "
        "last reading. Absent on MIG devices, where the driver does not sample.",
        NVML + AMDGPU,
    ),
    ("memory_utilization_ratio", "memory_ratio", "Memory bandwidth use of {whose}, as for SM use.", NVML),
    (
        "encoder_utilization_ratio",
        "encoder_ratio",
        "Video encoder use of {whose}, as for SM use.",
        NVML + AMDGPU,
    ),
    (
        "decoder_utilization_ratio",
        "decoder_ratio",
        "Video decoder use of {whose}, as for SM use.",
        NVML + AMDGPU,
    ),
)


def _use_metrics(scope: Scope, prefix: str, whose: str) -> tuple[Metric, ...]:
    return tuple(
        _gauge(scope, f"{prefix}_{name}", field, help.format(whose=whose), readers=readers)
        for name, field, help, readers in _USE
    )


def _charge_metrics(scope: Scope, prefix: str, whose: str) -> tuple[Metric, ...]:
    return (
        _counter(
            scope,
            f"{prefix}_energy_joules_total",
            "energy_millijoules",
            f"Energy charged to {whose}. measured: it was alone on the device; shared: by SM time among "
            "several; held: nobody was seen on it, and it holds the device.",
            "basis",
            per=1000,
        ),
        _counter(
            scope,
            f"{prefix}_held_seconds_total",
            "held_microseconds",
            f"Time for which the kubelet had given the device to {whose}, or a process of it was there.",
            per=1_000_000,
        ),
        _counter(
            scope,
            f"{prefix}_busy_seconds_total",
            "busy_microseconds",
            f"SM time of {whose}, by the driver's samples. Held minus busy is idle.",
            readers=NVML + AMDGPU,
            per=1_000_000,
        ),
        _gauge(
            scope,
            f"{prefix}_active",
            "active",
            f"1 while {whose} holds or uses the device; 0 once it is gone, for --retention.",
        ),
    )


POD_METRICS = _use_metrics(Scope.POD, "gputally_pod", "the container")
POD_CHARGES = _charge_metrics(Scope.POD, "gputally_pod", "the container")
HOST_METRICS = _use_metrics(Scope.HOST, "gputally_host", "an owner that is no pod")
HOST_CHARGES = _charge_metrics(Scope.HOST, "gputally_host", "an owner that is no pod")
UNKNOWN_METRICS = _use_metrics(Scope.UNKNOWN, "gputally_gpu_unattributed", "those whose owner is unknown")
POD_INFO = Metric(
    "gputally_pod_info",
    Kind.INFO,
    Scope.POD_INFO,
    "info",
    "A pod that uses or holds a GPU. requested is false when the kubelet gave it none: shadow use. With "
    "--pod-labels, the labels that are allowed.",
    ("pod_uid", "node", "workload", "requested"),
)

NODE_INFO = Metric(
    "gputally_node_labels_info",
    Kind.INFO,
    Scope.EXPORTER,
    "info",
    "The labels of this node in Kubernetes that --node-labels allows.",
)

# Only with --process-metrics.
PROCESS_METRICS: tuple[Metric, ...] = (
    _counter(
        _P,
        "gputally_process_energy_joules_total",
        "energy_millijoules",
        "The part of its owner's energy that one process is charged for.",
        per=1000,
    ),
    _gauge(
        _P,
        "gputally_process_memory_used_bytes",
        "memory_used_bytes",
        "Device memory of one process.",
    ),
    _gauge(
        _P,
        "gputally_process_sm_utilization_ratio",
        "sm_ratio",
        "Mean SM use of one process over the driver's samples since the last reading.",
        readers=NVML + AMDGPU,
    ),
    _gauge(
        _P,
        "gputally_process_start_time_seconds",
        "started_at_seconds",
        "When the process started.",
    ),
    _gauge(
        _P,
        "gputally_process_active",
        "active",
        "1 while the process is on the device; 0 once it has gone, for --retention.",
    ),
)

SOURCE_METRICS: tuple[Metric, ...] = (
    _gauge(_S, "gputally_source_up", "up", "1 when the source answered in this snapshot.", readers=()),
    _gauge(_S, "gputally_source_gpus", "gpus", "GPUs that the source reports.", readers=()),
    _gauge(
        _S,
        "gputally_source_duration_seconds",
        "duration_seconds",
        "How long the source's last finished look took.",
        readers=(),
    ),
    _gauge(
        _S,
        "gputally_source_last_success_timestamp_seconds",
        "last_success_seconds",
        "When the source last answered.",
        readers=(),
    ),
    _counter(
        _S,
        "gputally_source_failures_total",
        "failures",
        "Looks at the source that failed as a whole.",
        readers=(),
    ),
    _counter(
        _S,
        "gputally_source_overruns_total",
        "overruns",
        "Looks at the source that took longer than --timeout and were not waited for.",
        readers=(),
    ),
    _counter(
        _S,
        "gputally_source_errors_total",
        "errors",
        "Single values that failed to be read, or were dropped as implausible, by field and error.",
        "field",
        "error",
        readers=(),
    ),
)

EXPORTER_METRICS: tuple[Metric, ...] = (
    Metric(
        "gputally_exporter_info",
        Kind.INFO,
        _E,
        "info",
        "The exporter itself.",
        ("version", "python", "hostname"),
    ),
    _gauge(
        _E,
        "gputally_snapshot_timestamp_seconds",
        "taken_at_seconds",
        "When this snapshot was taken; time() minus this is its age.",
        readers=(),
    ),
    _gauge(
        _E,
        "gputally_snapshot_age_seconds",
        "age_seconds",
        "How old the oldest reading in this snapshot was when it was taken: 0 unless a source is late.",
        readers=(),
    ),
    _counter(
        _E,
        "process_cpu_seconds_total",
        "cpu_seconds",
        "CPU time of the exporter, user and system.",
        readers=(),
    ),
    _gauge(
        _E,
        "process_resident_memory_bytes",
        "resident_memory_bytes",
        "Resident memory of the exporter.",
        readers=(),
    ),
    _gauge(_E, "process_open_fds", "open_fds", "Open file descriptors of the exporter.", readers=()),
    _gauge(_E, "process_start_time_seconds", "start_time_seconds", "When the exporter started.", readers=()),
)

CATALOG: tuple[Metric, ...] = (
    *GPU_METRICS,
    *BOOK_METRICS,
    *MIG_METRICS,
    *POD_METRICS,
    *POD_CHARGES,
    POD_INFO,
    *HOST_METRICS,
    *HOST_CHARGES,
    *UNKNOWN_METRICS,
    *PROCESS_METRICS,
    *SOURCE_METRICS,
    NODE_INFO,
    *EXPORTER_METRICS,
)
