"""Decodes amdgpu's binary table `gpu_metrics`.

Written from Linux 7.1 (rc4): the units are those of kgd_pp_interface.h and, where it has none or
wrong ones, those of the code in pm/swsmu that fills the tables.
https://docs.kernel.org/gpu/amdgpu/thermal.html
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gputally.devices.amdgpu.gpu_metrics_layouts import (
    TableValues,
    Version,
    read_table,
)
from gputally.model import Labelled


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetrics:
    """The activity of one partition of a GPU."""

    gfx_activity_ratio: float | None = None  # mean over its compute dies
    gfx_busy_counts: tuple[int, ...] = ()  # of each compute die; see `GpuMetrics.gfx_busy_counts`
    jpeg_activity_ratio: float | None = None  # of the busiest JPEG engine


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMetrics:
    """One table in base units. Of several engines or dies it has the busiest, or the fastest.

    Without the PCIe bandwidth fields: kernels document their unit as GB/s, Mb/s and percent.
    """

    format_revision: int
    content_revision: int
    energy_millijoules: int | None = None
    power_watts: float | None = None
    gfx_activity_ratio: float | None = None
    gfx_busy_counts: tuple[int, ...] = ()
    """The sum of the activity in percent over all cycles of the firmware (`gfx_activity_acc`)."""
    cycles: int | None = None
    """The number of those cycles; None before v1.6, where the meaning of the sum is not documented."""
    memory_activity_ratio: float | None = None
    jpeg_activity_ratio: float | None = None
    temperatures_celsius: Labelled = field(default_factory=dict)  # sensor
    clocks_hertz: Labelled = field(default_factory=dict)  # domain
    throttlers: frozenset[str] | None = None  # names of THROTTLERS
    throttle_residencies: Mapping[str, int] = field(default_factory=dict)  # firmware cycles throttled so far
    pcie_generation: int | None = None
    pcie_width: int | None = None
    pcie_replays: int | None = None
    xgmi_bytes: Labelled = field(default_factory=dict)  # link, direction
    xgmi_up: Labelled = field(default_factory=dict)  # link
    partitions: tuple[PartitionMetrics, ...] = ()  # where the GPU's table has values by partition
    die_activity_percent: tuple[int, ...] = ()  # of each compute die: v1.9 has it instead of partitions
    die_busy_counts: tuple[int, ...] = ()

    def partitioned(self, count: int) -> "GpuMetrics":
        """With the values of so many partitions, from those of the dies.

        Each partition has equally many dies, the first one the first (XCP_INST_MASK in the kernel's
        aqua_vanjaram.c).
        """
        dies = len(self.die_activity_percent)
        if self.partitions or not dies or not count or dies % count:
            return self
        slices = [slice(first, first + dies // count) for first in range(0, dies, dies // count)]
        return replace(
            self,
            partitions=tuple(
                PartitionMetrics(
                    gfx_activity_ratio=_mean(self.die_activity_percent[places]),
                    gfx_busy_counts=self.die_busy_counts[places],
                )
                for places in slices
            ),
        )


@dataclass(frozen=True, slots=True)
class _Units:
    """The table's units per degree, per whole (of an activity) and per watt."""

    celsius: int
    ratio: int
    watts: int | None


_CARD = _Units(celsius=1, ratio=100, watts=1)
# v3.0's comments say percent, but the driver itself divides by 100 to get percent.
_APU = _Units(celsius=100, ratio=10_000, watts=1000)
# Renoir writes these versions, in milliwatts with old firmware and in watts with new. For a short while it
# wrote v2.1 too; v2.1 is read as milliwatts, which the many other APUs write.
_RENOIR = _Units(celsius=100, ratio=10_000, watts=None)
_RENOIR_VERSIONS = {(2, 0), (2, 2)}


def _units(version: Version) -> _Units:
    if version in _RENOIR_VERSIONS:
        return _RENOIR
    return _CARD if version[0] == 1 else _APU


