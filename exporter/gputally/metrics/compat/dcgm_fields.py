"""The fields of DCGM that the model can fill, in both spellings of dcgm-exporter.

Names, types and units up to 4.8 are those of etc/default-counters.csv in dcgm-exporter 4.5.3-4.8.2, with the
rows that are comments there. Since 4.9 it has the names of DCGM 4.7, most of them in base units; those
are in dcgm_fields.h of DCGM 4.6 and in NVIDIA's catalogue of fields for 4.7.

Missing from the default list: the vGPU licence, which the model does not have.
"""

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter

from gputally.metrics.catalog import Kind
from gputally.metrics.compat.columns import OURS, Scale, mebibytes, megahertz, nanoseconds, percent
from gputally.metrics.compat.device_views import (
    DeviceView,
    OfGpu,
    OfPod,
    last_xid,
    one_of,
    pod_value,
    reasons_mask,
    sum_link_errors,
    used_ratio,
)
from gputally.metrics.compat.xid_messages import xid_message
from gputally.model import Labels


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit of each spelling, from the model's base units (energy: millijoules)."""

    old: str = ""
    new: str = ""
    to_old: Scale | None = None
    to_new: Scale | None = None


PLAIN = Unit()
WATTS = Unit("watts", "watts")
CELSIUS = Unit("degrees Celsius", "degrees Celsius")
RATIO = Unit("0 to 1", "0 to 1")
CLOCK = Unit("MHz", "hertz", megahertz)
MEMORY = Unit("MiB", "bytes", mebibytes)
PERCENT = Unit("percent", "0 to 1", percent)
ENERGY = Unit("millijoules", "joules", to_new=lambda millijoules: millijoules / 1000)
TIME = Unit("nanoseconds", "seconds", nanoseconds)
# DCGM divides KiB/s by 1000 and cuts off the rest (ReadAndCacheNvLinkBandwidth in DCGM 4.6).
LINK_RATE = Unit("MB/s", "bytes per second", lambda rate: int(rate / 1024 / 1000))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Field:
    """One field of DCGM: its two names, and its value in the model."""

    old: str
    new: str
    """Empty where this spelling does not have the field."""
    kind: Kind
    new_kind: Kind | None = None
    """Where the new spelling declares another type."""
    help: str
    ours: str
    of_gpu: OfGpu
    of_instance: str = ""
    """The field of `MigReading` with the value of a GPU instance."""
    of_pod: OfPod | None = None
    unit: Unit = PLAIN
    value_labels: Labels = ()
    label_values: Callable[[float], Labels] | None = None
    """Labels of this field only, and their values for a value of the field."""


def _dev(
    old: str,
    new: str,
    kind: Kind,
    help: str,
    field: str,
    *,
    value: OfGpu | None = None,
    of_pod: OfPod | None = None,
    of_instance: str = "",
    unit: Unit = PLAIN,
) -> Field:
    """`field` is that of the reading; `value` where it is not its plain value."""
    return Field(
        old=f"DCGM_FI_DEV_{old}",
        new=f"DCGM_FI_DEV_{new}" if new else "",
        kind=kind,
        help=help,
        ours=OURS[field],
        of_gpu=value or attrgetter(f"reading.{field}"),
        of_instance=of_instance,
        of_pod=of_pod,
        unit=unit,
    )


def _prof(old: str, new: str, field: str, help: str, of_pod: OfPod | None = None) -> Field:
    return Field(
        old=f"DCGM_FI_PROF_{old}",
        new=f"DCGM_FI_PROF_{new}",
        kind=Kind.GAUGE,
        help=help,
        ours=OURS[field],
        of_gpu=attrgetter(f"reading.{field}"),
        of_instance=field,
        of_pod=of_pod,
        unit=RATIO,
    )


def _pcie(direction: str, help: str) -> Field:
    name, field = f"DCGM_FI_PROF_PCIE_{direction.upper()}_BYTES", "pcie_throughput_bytes_per_second"
    value = one_of(field, (direction,))
    return Field(old=name, new=name, kind=Kind.GAUGE, help=help, ours=OURS[field], of_gpu=value)


