"""nvidia_smi_*: nvidia_gpu_exporter's names for nvidia-smi's fields, and those of small sidecars.

A GPU that is read through nvidia-smi has every column of the tool (see nvidia_smi_row); a GPU that is read
otherwise has the columns whose value the model has.

Both call the memory in use nvidia_smi_memory_used_bytes. It has nvidia_gpu_exporter's labels, the uuid
alone: its dashboards divide it by the total, which needs the same labels on both. The metrics that only
the sidecars have carry their gpu_id, the GPU's index, as well.
"""

from collections.abc import Collection, Iterator, Sequence

from gputally.devices.vendors import NVIDIA
from gputally.metrics.catalog import GPU_INFO, Kind
from gputally.metrics.compat import ProfileInput, Row
from gputally.metrics.compat.columns import OURS, Column, column_families, gauge, percent
from gputally.metrics.compat.nvidia_smi_row import GPU_LABELS, column_help, metric_name, printed_column
from gputally.metrics.families import Family, Sample
from gputally.model import (
    COMPUTE_MODES,
    RECOVERY_ACTIONS,
    THROTTLE_REASONS,
    Labels,
    MigReading,
    Process,
    Reading,
    SourceState,
)

_SOURCES = (*(reader.name for reader in NVIDIA.readers), "simulated")
_SIDECAR_LABELS = ("uuid", "gpu_id")
_SLICE_LABELS = ("uuid", "gpu_instance_id")


def _field(query: str, unit: str, field: str, *labels: str) -> Column:
    """Named by that tool's rule: nvidia-smi's name of the field, and the base unit."""
    return gauge(metric_name(query, unit), column_help(query), field, *labels)


def _state(query: str, field: str, states: tuple[str, ...]) -> Column:
    """A state as its number."""

    def value(reading: Reading) -> float | None:
        values = getattr(reading, field) or {}
        return next((number for number, state in enumerate(states) if values.get((state,))), None)

    help = f"{query} of nvidia-smi: " + ", ".join(f"{number} {state}" for number, state in enumerate(states))
    return Column(Row(metric_name(query), Kind.GAUGE, help + ".", OURS[field]), value)


def _index(reading: Reading) -> float | None:
    return reading.gpu.index if reading.up else None


def _tlimit(reading: Reading) -> float | None:
    margin = reading.temperature_margin_celsius
    return None if margin is None else margin + (reading.temperature_slowdown_offset_celsius or 0)


_ECC = tuple((kind, life) for kind in ("corrected", "uncorrected") for life in ("volatile", "aggregate"))
_ECC_LOCATIONS = (
    "device_memory",
    "dram",
    "register_file",
    "l1_cache",
    "l2_cache",
    "texture_memory",
    "cbu",
    "sram",
)
_COUNTED_REASONS = (
    "hw_power_brake_slowdown",
    "hw_thermal_slowdown",
    "sw_power_cap",
    "sw_thermal_slowdown",
    "sync_boost",
)
# Drivers before 535 call them throttle reasons, and so do the dashboards of that time.
_REASON_WORDS = ("clocks_event_reasons", "clocks_throttle_reasons")

