"""The names of dcgm-exporter 1.x, as pod-gpu-metrics-exporter served them with the pod of each GPU.

That tool had one pod per GPU. Where there are several, a value that is known per pod is exported per pod,
any other once for the GPU, without a pod: never the whole GPU's value once per pod.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter

from gputally.metrics.catalog import Kind
from gputally.metrics.compat import ProfileInput, Row
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
from gputally.metrics.compat.device_views import (
    NO_POD,
    DeviceView,
    PodUse,
    last_xid,
    list_devices,
    sum_link_errors,
)
from gputally.metrics.families import Family
from gputally.model import Labels, Reading

_LABELS = ("gpu", "uuid", "pod_name", "pod_namespace", "container_name")
_LINK_ERRORS = {"flit_crc": "crc_flit", "data_crc": "crc_data", "replay": "replay", "recovery": "recovery"}


def _link_errors(name: str, kind: str) -> Column:
    help = f"NVLink errors of all links: {name.replace('_', ' ')}."
    return Column(
        Row(f"dcgm_nvlink_{name}_error_count_total", Kind.COUNTER, help, OURS["nvlink_errors"]),
        lambda reading: sum_link_errors(reading, kind),
    )


def _throttled(name: str, reason: str, why: str) -> Column:
    help = f"Time for which the clocks were throttled {why}, in us."
    return counter(f"dcgm_{name}_violation", help, "throttle_seconds", reason, scale=microseconds)


@dataclass(frozen=True, slots=True)
class _Shared:
    """A value per pod where it is known, else of the GPU."""

    row: Row
    of_gpu: Callable[[DeviceView], float | None]
    of_pod: Callable[[PodUse], float | None]


def _use(name: str, help: str, field: str, use_field: str, scale: Scale) -> _Shared:
    """`field` is the reading's."""
    column = gauge(name, help, field, scale=scale)

    def of_pod(use: PodUse) -> float | None:
        value = getattr(use, use_field)
        return None if value is None else scale(value)

    return _Shared(column.row, lambda device: column.value(device.reading), of_pod)


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
    counter("dcgm_pcie_replay_counter", "Retransmitted PCIe packets.", "pcie_replays"),
    Column(
        Row("dcgm_xid_errors", Kind.GAUGE, "Code of the last XID error; 0 is none.", OURS["xid_errors"]),
        last_xid,
    ),
    _throttled("power", "sw_power_cap", "by the power limit"),
    _throttled("thermal", "thermal", "for temperature"),
    _throttled("sync_boost", "sync_boost", "by sync boost"),
    _throttled("board_limit", "board_limit", "by the board's limit"),
    _throttled("low_util", "low_utilization", "at low utilisation"),
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
    counter(
        "dcgm_retired_pages_pending", "1 when pages are retired at the next reset.", "retired_pages_pending"
    ),
    *(_link_errors(name, kind) for name, kind in _LINK_ERRORS.items()),
)

_ENERGY = _Shared(
    Row(
        "dcgm_total_energy_consumption",
        Kind.COUNTER,
        "Energy in mJ: charged to the pod, or used by the GPU where no pod was on it.",
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
class _LabelledGpu:
    """A GPU and the use of it and its instances by each pod, with the labels of their samples."""

    device: DeviceView
    labels: Labels
    pods: Mapping[Labels, PodUse]


def families(inputs: ProfileInput) -> list[Family]:
    """Every metric that has a sample."""
    gpus = [_with_labels(device) for device in inputs.once(list_devices)]
    found = [
        *(_shared_family(use, gpus) for use in _USES),
        *column_families(_WHOLE, _WHOLE_METRICS, [(gpu.labels, gpu.device.reading) for gpu in gpus]),
        _shared_family(_ENERGY, gpus),
    ]
    return [family for family in found if family.samples]


def _with_labels(gpu: DeviceView) -> _LabelledGpu:
    reading = gpu.reading
    pods = {
        _labels(reading, device.mig[0].instance.uuid if device.mig else reading.gpu.uuid, use.pod): use
        for device in (gpu, *gpu.instances)
        for use in device.pods
    }
    names = {use.pod for use in pods.values()}
    only_pod = names.pop() if len(names) == 1 else NO_POD
    return _LabelledGpu(gpu, _labels(reading, reading.gpu.uuid, only_pod), pods)


def _labels(reading: Reading, uuid: str, pod: Labels) -> Labels:
    namespace, name, container = pod
    return (str(reading.gpu.index), uuid, name, namespace, container)


def _shared_family(shared: _Shared, gpus: Iterable[_LabelledGpu]) -> Family:
    family = Family(shared.row.metric(_LABELS))
    of_gpu, of_pod = shared.of_gpu, shared.of_pod
    for gpu in gpus:
        found = [(labels, value) for labels, use in gpu.pods.items() if (value := of_pod(use)) is not None]
        if not found and (whole := of_gpu(gpu.device)) is not None:
            found = [(gpu.labels, whole)]
        family.samples.extend(found)
    return family