def _clock(old: str, new: str, help: str, *domains: str) -> Field:
    value = one_of("clock_hertz", *((domain,) for domain in domains))
    return _dev(old, new, Kind.GAUGE, help, "clock_hertz", value=value, unit=CLOCK)


def _celsius(old: str, new: str, field: str, help: str) -> Field:
    return _dev(old, f"{new}_CELSIUS", Kind.GAUGE, help, f"{field}_celsius", unit=CELSIUS)


def _watts(old: str, new: str, field: str, help: str) -> Field:
    return _dev(old, f"{new}_WATTS", Kind.GAUGE, help, f"{field}_watts", unit=WATTS)


def _utilization(old: str, new: str, field: str, of_pod: str, help: str) -> Field:
    return _dev(
        f"{old}_UTIL",
        f"{new}_UTIL_RATIO",
        Kind.GAUGE,
        help,
        f"{field}_utilization_ratio",
        of_pod=pod_value(f"{of_pod}_ratio"),
        unit=PERCENT,
    )


def _memory(old: str, new: str, field: str, help: str, of_pod: OfPod | None = None) -> Field:
    return _dev(old, new, Kind.GAUGE, help, field, of_instance=field, of_pod=of_pod, unit=MEMORY)


def _violation(old: str, new: str, reason: str) -> Field:
    return _dev(
        f"{old}_VIOLATION",
        f"GPU_{new}_THROTTLE_SECONDS_TOTAL",
        Kind.COUNTER,
        f"Time for which the clocks were throttled, {reason.replace('_', ' ')}",
        "throttle_seconds",
        value=one_of("throttle_seconds", (reason,)),
        unit=TIME,
    )


def _ecc(name: str, type: str, lifetime: str) -> Field:
    name, value = f"ECC_{name}_TOTAL", one_of("ecc_errors", (type, lifetime))
    return _dev(name, name, Kind.COUNTER, f"ECC errors, {type}, {lifetime}", "ecc_errors", value=value)


def _counts(old: str, new: str, help: str, field: str, *labels: str) -> Field:
    return _dev(old, new, Kind.COUNTER, help, field, value=one_of(field, labels))


def _link_errors(name: str, kind: str) -> Field:
    return _dev(
        f"NVLINK_{name}_ERROR_COUNT_TOTAL",
        f"NVLINK_{name}_ERROR_TOTAL",
        Kind.COUNTER,
        f"NVLink errors over all links, {kind.replace('_', ' ')}",
        "nvlink_errors",
        value=lambda device: sum_link_errors(device.reading, kind),
    )


def _reasons(old: str, new: str) -> Field:
    help = "Why the clocks are held down, as NVML's bit mask"
    return _dev(old, new, Kind.GAUGE, help, "throttle_active", value=reasons_mask)


_G, _C = Kind.GAUGE, Kind.COUNTER

