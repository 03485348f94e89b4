"""The names of dcgm-exporter 1.x, as pod-gpu-metrics-exporter served them with the pod of each GPU.

That tool knew one pod per GPU. Where there are several, what can be told of each is told of each, and
what cannot is the GPU's, without a pod: never the whole GPU's value once per pod.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter

from gputally.metrics.catalog import Kind
from gputally.metrics.compat import Row, Scene
from gputally.metrics.compat.columns import (
    OURS,
    Column,
    Scale,
    column_families,
    counter,
    gauge,
    mebibytes,
    megahertz,
    microseconds,
    percent,
)
from gputally.metrics.compat.devices import NO_POD, Part, Place, list_places
from gputally.metrics.families import Family
from gputally.model import Labels, Reading

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

    row: Row
    of_gpu: Callable[[Place], float | None]
    of_pod: Callable[[Part], float | None]


def _use(name: str, help: str, field: str, part_field: str, scale: Scale) -> _Shared:
    """`field` is the reading's."""
    column = gauge(name, help, field, scale=scale)

    def of_pod(part: Part) -> float | None:
        value = getattr(part, part_field)
        return None if value is None else scale(value)

    return _Shared(column.row, lambda place: column.value(place.reading), of_pod)


_USES = (
    _use("dcgm_gpu_utilization", "GPU utilisation in percent.", "gpu_utilization_ratio", "sm_ratio", percent),
    _use(
        "dcgm_mem_copy_utilization",
        "Memory utilisation in percent.",
        "memory_utilization_ratio",
        "memory_ratio",
        percent,
    ),
    _use(
        "dcgm_enc_utilization",
        "Encoder utilisation in percent.",
        "encoder_utilization_ratio",
        "encoder_ratio",
        percent,
    ),
    _use(
        "dcgm_dec_utilization",
        "Decoder utilisation in percent.",
        "decoder_utilization_ratio",
        "decoder_ratio",
        percent,
    ),
    _use(
        "dcgm_fb_used", "Device memory in use, in MiB.", "memory_used_bytes", "memory_used_bytes", mebibytes
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

_ENERGY = _Shared(
    Row(
        "dcgm_total_energy_consumption",
        Kind.COUNTER,
        "Energy in mJ: what the pod is charged for, or the GPU used where no pod was.",
        "gputally_gpu_energy_joules_total",
    ),
    attrgetter("energy_millijoules"),
    attrgetter("energy_millijoules"),
)

ROWS: tuple[Row, ...] = (
    *(use.row for use in _USES),
    *(column.row for column in _WHOLE),
    _ENERGY.row,
)

_WHOLE_METRICS = tuple(column.row.metric(_LABELS) for column in _WHOLE)


@dataclass(frozen=True, slots=True)
class _Spot:
    """A GPU, and what each pod does on it and on each slice of it, with the labels of their samples."""

    place: Place
    labels: Labels
    tenants: Mapping[Labels, Part]


def families(scene: Scene) -> list[Family]:
    """Every metric that has a sample."""
    gpus = [_spot(place) for place in scene.once(list_places)]
    found = [
        *(_shared_family(use, gpus) for use in _USES),
        *column_families(_WHOLE, _WHOLE_METRICS, [(gpu.labels, gpu.place.reading) for gpu in gpus]),
        _shared_family(_ENERGY, gpus),
    ]
    return [family for family in found if family.samples]


def _spot(gpu: Place) -> _Spot:
    reading = gpu.reading
    tenants = {
        _labels(reading, place.mig[0].instance.uuid if place.mig else reading.gpu.uuid, part.pod): part
        for place in (gpu, *gpu.instances)
        for part in place.pods
    }
    pods = {part.pod for part in tenants.values()}
    only_pod = pods.pop() if len(pods) == 1 else NO_POD
    return _Spot(gpu, _labels(reading, reading.gpu.uuid, only_pod), tenants)


def _labels(reading: Reading, uuid: str, pod: Labels) -> Labels:
    namespace, name, container = pod
    return (str(reading.gpu.index), uuid, name, namespace, container)


def _shared_family(shared: _Shared, gpus: Iterable[_Spot]) -> Family:
    family = Family(shared.row.metric(_LABELS))
    of_gpu, of_pod = shared.of_gpu, shared.of_pod
    for gpu in gpus:
        told = [
            (labels, value) for labels, part in gpu.tenants.items() if (value := of_pod(part)) is not None
        ]
        if not told and (whole := of_gpu(gpu.place)) is not None:
            told = [(gpu.labels, whole)]
        family.samples.extend(told)
    return family
