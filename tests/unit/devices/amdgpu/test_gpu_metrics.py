import struct
import sys
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.devices.amdgpu.gpu_metrics import (
    THROTTLE_REASON_OF,
    THROTTLERS,
    GpuMetrics,
    PartitionMetrics,
    decode,
    throttle_active,
)
from gputally.devices.amdgpu.gpu_metrics_layouts import (
    ATTRIBUTES_VERSION,
    HEADER,
    LAYOUTS,
    BrokenTable,
    UnknownTable,
    Version,
    read_table,
)
from gputally.model import THROTTLE_REASONS
from tests.support.gpu_metrics_tables import (
    CARD_VERSIONS,
    attribute,
    attribute_of,
    build,
    build_attributes,
)

# sizeof and offsetof as gcc has them for the kernel's header on x86-64
LAID_OUT: dict[Version, tuple[int, dict[str, int]]] = {
    (1, 0): (
        80,
        {"system_clock_counter": 8, "energy_accumulator": 36, "current_gfxclk": 54, "pcie_link_speed": 75},
    ),
    (1, 1): (96, {"energy_accumulator": 24, "throttle_status": 68, "temperature_hbm": 88}),
    (1, 2): (104, {"energy_accumulator": 24, "pcie_link_speed": 76, "firmware_timestamp": 96}),
    (1, 3): (120, {"average_socket_power": 22, "gfx_activity_acc": 80, "indep_throttle_status": 112}),
    (1, 4): (288, {"energy_accumulator": 24, "xgmi_read_data_acc": 104, "current_uclk": 280}),
    (1, 5): (360, {"jpeg_activity": 24, "energy_accumulator": 88, "current_uclk": 352}),
    (1, 6): (1664, {"energy_accumulator": 16, "pcie_replay_count_acc": 104, "xcp0_gfx_busy_inst": 312}),
    (1, 7): (2208, {"xgmi_link_status": 264, "firmware_timestamp": 288, "xcp7_gfx_busy_inst": 1968}),
    (1, 8): (3872, {"num_partition": 338, "xcp0_vcn_busy": 456, "pcie_lc_perf_other_end_recovery": 3864}),
    (2, 0): (120, {"system_clock_counter": 8, "temperature_gfx": 16, "average_socket_power": 44}),
    (2, 1): (120, {"temperature_gfx": 4, "average_socket_power": 40, "throttle_status": 108}),
    (2, 2): (128, {"current_gfxclk": 76, "indep_throttle_status": 120}),
    (2, 3): (152, {"indep_throttle_status": 120, "average_temperature_gfx": 128}),
    (2, 4): (168, {"average_temperature_gfx": 128, "average_cpu_voltage": 152}),
    (3, 0): (264, {"temperature_skin": 40, "average_socket_power": 112, "throttle_residency_prochot": 228}),
}
MEASURED_BY_MI200 = {"gfx_activity_acc": 1}


def nothing_measured(version: Version) -> GpuMetrics:
    return GpuMetrics(format_revision=version[0], content_revision=version[1])


@pytest.mark.parametrize("version", LAYOUTS)
def test_every_version_has_the_size_of_the_kernel_struct(version: Version) -> None:
    size, _ = LAID_OUT[version]
    table = build(version)
    assert (len(table), HEADER.unpack_from(table)) == (size, (size, *version))


