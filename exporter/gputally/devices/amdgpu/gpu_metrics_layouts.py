"""The C structs of amdgpu's binary tables, as data: from bytes to the kernel's fields.

Written from Linux 7.1 (rc4): drivers/gpu/drm/amd/include/kgd_pp_interface.h, and pm/swsmu/smu_cmn.h for the
tables that are lists of attributes. A table begins with its size and its version. The driver fills it with
ones before it sets what the chip measures, so all ones is "not measured".
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass

Version = tuple[int, int]  # format revision, content revision
TableValues = Mapping[str, tuple[int | None, ...]]  # by the kernel's field name; None = not measured

HEADER = struct.Struct("@HBB")  # structure size, format revision, content revision
_MOST_PARTITIONS = 8
_COUNT = struct.Struct("@i")
_WORD = struct.Struct("@Q")


class UnknownTable(Exception):
    """A version without a layout."""

    def __init__(self, format_revision: int, content_revision: int) -> None:
        super().__init__(f"version {format_revision}.{content_revision} is not known")
        self.format_revision = format_revision
        self.content_revision = content_revision


class BrokenTable(Exception):
    """A table that is shorter than its header or its version requires."""


@dataclass(frozen=True, slots=True)
class GpuMetricsLayout:
    """The offsets of the fields of one C struct."""

    shape: struct.Struct
    fields: Mapping[str, tuple[slice, int]]  # positions among the unpacked values, the field's all-ones

    def read(self, table: bytes) -> TableValues:
        numbers = self.shape.unpack_from(table)
        return {
            name: tuple(None if number == nothing else number for number in numbers[places])
            for name, (places, nothing) in self.fields.items()
        }


def _all_ones(code: str) -> int:
    return int(2 ** (8 * struct.calcsize(f"={code}")) - 1)


def _layout(text: str) -> GpuMetricsLayout:
    """From the fields after the header as `name:kind`, the kind (`H` if none) as in the struct module.

    `|` begins a nested struct. All these structs have 64-bit members, so C aligns their beginnings and ends.
    """
    codes = [HEADER.format]
    fields: dict[str, tuple[slice, int]] = {}
    place = 3
    for item in text.split():
        if item == "|":
            codes.append("0Q")
            continue
        name, _, kind = item.partition(":")
        kind = kind or "H"
        count = int(kind[:-1] or 1)
        fields[name] = (slice(place, place + count), _all_ones(kind[-1]))
        codes.append(kind)
        place += count
    return GpuMetricsLayout(struct.Struct("".join([*codes, "0Q"])), fields)


_SENSORS = (
    "temperature_edge temperature_hotspot temperature_mem temperature_vrgfx temperature_vrsoc"
    " temperature_vrmem average_gfx_activity average_umc_activity average_mm_activity average_socket_power"
)
_CLOCKS = (
    "average_gfxclk_frequency average_socclk_frequency average_uclk_frequency average_vclk0_frequency"
    " average_dclk0_frequency average_vclk1_frequency average_dclk1_frequency current_gfxclk current_socclk"
    " current_uclk current_vclk0 current_dclk0 current_vclk1 current_dclk1 throttle_status:I"
    " current_fan_speed"
)
_V1_0 = (
    f"system_clock_counter:Q {_SENSORS} energy_accumulator:I {_CLOCKS} pcie_link_width:B pcie_link_speed:B"
)
_V1_1 = (
    f"{_SENSORS} energy_accumulator:Q system_clock_counter:Q {_CLOCKS} pcie_link_width pcie_link_speed"
    " padding gfx_activity_acc:I mem_activity_acc:I temperature_hbm:4H"
)
_V1_2 = f"{_V1_1} firmware_timestamp:Q"
_V1_3 = f"{_V1_2} voltage_soc voltage_gfx voltage_mem padding1 indep_throttle_status:Q"

# Instinct, from MI300 on
_SOCKET = (
    "temperature_hotspot temperature_mem temperature_vrsoc curr_socket_power average_gfx_activity"
    " average_umc_activity"
)
_ENERGY = "energy_accumulator:Q system_clock_counter:Q"
_RESIDENCIES = (
    "accumulation_counter:I prochot_residency_acc:I ppt_residency_acc:I socket_thm_residency_acc:I"
    " vr_thm_residency_acc:I hbm_thm_residency_acc:I"
)
_LINKS = (
    "gfxclk_lock_status:I pcie_link_width pcie_link_speed xgmi_link_width xgmi_link_speed gfx_activity_acc:I"
    " mem_activity_acc:I pcie_bandwidth_acc:Q pcie_bandwidth_inst:Q pcie_l0_to_recov_count_acc:Q"
    " pcie_replay_count_acc:Q pcie_replay_rover_count_acc:Q"
)
_NAKS = "pcie_nak_sent_count_acc:I pcie_nak_rcvd_count_acc:I"
_XGMI = "xgmi_read_data_acc:8Q xgmi_write_data_acc:8Q"
_XGMI_STATUS = "xgmi_link_status:8H padding"
_DIE_CLOCKS = "current_gfxclk:8H current_socclk:4H current_vclk0:4H current_dclk0:4H current_uclk"
_V1_4 = (
    f"{_SOCKET} vcn_activity:4H {_ENERGY} throttle_status:I {_LINKS} {_XGMI} firmware_timestamp:Q"
    f" {_DIE_CLOCKS} padding"
)
_V1_5 = (
    f"{_SOCKET} vcn_activity:4H jpeg_activity:32H {_ENERGY} throttle_status:I {_LINKS} {_NAKS} {_XGMI}"
    f" firmware_timestamp:Q {_DIE_CLOCKS} padding"
)
_BUSY = "gfx_busy_inst:8I jpeg_busy:32H vcn_busy:4H gfx_busy_acc:8Q"
_BUSY_1 = f"{_BUSY} gfx_below_host_limit_acc:8Q"
_BUSY_2 = (
    "gfx_busy_inst:8I jpeg_busy:40H vcn_busy:4H gfx_busy_acc:8Q gfx_below_host_limit_ppt_acc:8Q"
    " gfx_below_host_limit_thm_acc:8Q gfx_low_utilization_acc:8Q gfx_below_host_limit_total_acc:8Q"
)


def _partitioned(before: str, xgmi: str, busy: str) -> str:
    partitions = " ".join(
        f"| xcp{number}_{item}" if place == 0 else f"xcp{number}_{item}"
        for number in range(_MOST_PARTITIONS)
        for place, item in enumerate(busy.split())
    )
    return (
        f"{before} {_ENERGY} {_RESIDENCIES} {_LINKS} {_NAKS} {xgmi} firmware_timestamp:Q {_DIE_CLOCKS}"
        f" num_partition {partitions} pcie_lc_perf_other_end_recovery:I"
    )


_V1_6 = _partitioned(_SOCKET, _XGMI, _BUSY)
_V1_7 = _partitioned(f"{_SOCKET} mem_max_bandwidth:Q", f"{_XGMI} {_XGMI_STATUS}", _BUSY_1)
_V1_8 = _partitioned(f"{_SOCKET} mem_max_bandwidth:Q", f"{_XGMI} {_XGMI_STATUS}", _BUSY_2)

# APUs
_APU_SENSORS = (
    "temperature_gfx temperature_soc temperature_core:8H temperature_l3:2H average_gfx_activity"
    " average_mm_activity"
)
_APU_REST = (
    "average_socket_power average_cpu_power average_soc_power average_gfx_power average_core_power:8H"
    " average_gfxclk_frequency average_socclk_frequency average_uclk_frequency average_fclk_frequency"
    " average_vclk_frequency average_dclk_frequency current_gfxclk current_socclk current_uclk current_fclk"
    " current_vclk current_dclk current_coreclk:8H current_l3clk:2H throttle_status:I fan_pwm"
)
_V2_0 = f"system_clock_counter:Q {_APU_SENSORS} {_APU_REST} padding"
_V2_1 = f"{_APU_SENSORS} system_clock_counter:Q {_APU_REST} padding:3H"
_V2_2 = f"{_V2_1} indep_throttle_status:Q"
_V2_3 = (
    f"{_V2_2} average_temperature_gfx average_temperature_soc average_temperature_core:8H"
    " average_temperature_l3:2H"
)
_V2_4 = (
    f"{_V2_3} average_cpu_voltage average_soc_voltage average_gfx_voltage average_cpu_current"
    " average_soc_current average_gfx_current"
)
_V3_0 = (
    "temperature_gfx temperature_soc temperature_core:16H temperature_skin average_gfx_activity"
    " average_vcn_activity average_ipu_activity:8H average_core_c0_activity:16H average_dram_reads"
    " average_dram_writes average_ipu_reads average_ipu_writes system_clock_counter:Q average_socket_power:I"
    " average_ipu_power average_apu_power:I average_gfx_power:I average_dgpu_power:I average_all_core_power:I"
    " average_core_power:16H average_sys_power stapm_power_limit current_stapm_power_limit"
    " average_gfxclk_frequency average_socclk_frequency average_vpeclk_frequency average_ipuclk_frequency"
    " average_fclk_frequency average_vclk_frequency average_uclk_frequency average_mpipu_frequency"
    " current_coreclk:16H current_core_maxfreq current_gfx_maxfreq throttle_residency_prochot:I"
    " throttle_residency_spl:I throttle_residency_fppt:I throttle_residency_sppt:I"
    " throttle_residency_thm_core:I throttle_residency_thm_gfx:I throttle_residency_thm_soc:I"
    " time_filter_alphavalue:I"
)

LAYOUTS: Mapping[Version, GpuMetricsLayout] = {
    (1, 0): _layout(_V1_0),
    (1, 1): _layout(_V1_1),
    (1, 2): _layout(_V1_2),
    (1, 3): _layout(_V1_3),
    (1, 4): _layout(_V1_4),
    (1, 5): _layout(_V1_5),
    (1, 6): _layout(_V1_6),
    (1, 7): _layout(_V1_7),
    (1, 8): _layout(_V1_8),
    (2, 0): _layout(_V2_0),
    (2, 1): _layout(_V2_1),
    (2, 2): _layout(_V2_2),
    (2, 3): _layout(_V2_3),
    (2, 4): _layout(_V2_4),
    (3, 0): _layout(_V3_0),
}

ATTRIBUTES_VERSION: Version = (1, 9)
# A table of these versions is a list without gaps: a 64-bit word (unit, type, id, how many values) and the
# values. The place in this text is the id, the number behind the colon the unit that the kernel uses.
_ATTRIBUTES = (
    "temperature_hotspot:2 temperature_mem:2 temperature_vrsoc:2 curr_socket_power:3 average_gfx_activity:10"
    " average_umc_activity:10 mem_max_bandwidth:8 energy_accumulator:0 system_clock_counter:4"
    " accumulation_counter:0 prochot_residency_acc:0 ppt_residency_acc:0 socket_thm_residency_acc:0"
    " vr_thm_residency_acc:0 hbm_thm_residency_acc:0 gfxclk_lock_status:0 pcie_link_width:0 pcie_link_speed:7"
    " xgmi_link_width:0 xgmi_link_speed:6 gfx_activity_acc:10 mem_activity_acc:10 pcie_bandwidth_acc:10"
    " pcie_bandwidth_inst:8 pcie_l0_to_recov_count_acc:0 pcie_replay_count_acc:0"
    " pcie_replay_rover_count_acc:0 pcie_nak_sent_count_acc:0 pcie_nak_rcvd_count_acc:0"
    " xgmi_read_data_acc:9 xgmi_write_data_acc:9 xgmi_link_status:0 firmware_timestamp:5 current_gfxclk:1"
    " current_socclk:1 current_vclk0:1 current_dclk0:1 current_uclk:1 num_partition:0"
    " pcie_lc_perf_other_end_recovery:0 gfx_busy_inst:10 jpeg_busy:10 vcn_busy:10 gfx_busy_acc:10"
    " gfx_below_host_limit_ppt_acc:0 gfx_below_host_limit_thm_acc:0 gfx_low_utilization_acc:0"
    " gfx_below_host_limit_total_acc:0 temperature_hbm:2 temperature_mid:2 temperature_aid:2"
    " temperature_xcd:2"
)
ATTRIBUTES: tuple[tuple[str, int], ...] = tuple(
    (name, int(unit)) for name, unit in (item.split(":") for item in _ATTRIBUTES.split())
)
ATTRIBUTE_TYPES = "BbHhIiQq"  # in the order of their codes


def read_table(table: bytes) -> tuple[Version, TableValues]:
    """A card's table. Raises UnknownTable or BrokenTable."""
    if len(table) < HEADER.size:
        raise BrokenTable(f"{len(table)} bytes are no table")
    size, format_revision, content_revision = HEADER.unpack_from(table)
    version = (format_revision, content_revision)
    if version not in LAYOUTS and version != ATTRIBUTES_VERSION:
        raise UnknownTable(*version)
    if size > len(table):
        raise BrokenTable(f"the table says it has {size} bytes and has {len(table)}")
    if version == ATTRIBUTES_VERSION:
        return version, _read_attributes(table[:size])
    layout = LAYOUTS[version]
    if size < layout.shape.size:  # a longer one has new fields at its end
        raise BrokenTable(f"{size} bytes for a table that has {layout.shape.size}")
    return version, layout.read(table)


def _read_attributes(table: bytes) -> TableValues:
    """What the list holds. Unknown ids, and known ones in another unit than ours, are passed over."""
    values: dict[str, tuple[int | None, ...]] = {}
    try:
        (count,) = _COUNT.unpack_from(table, HEADER.size)
        place = HEADER.size + _COUNT.size
        for _ in range(count):
            (word,) = _WORD.unpack_from(table, place)
            code = ATTRIBUTE_TYPES[word >> 20 & 0xF]
            kind = struct.Struct(f"={word & 0x3FF}{code}")
            numbers = kind.unpack_from(table, place + _WORD.size)
            place += _WORD.size + kind.size
            number = word >> 10 & 0x3FF
            if number < len(ATTRIBUTES) and ATTRIBUTES[number][1] == word >> 24:
                nothing = -1 if code.islower() else _all_ones(code)
                values[ATTRIBUTES[number][0]] = tuple(None if n == nothing else n for n in numbers)
    except (struct.error, IndexError):
        raise BrokenTable(f"{len(table)} bytes do not hold the attributes they announce") from None
    if count < 0:
        raise BrokenTable(f"{count} attributes")
    return values