FIELDS: tuple[Field, ...] = (
    # An AMD GPU has one clock for all of its graphics core.
    _clock("SM_CLOCK", "SM_CLOCK_HERTZ", "Clock of the multiprocessors", "sm", "graphics"),
    _clock("MEM_CLOCK", "MEMORY_CLOCK_HERTZ", "Clock of the memory", "memory"),
    _clock("VIDEO_CLOCK", "VIDEO_CLOCK_HERTZ", "Clock of the video engines", "video"),
    _reasons("CLOCK_THROTTLE_REASONS", ""),
    _reasons("CLOCKS_EVENT_REASONS", "CLOCKS_EVENT_REASONS"),
    _celsius("MEMORY_TEMP", "MEMORY_TEMP", "memory_temperature", "Memory temperature"),
    _celsius("GPU_TEMP", "GPU_TEMP", "temperature", "Core temperature"),
    _celsius(
        "SLOWDOWN_TEMP",
        "GPU_TEMP_SLOWDOWN",
        "temperature_slowdown",
        "Core temperature at which the hardware slows down",
    ),
    _celsius(
        "SHUTDOWN_TEMP",
        "GPU_TEMP_SHUTDOWN",
        "temperature_shutdown",
        "Core temperature at which the hardware shuts down",
    ),
    _watts("POWER_USAGE", "BOARD_POWER", "power", "Power draw"),
    _watts(
        "POWER_MGMT_LIMIT", "BOARD_POWER_LIMIT_REQUESTED", "power_limit", "Power limit set by the operator"
    ),
    _watts(
        "ENFORCED_POWER_LIMIT", "BOARD_POWER_LIMIT_ENFORCED", "power_enforced_limit", "Power limit in force"
    ),
    Field(
        old="DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        new="DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL",
        kind=_C,
        help="Energy used since the driver was loaded; of a pod, what it is charged for",
        ours="gputally_gpu_energy_joules_total",
        of_gpu=attrgetter("energy_millijoules"),
        of_pod=pod_value("energy_millijoules"),
        unit=ENERGY,
    ),
    _dev("PCIE_REPLAY_COUNTER", "PCIE_REPLAY_TOTAL", _C, "PCIe packets sent again", "pcie_replays"),
    _utilization("GPU", "GPU", "gpu", "sm", "Use of the GPU; of a pod, its SM use"),
    _utilization("MEM_COPY", "MEMORY", "memory", "memory", "Use of the memory's bandwidth"),
    _utilization("ENC", "ENC", "encoder", "encoder", "Use of the video encoder"),
    _utilization("DEC", "DEC", "decoder", "decoder", "Use of the video decoder"),
    Field(
        old="DCGM_FI_DEV_XID_ERRORS",
        new="DCGM_FI_DEV_XID_ERROR",
        kind=_G,
        help="Code of the last XID error since the exporter started, 0 when there was none",
        ours=OURS["xid_last_timestamp_seconds"],
        of_gpu=lambda device: last_xid(device.reading),
        value_labels=("err_code", "err_msg"),
        label_values=lambda code: (str(int(code)), xid_message(int(code))),
    ),
    _violation("POWER", "POWER", "sw_power_cap"),
    _violation("THERMAL", "THERMAL", "thermal"),
    _violation("SYNC_BOOST", "SYNC_BOOST", "sync_boost"),
    _violation("BOARD_LIMIT", "LIMIT", "board_limit"),
    _violation("LOW_UTIL", "LOW_UTIL", "low_utilization"),
    _violation("RELIABILITY", "RELIABILITY", "reliability"),
    _memory("FB_TOTAL", "FB_CAPACITY_BYTES", "memory_total_bytes", "Device memory on the card"),
    _memory("FB_FREE", "FB_FREE_BYTES", "memory_free_bytes", "Device memory that is free"),
    _memory(
        "FB_USED",
        "FB_USED_BYTES",
        "memory_used_bytes",
        "Device memory that is allocated",
        of_pod=pod_value("memory_used_bytes"),
    ),
    _memory("FB_RESERVED", "FB_RESERVED_BYTES", "memory_reserved_bytes", "Device memory the driver keeps"),
    _dev(
        "FB_USED_PERCENT",
        "FB_USED_RATIO",
        _G,
        "Allocated share of the device memory that the driver leaves",
        "memory_used_bytes",
        value=used_ratio,
        unit=RATIO,
    ),
    _ecc("SBE_VOL", "corrected", "volatile"),
    _ecc("DBE_VOL", "uncorrected", "volatile"),
    _ecc("SBE_AGG", "corrected", "aggregate"),
    _ecc("DBE_AGG", "uncorrected", "aggregate"),
    _counts(
        "RETIRED_SBE",
        "PAGE_RETIRED_SBE_TOTAL",
        "Memory pages retired for single-bit errors",
        "retired_pages",
        "single_bit",
    ),
    _counts(
        "RETIRED_DBE",
        "PAGE_RETIRED_DBE_TOTAL",
        "Memory pages retired for double-bit errors",
        "retired_pages",
        "double_bit",
    ),
    _dev(
        "RETIRED_PENDING",
        "PAGE_RETIRED_PENDING",
        _C,
        "1 when pages wait for a reset to be retired",
        "retired_pages_pending",
    ),
    _counts(
        "UNCORRECTABLE_REMAPPED_ROWS",
        "ROW_REMAP_UNCORRECTABLE_TOTAL",
        "Memory rows remapped for uncorrectable errors",
        "remapped_rows",
        "uncorrectable",
    ),
    _counts(
        "CORRECTABLE_REMAPPED_ROWS",
        "ROW_REMAP_CORRECTABLE_TOTAL",
        "Memory rows remapped for correctable errors",
        "remapped_rows",
        "correctable",
    ),
    _dev(
        "ROW_REMAP_FAILURE",
        "ROW_REMAP_FAILED",
        _G,
        "1 when a memory row could not be remapped",
        "remapped_rows_failure",
    ),
    _dev(
        "ROW_REMAP_PENDING",
        "ROW_REMAP_PENDING",
        _G,
        "1 when rows wait for a reset to be remapped",
        "remapped_rows_pending",
    ),
    _link_errors("CRC_FLIT", "crc_flit"),
    _link_errors("CRC_DATA", "crc_data"),
    _link_errors("REPLAY", "replay"),
    _link_errors("RECOVERY", "recovery"),
    Field(
        old="DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
        new="DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND",
        kind=_C,  # up to 4.8.2; a rate all the same
        new_kind=_G,
        help="Throughput of all NVLinks, both ways, since the sample before",
        ours=OURS["nvlink_bytes"],
        of_gpu=attrgetter("reading.nvlink_bytes_per_second"),
        unit=LINK_RATE,
    ),
    _counts(
        "NVLINK_COUNT_TX_BYTES", "NVLINK_TX_BYTES_TOTAL", "Bytes sent over all NVLinks", "nvlink_bytes", "tx"
    ),
    _counts(
        "NVLINK_COUNT_RX_BYTES",
        "NVLINK_RX_BYTES_TOTAL",
        "Bytes received over all NVLinks",
        "nvlink_bytes",
        "rx",
    ),
    _dev("PSTATE", "GPU_PSTATE", _G, "Performance state, 0 is the fastest", "performance_state"),
    _dev(
        "FAN_SPEED",
        "FAN_SPEED_RATIO",
        _G,
        "Speed of the first fan",
        "fan_speed_ratio",
        value=one_of("fan_speed_ratio", ("0",)),
        unit=PERCENT,
    ),
    _prof(
        "GR_ENGINE_ACTIVE",
        "GR_ENGINE_UTIL_RATIO",
        "graphics_active_ratio",
        "Share of time that an engine was active; of a pod that shares the GPU, its SM use",
        of_pod=DeviceView.engine_ratio,
    ),
    _prof("SM_ACTIVE", "SM_UTIL_RATIO", "sm_active_ratio", "Share of time that multiprocessors had work"),
    _prof(
        "SM_OCCUPANCY",
        "SM_OCCUPANCY_RATIO",
        "sm_occupancy_ratio",
        "Warps on the multiprocessors, as a share of the most they can hold",
    ),
    _prof(
        "PIPE_TENSOR_ACTIVE",
        "TENSOR_UTIL_RATIO",
        "tensor_active_ratio",
        "Share of time that the tensor cores were active",
    ),
    _prof(
        "DRAM_ACTIVE", "DRAM_UTIL_RATIO", "dram_active_ratio", "Share of time that device memory moved data"
    ),
    *(
        _prof(
            f"PIPE_{pipe}_ACTIVE",
            f"{pipe}_UTIL_RATIO",
            f"{pipe.lower()}_active_ratio",
            f"Share of time that the {pipe} pipe was active",
        )
        for pipe in ("FP64", "FP32", "FP16")
    ),
    _pcie("tx", "Bytes sent over PCIe per second"),
    _pcie("rx", "Bytes received over PCIe per second"),
)
