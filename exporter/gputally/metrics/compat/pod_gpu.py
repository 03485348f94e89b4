"""The names of dcgm-exporter 1.x, as pod-gpu-metrics-exporter served them with the pod of each GPU.

That tool knew one pod per GPU. Where there are several, what can be told of each is told of each, and
what cannot is the GPU's, without a pod: never the whole GPU's value once per pod.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gputally.metrics.catalog import Kind
from gputally.metrics.compat import Options, Row
from gputally.metrics.compat.columns import (
    OURS,
    Column,
    counter,
    gauge,
    mebibytes,
    megahertz,
    microseconds,
    percent,
)
from gputally.metrics.compat.devices import NO_POD, Part, Place, list_places
from gputally.metrics.families import Family, Sample
from gputally.model import Labels, Reading, Snapshot

_LABELS = ("gpu", "uuid", "pod_name", "pod_namespace", "container_name")
_LINK_ERRORS = {"flit_crc": "crc_flit", "data_crc": "crc_data", "replay": "replay", "recovery": "recovery"}


def _last_xid(reading: Reading) -> float | None:
    """0 when there was none."""
    if reading.xid_errors is None:
        return None
    came = reading.xid_last_timestamp_seconds or {}
    last = max(reading.xid_errors, key=lambda code: came.get(code, 0.0), default=("0",))
    return float(last[0])


def _link_errors(name: str, kind: str) -> Column:
    def value(reading: Reading) -> float | None:
        counts = [count for (_, one), count in (reading.nvlink_errors or {}).items() if one == kind]
        return sum(counts) if counts else None

    help = f"NVLink errors of all links: {name.replace('_', ' ')}."
    return Column(
        Row(f"dcgm_nvlink_{name}_error_count_total", Kind.COUNTER, help, OURS["nvlink_errors"]), value
    )


def _throttled(name: str, reason: str, why: str) -> Column:
    help = f"Time for which the clocks were held down {why}, in us."
    return counter(f"dcgm_{name}_violation", help, "throttle_seconds", reason, scale=microseconds)


@dataclass(frozen=True, slots=True)
class _Shared:
    """What can be told of each pod, and where it cannot, of the GPU."""

    column: Column
    of_pod: Callable[[Part], float | None]


_SHARED = (
    _Shared(
        gauge("dcgm_gpu_utilization", "GPU utilisation in percent.", "gpu_utilization_ratio", scale=percent),
        lambda part: _percent(part.sm_ratio),
    ),
    _Shared(
        gauge(
            "dcgm_mem_copy_utilization",
            "Memory utilisation in percent.",
            "memory_utilization_ratio",
            scale=percent,
        ),
        lambda part: _percent(part.memory_ratio),
    ),
    _Shared(
        gauge(
            "dcgm_enc_utilization",
            "Encoder utilisation in percent.",
            "encoder_utilization_ratio",
            scale=percent,
        ),
        lambda part: _percent(part.encoder_ratio),
    ),
    _Shared(
        gauge(
            "dcgm_dec_utilization",
            "Decoder utilisation in percent.",
            "decoder_utilization_ratio",
            scale=percent,
        ),
        lambda part: _percent(part.decoder_ratio),
    ),
    _Shared(
        gauge("dcgm_fb_used", "Device memory in use, in MiB.", "memory_used_bytes", scale=mebibytes),
        lambda part: None if part.memory_used_bytes is None else mebibytes(part.memory_used_bytes),
    ),
)

_WHOLE: tuple[Column, ...] = (
    gauge("dcgm_sm_clock", "SM clock in MHz.", "clock_hertz", "sm", scale=megahertz),
    gauge("dcgm_memory_clock", "Memory clock in MHz.", "clock_hertz", "memory", scale=megahertz),
    gauge("dcgm_memory_temp", "Memory temperature in C.", "memory_temperature_celsius"),
    gauge("dcgm_gpu_temp", "GPU temperature in C.", "temperature_celsius"),
    gauge("dcgm_power_usage", "Power draw in W.", "power_watts"),
    # Rates: dcgm-exporter 1.x called them counters.
    *(
        counter(
            f"dcgm_pcie_{direction}_throughput",
            f"PCIe {direction.upper()} throughput in KB/s.",
            "pcie_throughput_bytes_per_second",
            direction,
            scale=lambda count: count / 1000,
        )
        for direction in ("tx", "rx")
    ),
    counter("dcgm_pcie_replay_counter", "PCIe packets sent again.", "pcie_replays"),
    Column(
        Row("dcgm_xid_errors", Kind.GAUGE, "Code of the last XID error; 0 is none.", OURS["xid_errors"]),
        _last_xid,
    ),
    _throttled("power", "sw_power_cap", "by the power limit"),
    _throttled("thermal", "thermal", "by heat"),
    _throttled("sync_boost", "sync_boost", "by sync boost"),
    _throttled("board_limit", "board_limit", "by the board's limit"),
    _throttled("low_util", "low_utilization", "because there was little to do"),
    _throttled("reliability", "reliability", "for reliability"),
    gauge("dcgm_fb_free", "Free device memory in MiB.", "memory_free_bytes", scale=mebibytes),
    *(
        counter(
            f"dcgm_ecc_{bits}_{lifetime}_total",
            f"{kind.capitalize()} {lifetime} ECC errors.",
            "ecc_errors",
            kind,
            lifetime,
        )
        for lifetime in ("volatile", "aggregate")
        for bits, kind in (("sbe", "corrected"), ("dbe", "uncorrected"))
    ),
    counter("dcgm_retired_pages_sbe", "Pages retired for single-bit errors.", "retired_pages", "single_bit"),
    counter("dcgm_retired_pages_dbe", "Pages retired for double-bit errors.", "retired_pages", "double_bit"),
    counter("dcgm_retired_pages_pending", "1 when pages wait to be retired.", "retired_pages_pending"),
    *(_link_errors(name, kind) for name, kind in _LINK_ERRORS.items()),
)

_ENERGY = Row(
    "dcgm_total_energy_consumption",
    Kind.COUNTER,
    "Energy in mJ: what the pod is charged for, or the GPU used where no pod was.",
    "gputally_gpu_energy_joules_total",
)

ROWS: tuple[Row, ...] = (
    *(shared.column.row for shared in _SHARED),
    *(column.row for column in _WHOLE),
    _ENERGY,
)

_SHARED_METRICS = tuple(shared.column.row.metric(_LABELS) for shared in _SHARED)
_WHOLE_METRICS = tuple(column.row.metric(_LABELS) for column in _WHOLE)


def families(snapshot: Snapshot, _options: Options) -> list[Family]:
    """Every metric that has a sample."""
    shared = [Family(metric) for metric in _SHARED_METRICS]
    whole = [Family(metric) for metric in _WHOLE_METRICS]
    energy = Family(_ENERGY.metric(_LABELS))
    for place in list_places(snapshot):
        reading, tenants = place.reading, _tenants(place)
        own = _labels(reading, reading.gpu.uuid, _only_pod(tenants))
        for family, column in zip(whole, _WHOLE, strict=True):
            family.samples.extend(_told({own: column.value(reading)}))
        for family, one in zip(shared, _SHARED, strict=True):
            told = _told({labels: one.of_pod(part) for labels, part in tenants.items()})
            family.samples.extend(told or _told({own: one.column.value(reading)}))
        told = _told({labels: part.energy_millijoules for labels, part in tenants.items()})
        energy.samples.extend(told or _told({own: place.energy_millijoules}))
    return [family for family in (*shared, *whole, energy) if family.samples]


def _tenants(gpu: Place) -> dict[Labels, Part]:
    """What each pod does on the GPU, and on each slice of it, by the labels of a sample."""
    return {
        _labels(
            gpu.reading, place.mig[0].instance.uuid if place.mig else gpu.reading.gpu.uuid, part.pod
        ): part
        for place in (gpu, *gpu.instances)
        for part in place.pods
    }


def _labels(reading: Reading, uuid: str, pod: Labels) -> Labels:
    namespace, name, container = pod
    return (str(reading.gpu.index), uuid, name, namespace, container)


def _only_pod(tenants: Mapping[Labels, Part]) -> Labels:
    """The pod that is on the GPU where no other is."""
    pods = {part.pod for part in tenants.values()}
    return pods.pop() if len(pods) == 1 else NO_POD


def _told(values: Mapping[Labels, float | None]) -> list[Sample]:
    return [(labels, value) for labels, value in values.items() if value is not None]


def _percent(ratio: float | None) -> float | None:
    return None if ratio is None else percent(ratio)