_TEMPERATURES = ("edge", "hotspot", "mem", "vrgfx", "vrsoc", "vrmem", "gfx", "soc", "skin")
_NUMBERED_TEMPERATURES = ("hbm", "mid", "aid", "xcd")
_OFTEN_MISSING = ("vr", "hbm")  # sensors that read 0 where the board has none
_CLOCK_DOMAINS = {
    "graphics": ("current_gfxclk", "average_gfxclk_frequency"),
    "memory": ("current_uclk", "average_uclk_frequency"),
    "soc": ("current_socclk", "average_socclk_frequency"),
    "fabric": ("current_fclk", "average_fclk_frequency"),
    "video": ("current_vclk0", "current_vclk", "average_vclk0_frequency", "average_vclk_frequency"),
    "video_1": ("current_vclk1", "average_vclk1_frequency"),
    "decode": ("current_dclk0", "current_dclk", "average_dclk0_frequency", "average_dclk_frequency"),
    "decode_1": ("current_dclk1", "average_dclk1_frequency"),
}
_RESIDENCY_FIELDS = {
    "prochot": ("prochot_residency_acc", "throttle_residency_prochot"),
    "ppt": ("ppt_residency_acc",),
    "spl": ("throttle_residency_spl",),
    "fppt": ("throttle_residency_fppt",),
    "sppt": ("throttle_residency_sppt",),
    "socket_thm": ("socket_thm_residency_acc",),
    "vr_thm": ("vr_thm_residency_acc",),
    "hbm_thm": ("hbm_thm_residency_acc",),
    "thm_core": ("throttle_residency_thm_core",),
    "thm_gfx": ("throttle_residency_thm_gfx",),
    "thm_soc": ("throttle_residency_thm_soc",),
}
_PCIE_GENERATIONS = {25: 1, 50: 2, 80: 3, 160: 4, 320: 5, 640: 6}  # by 0.1 GT/s
_XGMI_DATA = {"read": "xgmi_read_data_acc", "write": "xgmi_write_data_acc"}
_LINK_STATES = {0: 0.0, 1: 1.0}  # 2 = not available

# The bits of indep_throttle_status (SMU_THROTTLER_*_BIT in amdgpu_smu.h), the same for all chips.
THROTTLERS: Mapping[int, str] = {
    bit: name
    for first, names in (
        (0, "ppt0 ppt1 ppt2 ppt3 spl fppt sppt sppt_apu"),
        (16, "tdc_gfx tdc_soc tdc_mem tdc_vdd tdc_cvip edc_cpu edc_gfx apcc"),
        (32, "temp_gpu temp_core temp_mem temp_edge temp_hotspot temp_soc temp_vr_gfx temp_vr_soc"),
        (40, "temp_vr_mem0 temp_vr_mem1 temp_liquid0 temp_liquid1 vrhot0 vrhot1 prochot_cpu prochot_gfx"),
        (56, "ppm fit"),
    )
    for bit, name in enumerate(names.split(), first)
}
# Throttlers and residencies by the name of model.THROTTLE_REASONS. A limit that firmware keeps by choosing
# clocks is "sw"; a hardware signal that lowers the clocks is "hw". Current limits protect the supply,
# which NVML counts as hw_slowdown. `ppm` and `fit` have no counterpart.
THROTTLE_REASON_OF: Mapping[str, str] = {
    name: reason
    for reason, names in (
        ("sw_power_cap", "ppt ppt0 ppt1 ppt2 ppt3 spl fppt sppt sppt_apu"),
        ("hw_slowdown", "tdc_gfx tdc_soc tdc_mem tdc_vdd tdc_cvip edc_cpu edc_gfx apcc"),
        (
            "sw_thermal_slowdown",
            "temp_gpu temp_core temp_mem temp_edge temp_hotspot temp_soc temp_vr_gfx temp_vr_soc"
            " temp_vr_mem0 temp_vr_mem1 temp_liquid0 temp_liquid1 socket_thm vr_thm hbm_thm thm_core thm_gfx"
            " thm_soc",
        ),
        ("hw_thermal_slowdown", "vrhot0 vrhot1 prochot prochot_cpu prochot_gfx"),
    )
    for name in names.split()
}


def throttle_active(names: Iterable[str]) -> Labelled:
    """1 for each reason that one of these throttlers or residencies maps to, 0 for the others."""
    active = {THROTTLE_REASON_OF.get(name) for name in names}
    return {(reason,): float(reason in active) for reason in THROTTLE_REASON_OF.values()}