_FIELDS: tuple[Column, ...] = (
    Column(Row("nvidia_smi_index", Kind.GAUGE, "index of nvidia-smi.", GPU_INFO.name), _index),
    _field("utilization.gpu", "ratio", "gpu_utilization_ratio"),
    _field("utilization.memory", "ratio", "memory_utilization_ratio"),
    _field("utilization.encoder", "ratio", "encoder_utilization_ratio"),
    _field("utilization.decoder", "ratio", "decoder_utilization_ratio"),
    _field("utilization.jpeg", "ratio", "jpeg_utilization_ratio"),
    _field("utilization.ofa", "ratio", "ofa_utilization_ratio"),
    _field("fabric.state", "", "fabric_state"),
    _field("memory.total", "bytes", "memory_total_bytes"),
    _field("memory.used", "bytes", "memory_used_bytes"),
    _field("memory.free", "bytes", "memory_free_bytes"),
    _field("memory.reserved", "bytes", "memory_reserved_bytes"),
    _field("temperature.gpu", "", "temperature_celsius"),
    _field("temperature.memory", "", "memory_temperature_celsius"),
    Column(
        Row(
            "nvidia_smi_temperature_gpu_tlimit",
            Kind.GAUGE,
            "temperature.gpu.tlimit of nvidia-smi.",
            OURS["temperature_margin_celsius"],
        ),
        _tlimit,
    ),
    _field("power.draw", "watts", "power_watts"),
    _field("power.limit", "watts", "power_limit_watts"),
    _field("enforced.power.limit", "watts", "power_enforced_limit_watts"),
    _field("power.default_limit", "watts", "power_default_limit_watts"),
    _field("power.min_limit", "watts", "power_min_limit_watts"),
    _field("power.max_limit", "watts", "power_max_limit_watts"),
    *(
        _field(f"clocks.current.{domain}", "clock_hz", "clock_hertz", domain)
        for domain in ("graphics", "sm", "memory", "video")
    ),
    *(
        _field(f"clocks.max.{domain}", "clock_hz", "clock_max_hertz", domain)
        for domain in ("graphics", "sm", "memory")
    ),
    *(
        _field(f"clocks.applications.{domain}", "clock_hz", "clock_application_hertz", domain)
        for domain in ("graphics", "memory")
    ),
    *(
        _field(f"{word}.{reason}", "", "throttle_active", reason)
        for word in _REASON_WORDS
        for reason in THROTTLE_REASONS
    ),
    *(
        _field(f"clocks_event_reasons_counters.{reason}", "seconds", "throttle_seconds", reason)
        for reason in _COUNTED_REASONS
    ),
    _field("fan.speed", "ratio", "fan_speed_ratio", "0"),
    _field("pstate", "", "performance_state"),
    *(_field(f"ecc.errors.{kind}.{life}.total", "", "ecc_errors", kind, life) for kind, life in _ECC),
    *(
        _field(f"ecc.errors.{kind}.{life}.{location}", "", "ecc_location_errors", kind, life, location)
        for kind, life in _ECC
        for location in _ECC_LOCATIONS
    ),
    _field("retired_pages.single_bit_ecc.count", "", "retired_pages", "single_bit"),
    _field("retired_pages.double_bit.count", "", "retired_pages", "double_bit"),
    _field("retired_pages.pending", "", "retired_pages_pending"),
    _field("remapped_rows.correctable", "", "remapped_rows", "correctable"),
    _field("remapped_rows.uncorrectable", "", "remapped_rows", "uncorrectable"),
    _field("remapped_rows.pending", "", "remapped_rows_pending"),
    _field("remapped_rows.failure", "", "remapped_rows_failure"),
    *(
        _field(f"remapped_rows.histogram.{left}", "", "remap_banks", left)
        for left in ("max", "high", "partial", "low", "none")
    ),
    _field("pcie.link.gen.current", "", "pcie_generation"),
    _field("pcie.link.gen.gpucurrent", "", "pcie_generation"),
    _field("pcie.link.gen.max", "", "pcie_generation_max"),
    _field("pcie.link.width.current", "", "pcie_width"),
    _field("pcie.link.width.max", "", "pcie_width_max"),
    _field("pcie.throughput.tx", "bytes_per_second", "pcie_throughput_bytes_per_second", "tx"),
    _field("pcie.throughput.rx", "bytes_per_second", "pcie_throughput_bytes_per_second", "rx"),
    _field("persistence_mode", "", "persistence_mode"),
    _field("accounting.mode", "", "accounting_mode"),
    _field("ecc.mode.current", "", "ecc_mode"),
    _field("mig.mode.current", "", "mig_mode"),
    _state("compute_mode", "compute_mode", COMPUTE_MODES),
    _state("gpu_recovery_action", "recovery_action", RECOVERY_ACTIONS),
)