@pytest.mark.parametrize(
    ("version", "name", "offset"),
    [(version, name, at) for version, (_, offsets) in LAID_OUT.items() for name, at in offsets.items()],
)
def test_every_field_has_the_offset_of_the_kernel_struct(version: Version, name: str, offset: int) -> None:
    table = bytearray(build(version))
    table[offset] = 0x5A
    places, all_ones = LAYOUTS[version].fields[name]
    first = int.from_bytes(b"\x5a".ljust(all_ones.bit_length() // 8, b"\xff"), sys.byteorder)
    others = [None] * (places.stop - places.start - 1)
    measured = {
        field: list(values)
        for field, values in read_table(bytes(table))[1].items()
        if any(value is not None for value in values)
    }
    assert measured == {name: [first, *others]}


@pytest.mark.parametrize("version", CARD_VERSIONS)
def test_a_table_of_ones_has_no_values(version: Version) -> None:
    assert decode(build(version)) == nothing_measured(version)


@given(st.data())
def test_every_field_of_every_version_is_decoded(data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(list(LAYOUTS)))
    fields = LAYOUTS[version].fields
    chosen = data.draw(st.lists(st.sampled_from(list(fields)), unique=True))
    values: dict[str, list[int]] = {
        name: data.draw(
            st.lists(
                st.integers(0, fields[name][1] - 1),
                min_size=(count := fields[name][0].stop - fields[name][0].start),
                max_size=count,
            )
        )
        for name in chosen
    }
    read_version, read = read_table(build(version, **values))
    assert read_version == version
    assert {name: list(read[name]) for name in chosen} == values
    assert all(set(read[name]) == {None} for name in fields if name not in chosen)


@pytest.mark.parametrize("version", LAYOUTS)
def test_a_longer_table_of_a_known_version_is_read_and_a_shorter_one_is_malformed(version: Version) -> None:
    table = build(version, average_gfx_activity=50)
    size = len(table)
    longer = struct.pack("@H", size + 8) + table[2:] + bytes(8)
    assert decode(longer) == decode(table)
    with pytest.raises(BrokenTable):
        decode(struct.pack("@H", size - 1) + table[2:])


@pytest.mark.parametrize("version", CARD_VERSIONS)
def test_a_table_shorter_than_its_size_field_is_malformed(version: Version) -> None:
    with pytest.raises(BrokenTable):
        decode(build(version, average_gfx_activity=50)[:-1])


def test_bytes_after_the_table_are_ignored() -> None:
    table = build((1, 3), temperature_edge=40)
    assert decode(table + bytes(4096 - len(table))) == decode(table)


@pytest.mark.parametrize("version", [(0, 0), (1, 10), (2, 5), (3, 1), (4, 0), (255, 255)])
def test_an_unknown_version_is_named(version: Version) -> None:
    with pytest.raises(UnknownTable) as unknown:
        decode(HEADER.pack(HEADER.size, *version))
    assert (unknown.value.format_revision, unknown.value.content_revision) == version


def claim(version: Version, body: bytes, excess: int) -> bytes:
    """A header before the body that claims so many bytes more than there are."""
    return HEADER.pack(max(HEADER.size + len(body) + excess, 0), *version) + body


tables = st.one_of(
    st.binary(max_size=64),
    st.builds(
        claim,
        st.sampled_from(CARD_VERSIONS),
        st.builds(lambda body, times: body * times, st.binary(max_size=400), st.integers(1, 12)),
        st.sampled_from([0, 0, 0, -8, 1]),
    ),
)


@given(tables)
def test_any_bytes_are_metrics_unknown_or_malformed(table: bytes) -> None:
    with suppress(UnknownTable, BrokenTable):
        assert isinstance(decode(table), GpuMetrics)


@given(st.integers(-1, 4) | st.integers(-(2**31), 2**31 - 1), st.binary(max_size=200))
def test_any_list_of_attributes_is_metrics_or_malformed(count: int, body: bytes) -> None:
    table = struct.pack("@i", count) + body
    with suppress(BrokenTable):
        metrics = decode(claim(ATTRIBUTES_VERSION, table, 0))
        assert metrics.content_revision == 9


CARD: dict[str, Any] = {
    "temperature_edge": 41,
    "temperature_hotspot": 43,
    "temperature_mem": 62,
    "temperature_vrgfx": 0,
    "temperature_vrsoc": 44,
    "temperature_vrmem": 0,
    "average_gfx_activity": 7,
    "average_umc_activity": 4,
    "average_mm_activity": 100,
    "average_socket_power": 20,
    "average_gfxclk_frequency": 40,
    "current_gfxclk": 41,
    "average_socclk_frequency": 417,
    "current_uclk": 96,
    "current_vclk0": 25,
    "current_dclk0": 26,
    "current_vclk1": 0,
    "throttle_status": 5,
    "current_fan_speed": 0,
    "pcie_link_width": 16,
    "pcie_link_speed": 160,
}


@pytest.mark.parametrize("version", [(1, 0), (1, 1), (1, 2), (1, 3)])
def test_a_radeon_reports_degrees_percent_and_watts(version: Version) -> None:
    metrics = decode(build(version, **CARD))
    assert metrics == GpuMetrics(
        format_revision=1,
        content_revision=version[1],
        power_watts=20,
        gfx_activity_ratio=0.07,
        memory_activity_ratio=0.04,
        temperatures_celsius={("edge",): 41, ("hotspot",): 43, ("mem",): 62, ("vrsoc",): 44},
        clocks_hertz={
            ("graphics",): 41e6,
            ("memory",): 96e6,
            ("soc",): 417e6,
            ("video",): 25e6,
            ("video_1",): 0,
            ("decode",): 26e6,
        },
        pcie_generation=4,
        pcie_width=16,
    )


@pytest.mark.parametrize("version", [(1, 1), (1, 2), (1, 3)])
def test_mi200_counts_energy_in_units_of_2_to_the_minus_16_joules(version: Version) -> None:
    metrics = decode(build(version, **MEASURED_BY_MI200, energy_accumulator=3 * 2**16 + 2**15))
    assert metrics.energy_millijoules == 3500


def test_the_energy_counter_of_a_radeon_is_not_used() -> None:
    assert decode(build((1, 3), **CARD, energy_accumulator=17_691_682)).energy_millijoules is None


def test_the_second_die_of_an_mi250_has_no_power() -> None:
    metrics = decode(build((1, 3), **MEASURED_BY_MI200, energy_accumulator=0, average_socket_power=0))
    assert (metrics.power_watts, metrics.energy_millijoules) == (None, None)


def test_zero_watts_are_a_measurement_if_energy_is_counted() -> None:
    metrics = decode(build((1, 3), **MEASURED_BY_MI200, energy_accumulator=2**16, average_socket_power=0))
    assert metrics.power_watts == 0


def test_an_energy_counter_at_zero_does_not_hide_power() -> None:
    metrics = decode(build((1, 3), **MEASURED_BY_MI200, energy_accumulator=0, average_socket_power=90))
    assert (metrics.power_watts, metrics.energy_millijoules) == (90, None)


def test_each_hbm_stack_has_a_temperature_and_a_missing_one_none() -> None:
    metrics = decode(build((1, 3), temperature_hbm=[50, 0, 52]))
    assert metrics.temperatures_celsius == {("hbm0",): 50, ("hbm2",): 52}


INSTINCT: dict[str, Any] = {
    "temperature_hotspot": 55,
    "temperature_mem": 48,
    "temperature_vrsoc": 51,
    "curr_socket_power": 742,
    "average_gfx_activity": 99,
    "average_umc_activity": 61,
    "energy_accumulator": 2**16 * 10**9 + 70,
    "pcie_link_width": 16,
    "pcie_link_speed": 320,
    "pcie_replay_count_acc": 3,
    "xgmi_link_width": 16,
    "xgmi_link_speed": 32,
    "xgmi_read_data_acc": [5, 0],
    "xgmi_write_data_acc": [7],
    "firmware_timestamp": 42,
    "current_gfxclk": [132, 2100, 131],
    "current_socclk": [28],
    "current_vclk0": [29],
    "current_dclk0": [22],
    "current_uclk": 1300,
}


def of_instinct(version: Version, **more: Any) -> GpuMetrics:
    return GpuMetrics(
        format_revision=version[0],
        content_revision=version[1],
        energy_millijoules=10**12 + 1,
        power_watts=742,
        gfx_activity_ratio=0.99,
        memory_activity_ratio=0.61,
        temperatures_celsius={("hotspot",): 55, ("mem",): 48, ("vrsoc",): 51},
        clocks_hertz={
            ("graphics",): 2.1e9,
            ("memory",): 1.3e9,
            ("soc",): 28e6,
            ("video",): 29e6,
            ("decode",): 22e6,
        },
        pcie_generation=5,
        pcie_width=16,
        pcie_replays=3,
        xgmi_bytes={("0", "read"): 5120, ("1", "read"): 0, ("0", "write"): 7168},
        **more,
    )


@pytest.mark.parametrize("version", [(1, 4), (1, 5), (1, 6), (1, 7), (1, 8), (1, 9)])
def test_an_mi300_reports_the_same_in_every_version(version: Version) -> None:
    assert decode(build(version, **INSTINCT)) == of_instinct(version)


@pytest.mark.parametrize(("version", "fields"), [((1, 4), {}), ((1, 5), {"jpeg_activity": [3, 6]})])
def test_the_busiest_jpeg_engine_of_an_mi300_is_reported(version: Version, fields: dict[str, Any]) -> None:
    metrics = decode(build(version, **INSTINCT, vcn_activity=[1, 9], throttle_status=1, **fields))
    jpeg = 0.06 if fields else None
    assert metrics == of_instinct(version, jpeg_activity_ratio=jpeg)


RESIDENCIES: dict[str, Any] = {
    "accumulation_counter": 1000,
    "prochot_residency_acc": 0,
    "ppt_residency_acc": 250,
    "hbm_thm_residency_acc": 7,
}


@pytest.mark.parametrize("version", [(1, 6), (1, 7), (1, 8), (1, 9)])
def test_newer_drivers_count_the_cycles_of_each_throttler(version: Version) -> None:
    assert decode(build(version, **INSTINCT, **RESIDENCIES)) == of_instinct(
        version,
        cycles=1000,
        throttle_residencies={"prochot": 0, "ppt": 250, "hbm_thm": 7},
    )


@pytest.mark.parametrize("version", [(1, 6), (1, 7), (1, 8), (1, 9)])
def test_newer_drivers_add_up_the_activity_of_all_cycles(version: Version) -> None:
    metrics = decode(build(version, **INSTINCT, accumulation_counter=1000, gfx_activity_acc=42_000))
    assert metrics == of_instinct(version, cycles=1000, gfx_busy_counts=(42_000,))


@pytest.mark.parametrize("version", [(1, 7), (1, 8), (1, 9)])
def test_a_link_is_up_down_or_absent(version: Version) -> None:
    metrics = decode(build(version, **INSTINCT, xgmi_link_status=[2, 1, 0]))
    assert metrics == of_instinct(version, xgmi_up={("1",): 1.0, ("2",): 0.0})


PARTITIONED: dict[str, Any] = {
    "num_partition": 2,
    "xcp0_gfx_busy_inst": [100, 50],
    "xcp0_gfx_busy_acc": [2**40, 7],
    "xcp0_vcn_busy": [0, 10],
    "xcp0_jpeg_busy": [20],
    "xcp1_gfx_busy_inst": [0],
    "xcp1_vcn_busy": [30],
    "xcp2_gfx_busy_inst": [99],
}


@pytest.mark.parametrize("version", [(1, 6), (1, 7), (1, 8)])
def test_the_busiest_of_the_partitions_is_reported_for_the_card(version: Version) -> None:
    assert decode(build(version, **INSTINCT, **PARTITIONED)) == of_instinct(
        version,
        jpeg_activity_ratio=0.2,
        partitions=(
            PartitionMetrics(gfx_activity_ratio=0.75, gfx_busy_counts=(2**40, 7), jpeg_activity_ratio=0.2),
            PartitionMetrics(gfx_activity_ratio=0),
        ),
    )


def test_at_most_eight_partitions_are_read() -> None:
    assert len(decode(build((1, 8), num_partition=500)).partitions) == 8


def test_the_list_of_attributes_has_the_jpeg_engines_of_the_whole_card() -> None:
    """As smu_v13_0_6_get_gpu_metrics in the kernel's smu_v13_0_6_ppt.c fills it since v1.9."""
    metrics = decode(build((1, 9), **INSTINCT, num_partition=8, vcn_busy=[4, 40], jpeg_busy=[6]))
    assert metrics == of_instinct((1, 9), jpeg_activity_ratio=0.06)


def test_the_dies_of_a_list_of_attributes_belong_to_partitions_in_their_order() -> None:
    metrics = decode(build((1, 9), gfx_busy_inst=[10, 30, 50, 70], gfx_busy_acc=[1, 2, 3, 4]))
    assert metrics.partitions == ()
    assert metrics.partitioned(2).partitions == (
        PartitionMetrics(gfx_activity_ratio=0.2, gfx_busy_counts=(1, 2)),
        PartitionMetrics(gfx_activity_ratio=0.6, gfx_busy_counts=(3, 4)),
    )
    assert metrics.partitioned(0).partitions == metrics.partitioned(3).partitions == ()


def test_an_attribute_may_have_any_width_and_any_number_of_values() -> None:
    table = build_attributes(
        ATTRIBUTES_VERSION,
        attribute("vcn_busy", "B", 12, 255),
        attribute("temperature_hotspot", "h", -5),
        attribute("temperature_mem", "h", -1),
        attribute("current_uclk", "I", 900, 1000),
        attribute("temperature_xcd", "H", 60, 0xFFFF, 62),
        attribute("temperature_hbm", "H"),
    )
    assert decode(table) == GpuMetrics(
        format_revision=1,
        content_revision=9,
        temperatures_celsius={("hotspot",): -5, ("xcd0",): 60, ("xcd2",): 62},
        clocks_hertz={("memory",): 1e9},
    )


def test_unknown_attributes_and_units_are_skipped() -> None:
    table = build_attributes(
        ATTRIBUTES_VERSION,
        attribute_of(1000, "Q", 1, 2, 3, unit=0),
        attribute("temperature_hotspot", "H", 5000, unit=77),
        attribute("temperature_mem", "H", 44),
    )
    assert decode(table).temperatures_celsius == {("mem",): 44}


# AMDGPU_METRICS_ATTR_ID_*, AMDGPU_METRICS_UNIT_*
@pytest.mark.parametrize(
    ("name", "number", "unit"),
    [
        ("temperature_hotspot", 0, 2),
        ("curr_socket_power", 3, 3),
        ("average_umc_activity", 5, 10),
        ("energy_accumulator", 7, 0),
        ("hbm_thm_residency_acc", 14, 0),
        ("pcie_link_speed", 17, 7),
        ("xgmi_link_speed", 19, 6),
        ("pcie_replay_count_acc", 25, 0),
        ("xgmi_read_data_acc", 29, 9),
        ("xgmi_link_status", 31, 0),
        ("firmware_timestamp", 32, 5),
        ("current_uclk", 37, 1),
        ("vcn_busy", 42, 10),
        ("temperature_xcd", 51, 2),
    ],
)
def test_attributes_have_the_ids_and_units_of_the_kernel(name: str, number: int, unit: int) -> None:
    table = build_attributes(ATTRIBUTES_VERSION, attribute_of(number, "Q", 6, unit=unit))
    assert read_table(table)[1] == {name: (6,)}


def test_attributes_after_the_size_of_the_table_are_ignored() -> None:
    table = build_attributes(ATTRIBUTES_VERSION, attribute("temperature_hotspot", "H", 40))
    with pytest.raises(BrokenTable):
        decode(HEADER.pack(len(table) - 2, *ATTRIBUTES_VERSION) + table[HEADER.size :])


@pytest.mark.parametrize(
    "table",
    [
        HEADER.pack(HEADER.size, *ATTRIBUTES_VERSION),
        HEADER.pack(8, *ATTRIBUTES_VERSION) + struct.pack("@i", -1),
        HEADER.pack(8, *ATTRIBUTES_VERSION) + struct.pack("@i", 1),
        HEADER.pack(16, *ATTRIBUTES_VERSION) + struct.pack("=iQ", 1, 2 << 20 | 1),
        HEADER.pack(18, *ATTRIBUTES_VERSION) + struct.pack("=iQH", 1, 8 << 20 | 1, 1),
    ],
    ids=["no count", "negative count", "no attribute", "no value", "no such type"],
)
def test_an_incomplete_list_of_attributes_is_malformed(table: bytes) -> None:
    with pytest.raises(BrokenTable):
        decode(table)


APU: dict[str, Any] = {
    "temperature_gfx": 3812,
    "temperature_soc": 4062,
    "temperature_core": [5000] * 8,
    "average_gfx_activity": 2550,
    "average_gfxclk_frequency": 849,
    "average_uclk_frequency": 836,
    "average_fclk_frequency": 1162,
    "average_vclk_frequency": 800,
}


def of_apu(version: Version, **more: Any) -> GpuMetrics:
    return GpuMetrics(
        format_revision=version[0],
        content_revision=version[1],
        gfx_activity_ratio=0.255,
        clocks_hertz={
            ("graphics",): 849e6,
            ("memory",): 836e6,
            ("fabric",): 1162e6,
            ("video",): 800e6,
        },
        **more,
    )


@pytest.mark.parametrize(
    ("version", "watts"), [((2, 0), None), ((2, 1), 9.839), ((2, 2), None), ((2, 3), 9.839), ((2, 4), 9.839)]
)
def test_an_apu_reports_hundredths_and_milliwatts_unless_it_may_be_renoir(
    version: Version, watts: float | None
) -> None:
    metrics = decode(build(version, **APU, average_socket_power=9839, average_mm_activity=100))
    assert metrics == of_apu(
        version,
        power_watts=watts,
        temperatures_celsius={("gfx",): 38.12, ("soc",): 40.62},
    )


def test_a_newer_apu_has_residencies_and_a_skin_temperature() -> None:
    metrics = decode(
        build(
            (3, 0),
            **APU,
            average_socket_power=120_000,
            average_vcn_activity=10_000,
            temperature_skin=3598,
            throttle_residency_prochot=28,
            throttle_residency_thm_gfx=0,
        )
    )
    assert metrics == of_apu(
        (3, 0),
        power_watts=120,
        temperatures_celsius={("gfx",): 38.12, ("soc",): 40.62, ("skin",): 35.98},
        throttle_residencies={"prochot": 28, "thm_gfx": 0},
    )


@pytest.mark.parametrize("version", [(1, 3), (2, 2), (2, 3), (2, 4)])
def test_throttlers_have_names_and_unnamed_bits_have_none(version: Version) -> None:
    mask = 1 << 0 | 1 << 7 | 1 << 16 | 1 << 23 | 1 << 32 | 1 << 40 | 1 << 47 | 1 << 57 | 1 << 63
    assert decode(build(version, indep_throttle_status=mask)).throttlers == frozenset(
        {"ppt0", "sppt_apu", "tdc_gfx", "apcc", "temp_gpu", "temp_vr_mem0", "prochot_gfx", "fit"}
    )
    assert decode(build(version, indep_throttle_status=0)).throttlers == frozenset()


@pytest.mark.parametrize(
    ("speed", "generation"), [(25, 1), (50, 2), (80, 3), (160, 4), (320, 5), (640, 6), (0, None), (99, None)]
)
def test_the_generation_of_the_bus_follows_from_its_speed(speed: int, generation: int | None) -> None:
    assert decode(build((1, 3), pcie_link_speed=speed)).pcie_generation == generation


def test_throttlers_are_mapped_to_common_reasons() -> None:
    assert throttle_active({"ppt0", "vrhot1", "fit"}) == {
        ("sw_power_cap",): 1.0,
        ("hw_slowdown",): 0.0,
        ("sw_thermal_slowdown",): 0.0,
        ("hw_thermal_slowdown",): 1.0,
    }


def test_every_throttler_except_two_has_a_common_reason() -> None:
    assert set(THROTTLE_REASON_OF.values()) <= set(THROTTLE_REASONS)
    assert set(THROTTLERS.values()) - set(THROTTLE_REASON_OF) == {"ppm", "fit"}