def decode(table: bytes) -> GpuMetrics:
    """A card's `gpu_metrics`. Raises UnknownTable or BrokenTable."""
    version, values = read_table(table)
    units = _units(version)
    energy = _energy(version, values)
    partitions = _partitions(values)
    throttlers = _highest(values, "indep_throttle_status")
    return GpuMetrics(
        format_revision=version[0],
        content_revision=version[1],
        energy_millijoules=None if energy is None else energy * 1000 >> 16,
        power_watts=_power(values, units),
        gfx_activity_ratio=_ratio(values, units, "average_gfx_activity"),
        gfx_busy_counts=_counts(values, "gfx_activity_acc"),
        cycles=_highest(values, "accumulation_counter"),
        memory_activity_ratio=_ratio(values, units, "average_umc_activity"),
        jpeg_activity_ratio=_most(
            _ratio(values, units, "jpeg_activity", "jpeg_busy"),
            *(partition.jpeg_activity_ratio for partition in partitions),
        ),
        temperatures_celsius=_temperatures(values, units),
        clocks_hertz=_clocks(values),
        throttlers=None
        if throttlers is None
        else frozenset(name for bit, name in THROTTLERS.items() if throttlers >> bit & 1),
        throttle_residencies={
            name: cycles
            for name, fields in _RESIDENCY_FIELDS.items()
            if (cycles := _highest(values, *fields)) is not None
        },
        pcie_generation=_PCIE_GENERATIONS.get(_highest(values, "pcie_link_speed") or 0),
        pcie_width=_highest(values, "pcie_link_width"),
        pcie_replays=_highest(values, "pcie_replay_count_acc"),
        xgmi_bytes={
            (str(link), direction): kibibytes * 1024
            for direction, name in _XGMI_DATA.items()
            for link, kibibytes in enumerate(values.get(name, ()))
            if kibibytes is not None
        },
        xgmi_up={
            (str(link),): _LINK_STATES[status]
            for link, status in enumerate(values.get("xgmi_link_status", ()))
            if status in _LINK_STATES
        },
        partitions=partitions,
        die_activity_percent=_counts(values, "gfx_busy_inst"),
        die_busy_counts=_counts(values, "gfx_busy_acc"),
    )


def _highest(values: TableValues, *names: str) -> int | None:
    """The highest value of the first field that is measured."""
    for name in names:
        measured = [value for value in values.get(name, ()) if value is not None]
        if measured:
            return max(measured)
    return None


def _counts(values: TableValues, name: str) -> tuple[int, ...]:
    return tuple(count for count in values.get(name, ()) if count is not None)


def _mean(percent: Sequence[int]) -> float | None:
    return sum(percent) / len(percent) / _CARD.ratio if percent else None


def _ratio(values: TableValues, units: _Units, *names: str) -> float | None:
    activity = _highest(values, *names)
    return None if activity is None else activity / units.ratio


def _most(*ratios: float | None) -> float | None:
    return max((ratio for ratio in ratios if ratio is not None), default=None)


def _is_accelerator(values: TableValues) -> bool:
    """Of the chips with v1.1 to v1.3, only MI200 (and MI300 under its first drivers) count their activity."""
    return _highest(values, "gfx_activity_acc") is not None


def _energy(version: Version, values: TableValues) -> int | None:
    """The counter in units of 2^-16 J (15.259 uJ), where that is its unit.

    The header states the unit from v1.4 on. Before, it holds for the Instincts since MI200: Radeons show
    0 or the 32-bit counter of their firmware, and that of MI100 does not run. The second die of an MI250
    shows 0, too: the first die measures its power.
    """
    if version < (1, 4) and not _is_accelerator(values):
        return None
    return _highest(values, "energy_accumulator") or None


def _power(values: TableValues, units: _Units) -> float | None:
    power = _highest(values, "curr_socket_power", "average_socket_power")
    if power is None or units.watts is None:
        return None
    if power == 0 and _is_accelerator(values) and _highest(values, "energy_accumulator") == 0:
        return None  # the second die of an MI250
    return power / units.watts


def _temperatures(values: TableValues, units: _Units) -> Labelled:
    measured = {name: _highest(values, f"temperature_{name}") for name in _TEMPERATURES}
    for name in _NUMBERED_TEMPERATURES:
        for number, value in enumerate(values.get(f"temperature_{name}", ())):
            measured[f"{name}{number}"] = value
    for name, value in measured.items():
        if value == 0 and name.startswith(_OFTEN_MISSING):
            measured[name] = None
    return {(name,): value / units.celsius for name, value in measured.items() if value is not None}


def _clocks(values: TableValues) -> Labelled:
    return {
        (domain,): megahertz * 1_000_000
        for domain, names in _CLOCK_DOMAINS.items()
        if (megahertz := _highest(values, *names)) is not None
    }


def _partitions(values: TableValues) -> tuple[PartitionMetrics, ...]:
    count = _highest(values, "num_partition") or 0
    return tuple(
        _partition(values, f"xcp{number}_")
        for number in range(count)
        if f"xcp{number}_gfx_busy_inst" in values
    )


def _partition(values: TableValues, prefix: str) -> PartitionMetrics:
    return PartitionMetrics(
        gfx_activity_ratio=_mean(_counts(values, f"{prefix}gfx_busy_inst")),
        gfx_busy_counts=_counts(values, f"{prefix}gfx_busy_acc"),
        jpeg_activity_ratio=_ratio(values, _CARD, f"{prefix}jpeg_busy"),
    )