_SIDECAR: tuple[Column, ...] = (
    gauge(
        "nvidia_smi_gpu_utilization_percent",
        "GPU utilisation in percent.",
        "gpu_utilization_ratio",
        scale=percent,
    ),
    gauge(
        "nvidia_smi_memory_utilization_percent",
        "Memory utilisation in percent.",
        "memory_utilization_ratio",
        scale=percent,
    ),
    gauge("nvidia_smi_temperature_celsius", "GPU temperature.", "temperature_celsius"),
    gauge("nvidia_smi_power_usage_watts", "Power draw.", "power_watts"),
)

_INFO = Row("nvidia_smi_gpu_info", Kind.INFO, "GPU identity.", GPU_INFO.name)
_INFO_LABELS = (
    "uuid",
    "name",
    "driver_model_current",
    "driver_model_pending",
    "vbios_version",
    "driver_version",
    "pci_bus_id",
    "serial",
    "compute_cap",
    "pci_sub_device_id",
    "index",
    "cuda_version",
)
_INFO_COLUMNS = (
    "name",
    "driver_model.current",
    "driver_model.pending",
    "vbios_version",
    "driver_version",
    "pci.bus_id",
    "serial",
    "compute_cap",
    "pci.sub_device_id",
    "index",
)
"""Of nvidia-smi, for the labels between the uuid and the version of CUDA."""
_ENERGY = Row(
    "nvidia_smi_energy_joules_total", Kind.COUNTER, "Energy used.", "gputally_gpu_energy_joules_total"
)
_XIDS = (
    (Row("nvidia_smi_xid_errors_total", Kind.COUNTER, "XID errors.", OURS["xid_errors"]), "xid_errors"),
    (
        Row(
            "nvidia_smi_xid_last_timestamp_seconds",
            Kind.GAUGE,
            "Unix time of the last XID error of this code.",
            OURS["xid_last_timestamp_seconds"],
        ),
        "xid_last_timestamp_seconds",
    ),
)
_MIG_INFO = Row("nvidia_smi_mig_info", Kind.INFO, "Identity of the MIG device.", "gputally_mig_info")
_MIG_INFO_LABELS = ("uuid", "mig_uuid", "gpu_instance_id", "compute_instance_id", "profile")
_SLICES = tuple(
    (
        Row(f"nvidia_smi_mig_{name}", Kind.GAUGE, f"{help} of the GPU instance.", f"gputally_mig_{field}"),
        field,
    )
    for name, field, help in (
        ("memory_total_bytes", "memory_total_bytes", "Memory"),
        ("memory_used_bytes", "memory_used_bytes", "Memory in use"),
        ("memory_free_bytes", "memory_free_bytes", "Free memory"),
        ("memory_reserved_bytes", "memory_reserved_bytes", "Reserved memory"),
        ("graphics_activity_ratio", "graphics_active_ratio", "Engine activity"),
        ("sm_activity_ratio", "sm_active_ratio", "SM activity"),
        ("sm_occupancy_ratio", "sm_occupancy_ratio", "SM occupancy"),
        ("tensor_activity_ratio", "tensor_active_ratio", "Tensor core activity"),
    )
)
_APP_LABELS = ("uuid", "pid", "process_name")
_APP_INFO = Row(
    "nvidia_smi_compute_app_info",
    Kind.INFO,
    "A process with a compute context on the GPU.",
    "gputally_process_active",
)
_APP_MEMORY = Row(
    "nvidia_smi_compute_app_used_memory_bytes",
    Kind.GAUGE,
    "Device memory allocated by the process.",
    "gputally_process_memory_used_bytes",
)
_APPS = Row(
    "nvidia_smi_compute_apps",
    Kind.GAUGE,
    "Processes with a compute context on the GPU.",
    OURS["processes"],
)
_APPS_SUCCESS = Row(
    "nvidia_smi_compute_apps_last_collect_success",
    Kind.GAUGE,
    "1 when the processes were read.",
    "gputally_source_up",
)
_HEALTH = (
    Row("nvidia_smi_last_collect_success", Kind.GAUGE, "1 when the driver was read.", "gputally_source_up"),
    Row(
        "nvidia_smi_last_collect_success_timestamp_seconds",
        Kind.GAUGE,
        "Unix time of the last successful read of the driver.",
        "gputally_source_last_success_timestamp_seconds",
    ),
    Row(
        "nvidia_smi_last_collect_duration_seconds",
        Kind.GAUGE,
        "Duration of the last read of the driver.",
        "gputally_source_duration_seconds",
    ),
    Row(
        "nvidia_smi_failed_scrapes_total",
        Kind.COUNTER,
        "Failed reads of the driver.",
        "gputally_source_failures_total",
    ),
    Row(
        "nvidia_smi_command_exit_code",
        Kind.GAUGE,
        "Exit code of the last run of nvidia-smi; absent where another reader is in use.",
        "",
    ),
)

ROWS: tuple[Row, ...] = (
    _INFO,
    *(column.row for column in _FIELDS),
    *(column.row for column in _SIDECAR),
    _ENERGY,
    *(row for row, _ in _XIDS),
    _MIG_INFO,
    *(row for row, _ in _SLICES),
    *(_APP_INFO, _APP_MEMORY, _APPS, _APPS_SUCCESS),
    *_HEALTH,
)

_FIELD_METRICS = tuple(column.row.metric(GPU_LABELS) for column in _FIELDS)
_OTHER_NAMES = {row.name for row in ROWS} - {column.row.name for column in _FIELDS}
_SIDECAR_METRICS = tuple(column.row.metric(_SIDECAR_LABELS) for column in _SIDECAR)


def families(inputs: ProfileInput) -> list[Family]:
    """Every metric that has a sample."""
    snapshot = inputs.snapshot
    by_uuid = [((_bare(one.gpu.uuid),), one) for one in snapshot.readings]
    by_uuid_and_index = [((uuid, str(one.gpu.index)), one) for (uuid,), one in by_uuid]
    found = [
        Family(_INFO.metric(_INFO_LABELS), [(_facts(one), 1) for one in snapshot.readings]),
        *_fields(by_uuid),
        *column_families(_SIDECAR, _SIDECAR_METRICS, by_uuid_and_index),
        Family(
            _ENERGY.metric(GPU_LABELS),
            [((_bare(ledger.uuid),), ledger.energy_millijoules / 1000) for ledger in snapshot.gpu_ledgers],
        ),
        *(
            Family(row.metric(("uuid", "xid")), list(_by_code(snapshot.readings, field)))
            for row, field in _XIDS
        ),
        *_mig(snapshot.readings),
        *_compute_apps(snapshot.readings),
        *_health(snapshot.sources),
    ]
    return [family for family in found if family.samples]


def _bare(uuid: str) -> str:
    """As in that tool: GPU-2B39... is 2b39..."""
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-")


def _fields(readings: Sequence[tuple[Labels, Reading]]) -> Iterator[Family]:
    """One family per column: as nvidia-smi printed it, else by the model's value."""
    families = {metric.name: Family(metric) for metric in _FIELD_METRICS}
    for labels, reading in readings:
        printed = set()
        for header, cell in (reading.nvidia_smi_row or {}).items():
            column = printed_column(header)
            name = column.metric.name
            if name in printed or name in _OTHER_NAMES:
                continue
            printed.add(name)
            value = column.value(cell)
            if value is not None:
                families.setdefault(name, Family(column.metric)).samples.append((labels, value))
        for known in _FIELDS:
            name = known.row.name
            if name not in printed and (value := known.value(reading)) is not None:
                families[name].samples.append((labels, value))
    yield from families.values()


def _facts(reading: Reading) -> Labels:
    gpu, row = reading.gpu, reading.nvidia_smi_row
    if row is not None:
        printed = (row.get(column, "") for column in _INFO_COLUMNS)
        return (_bare(gpu.uuid), *printed, gpu.cuda_version or "")
    return (
        _bare(gpu.uuid),
        gpu.model,
        "[N/A]",  # only Windows has driver models
        "[N/A]",
        gpu.vbios_version or "",
        gpu.driver_version or "",
        gpu.pci_bus_id or "",
        gpu.serial or "",
        gpu.compute_capability or "",
        "",
        str(gpu.index),
        gpu.cuda_version or "",
    )


def _by_code(readings: tuple[Reading, ...], field: str) -> Iterator[Sample]:
    for reading in readings:
        for code, value in (getattr(reading, field) or {}).items():
            yield (_bare(reading.gpu.uuid), *code), value


def _mig(readings: tuple[Reading, ...]) -> list[Family]:
    devices = [mig for reading in readings for mig in reading.mig]
    slices: dict[tuple[str, str], MigReading] = {}
    for mig in devices:
        # The compute instances of a GPU instance share its memory and are measured as one.
        slices.setdefault((_bare(mig.instance.parent_uuid), str(mig.instance.gpu_instance_id)), mig)
    info = Family(_MIG_INFO.metric(_MIG_INFO_LABELS), [(_mig_facts(mig), 1) for mig in devices])
    return [info, *(_of_slices(row, field, slices) for row, field in _SLICES)]


def _mig_facts(mig: MigReading) -> Labels:
    instance = mig.instance
    ids = (str(instance.gpu_instance_id), str(instance.compute_instance_id))
    return (_bare(instance.parent_uuid), _bare(instance.uuid), *ids, instance.profile or "")


def _of_slices(row: Row, field: str, slices: dict[tuple[str, str], MigReading]) -> Family:
    values = ((labels, getattr(mig, field)) for labels, mig in slices.items())
    return Family(
        row.metric(_SLICE_LABELS), [(labels, value) for labels, value in values if value is not None]
    )


def _compute_apps(readings: tuple[Reading, ...]) -> Iterator[Family]:
    up = [reading for reading in readings if reading.up]
    if not up:
        return
    listed = [(one, apps) for one in up if (apps := _apps_of(one)) is not None]
    every = [(_app_labels(reading, app), app) for reading, apps in listed for app in apps]
    yield Family(_APP_INFO.metric(_APP_LABELS), [(labels, 1) for labels, _ in every])
    yield Family(
        _APP_MEMORY.metric(_APP_LABELS),
        [(labels, used) for labels, app in every if (used := app.memory_used_bytes) is not None],
    )
    yield Family(_APPS.metric(GPU_LABELS), [((_bare(one.gpu.uuid),), len(apps)) for one, apps in listed])
    yield Family(_APPS_SUCCESS.metric(()), [((), float(bool(listed)))])


def _app_labels(reading: Reading, app: Process) -> Labels:
    name = (reading.nvidia_smi_names or {}).get(app.pid, app.name or "")
    return (_bare(reading.gpu.uuid), str(app.pid), name)


def _apps_of(reading: Reading) -> Collection[Process] | None:
    """The compute processes on the GPU and its MIG devices; None where they are not known."""
    lists = [
        some for some in (*(mig.processes for mig in reading.mig), reading.processes) if some is not None
    ]
    if not lists:
        return None
    return {process.pid: process for some in lists for process in some if process.kind != "graphics"}.values()


def _health(sources: tuple[SourceState, ...]) -> Iterator[Family]:
    """Of the source that is up, or else the last one."""
    tried = [source for source in sources if source.name in _SOURCES]
    if not tried:
        return
    source = next((one for one in tried if one.up), tried[-1])
    values = (
        source.up,
        source.last_success_seconds,
        source.duration_seconds,
        source.failures + source.overruns,
        source.exit_code,
    )
    for row, value in zip(_HEALTH, values, strict=True):
        if value is not None:
            yield Family(row.metric(()), [((), value)])
