"""Every column of every capture, and text that no nvidia-smi should print."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.devices.nvidia_smi.csv_tables import (
    CellValue,
    CsvTable,
    Unreadable,
    parse_cuda_version,
    parse_help_columns,
    parse_list,
    parse_query_gpu,
    parse_value,
)
from tests.unit.devices.nvidia_smi.captures import CAPTURES, QUERY_CAPTURES

# What each column holds, written down apart from the code under test.


def words(text: str) -> CellValue:
    return text


def whole(text: str) -> CellValue:
    return int(text)


def percent(text: str) -> CellValue:
    return int(text.removesuffix(" %")) / 100


def mebibytes(text: str) -> CellValue:
    return int(text.removesuffix(" MiB")) * 1_048_576


def watts(text: str) -> CellValue:
    return float(text.removesuffix(" W"))


def degrees(text: str) -> CellValue:
    return float(text)


def megahertz(text: str) -> CellValue:
    return int(text.removesuffix(" MHz")) * 1e6


def hexadecimal(text: str) -> CellValue:
    return int(text.removeprefix("0x"), 16)


def state(text: str) -> CellValue:
    return int(text.removeprefix("P"))


def switch(text: str) -> CellValue:
    return {
        "Enabled": True,
        "Disabled": False,
        "Active": True,
        "Not Active": False,
        "Yes": True,
        "No": False,
    }[text]


COLUMNS_BY_KIND: dict[Callable[[str], CellValue], str] = {
    words: """
        timestamp driver_version name serial uuid pci.bus_id pci.domain pci.bus pci.device pci.device_id
        pci.sub_device_id addressing_mode driver_model.current driver_model.pending vbios_version
        inforom.img inforom.oem inforom.ecc inforom.pwr gom.current gom.pending compute_mode compute_cap
        fabric.state fabric.status""",
    whole: """
        count index accounting.buffer_size pcie.link.gen.current pcie.link.gen.gpucurrent pcie.link.gen.max
        pcie.link.gen.gpumax pcie.link.gen.hostmax pcie.link.width.current pcie.link.width.max
        retired_pages.single_bit_ecc.count retired_pages.double_bit.count""",
    switch: """
        display_mode display_active persistence_mode accounting.mode reset_status.reset_required
        reset_status.drain_and_reset_recommended clocks_event_reasons.gpu_idle
        clocks_event_reasons.applications_clocks_setting clocks_event_reasons.sw_power_cap
        clocks_event_reasons.hw_slowdown clocks_event_reasons.hw_thermal_slowdown
        clocks_event_reasons.hw_power_brake_slowdown clocks_event_reasons.sw_thermal_slowdown
        clocks_event_reasons.sync_boost ecc.mode.current ecc.mode.pending retired_pages.pending
        power.management mig.mode.current mig.mode.pending gsp.mode.current gsp.mode.default c2c.mode""",
    hexadecimal: "clocks_event_reasons.supported clocks_event_reasons.active",
    state: "pstate",
    percent: """
        fan.speed utilization.gpu utilization.memory utilization.encoder utilization.decoder
        utilization.jpeg utilization.ofa""",
    mebibytes: """
        memory.total memory.reserved memory.used memory.free
        protected_memory.total protected_memory.used protected_memory.free""",
    degrees: "temperature.gpu temperature.gpu.tlimit temperature.memory",
    watts: """
        power.draw power.draw.average power.draw.instant power.limit enforced.power.limit
        power.default_limit power.min_limit power.max_limit""",
    megahertz: """
        clocks.current.graphics clocks.current.sm clocks.current.memory clocks.current.video
        clocks.applications.graphics clocks.applications.memory clocks.default_applications.graphics
        clocks.default_applications.memory clocks.max.graphics clocks.max.sm clocks.max.memory""",
}
ECC_PLACES = "device_memory dram register_file l1_cache l2_cache texture_memory cbu sram total"
COLUMNS = {column: kind for kind, columns in COLUMNS_BY_KIND.items() for column in columns.split()} | {
    f"ecc.errors.{kind}.{lifetime}.{place}": whole
    for kind in ("corrected", "uncorrected")
    for lifetime in ("volatile", "aggregate")
    for place in str.split(ECC_PLACES)
}
NO_VALUES: dict[str, CellValue] = {
    "[N/A]": None,
    "N/A": None,
    "[Invalid Argument]": Unreadable("invalid_argument"),
    "[GPU is lost]": Unreadable("gpu_is_lost"),
}


@pytest.mark.parametrize("capture", QUERY_CAPTURES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_cell_of_every_capture_has_its_value(capture: Path) -> None:
    header, *lines = capture.read_text().splitlines()
    columns = [re.sub(r" \[.*\]", "", cell) for cell in header.split(", ")]
    assert set(columns) <= COLUMNS.keys(), "a column of which this test does not know what it holds"
    table = parse_query_gpu(capture.read_text())
    assert table.columns == tuple(columns)
    assert table.malformed == 0
    assert len(table.rows) == len(lines) == int(lines[0].split(", ")[2])
    for line, row in zip(lines, table.rows, strict=True):
        for column, cell in zip(columns, line.split(", "), strict=True):
            expected = NO_VALUES[cell] if cell in NO_VALUES else COLUMNS[column](cell)
            value = parse_value(column, row[column])
            assert value == expected, (column, cell)
            assert type(value) in (type(expected), float if isinstance(expected, int) else None)


def test_the_captures_are_the_expected_ones() -> None:
    assert len(QUERY_CAPTURES) == 15
    tables = {path.parent.name: parse_query_gpu(path.read_text()) for path in QUERY_CAPTURES}
    sick = tables["h100-failing"].rows[0]
    assert parse_value("power.draw", sick["power.draw"]) == 612.34
    assert parse_value("memory.used", sick["memory.used"]) == 60416 * 2**20
    assert parse_value("utilization.gpu", sick["utilization.gpu"]) == 0.87
    assert parse_value("clocks.current.sm", sick["clocks.current.sm"]) == 1_755_000_000
    assert parse_value("clocks_event_reasons.sw_power_cap", sick["clocks_event_reasons.sw_power_cap"]) is True
    assert parse_value("clocks_event_reasons.active", sick["clocks_event_reasons.active"]) == 4
    assert parse_value("ecc.errors.uncorrected.aggregate.total", "38") == 38
    assert parse_value("gom.current", sick["gom.current"]) == Unreadable("invalid_argument")
    assert parse_value("fan.speed", sick["fan.speed"]) is None
    assert parse_value("temperature.gpu", tables["t4"].rows[0]["temperature.gpu"]) == 30
    assert parse_value("addressing_mode", tables["t4"].rows[0]["addressing_mode"]) == "None"
    assert parse_value("c2c.mode", tables["gb200"].rows[0]["c2c.mode"]) is True


@pytest.mark.parametrize("bare", ["N/A", "Not Supported", "No data", "Function Not Found", "Not Available"])
@pytest.mark.parametrize("column", ["power.draw", "pstate", "serial", "mig.mode.current", "memory.used"])
def test_every_form_of_not_supported_is_none(column: str, bare: str) -> None:
    for text in (bare, f"[{bare}]", f" [{bare.upper()}] "):
        assert parse_value(column, text) is None
    assert parse_value(column, "[Requested functionality has been deprecated]") is None


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[Unknown Error]", "unknown_error"),
        ("Unknown Error", "unknown_error"),
        ("ERR!", "unknown_error"),
        ("[GPU is lost]", "gpu_is_lost"),
        ("[GPU requires reset]", "gpu_requires_reset"),
        ("[Insufficient Permissions]", "insufficient_permissions"),
        ("[Invalid Argument]", "invalid_argument"),
        ("[Something New]", "malformed"),
        ("about 12 W", "malformed"),
        ("12 W W", "malformed"),
        ("12 MiB", "malformed"),
        ("nan", "malformed"),
        ("inf W", "malformed"),
        ("1e3 W", "malformed"),
        ("١٢ W", "malformed"),
        ("9" * 400, "malformed"),
    ],
)
def test_errors_and_malformed_values_differ_from_not_supported(text: str, error: str) -> None:
    assert parse_value("power.draw", text) == Unreadable(error)


@pytest.mark.parametrize(
    ("column", "text", "value"),
    [
        ("memory.used", "100", 100 * 2**20),
        ("memory.used", "100 MiB", 100 * 2**20),
        ("memory.used", "2 GiB", 2**31),
        ("memory.used", "1.5 MiB", Unreadable("malformed")),
        ("utilization.gpu", "57", 0.57),
        ("utilization.gpu", "57 %", 0.57),
        ("utilization.gpu", "57%", 0.57),
        ("power.draw", "98.14", 98.14),
        ("power.draw", "98.14W", 98.14),
        ("temperature.gpu.tlimit", "-3", -3.0),
        ("temperature.gpu", "41 C", 41.0),
        ("clocks_event_reasons_counters.sw_power_cap", "15820333506 us", 15820.333506),
        ("clocks_throttle_reasons.gpu_idle", "Not Active", False),
        ("clocks_throttle_reasons.active", "0x0000000000000004", 4),
        ("clocks.max.sm", "2145 MHz", 2_145_000_000.0),
        ("retired_pages.pending", "Yes", True),
        ("pstate", "P12", 12),
        ("pstate", "12", Unreadable("malformed")),
        ("persistence_mode", "Perhaps", Unreadable("malformed")),
        ("gpu_recovery_action", "None", "None"),
        ("process_name", "timeout", "timeout"),
        ("process_name", "[celery]", "[celery]"),
        ("process_name", "[Not Found]", None),
        ("process_name", "[Insufficient Permissions]", Unreadable("insufficient_permissions")),
    ],
)
def test_values_of_other_driver_versions(column: str, text: str, value: CellValue) -> None:
    parsed = parse_value(column, text)
    assert parsed == value
    assert isinstance(parsed, bool) == isinstance(value, bool)


@given(column=st.sampled_from(sorted(COLUMNS)) | st.text(), text=st.text())
def test_any_cell_is_parsed_without_an_exception(column: str, text: str) -> None:
    value = parse_value(column, text)
    assert value is None or isinstance(value, int | float | str | Unreadable)
    assert value == value, "NaN is no value"


def test_without_units_in_the_cells_the_header_has_them() -> None:
    table = parse_query_gpu("uuid, memory.used [GiB], power.draw [W], pstate\nGPU-1, 3, [N/A], P0\n")
    assert table.rows == ({"uuid": "GPU-1", "memory.used": "3 GiB", "power.draw": "[N/A]", "pstate": "P0"},)


def test_windows_line_ends_and_warnings_around_the_table_are_ignored() -> None:
    table = parse_query_gpu(
        "WARNING: persistence mode is off\r\nuuid, index\r\nGPU-1, 0\r\n\r\nWARNING: infoROM is corrupted\r\n"
    )
    columns = ("uuid", "index")
    assert table == CsvTable(columns, ({"uuid": "GPU-1", "index": "0"},), malformed=1, headers=columns)


def test_a_model_name_with_a_comma_shifts_no_column() -> None:
    table = parse_query_gpu("uuid, name, pstate\nGPU-1, Oddly, named, GPU, P2\n")
    assert table.rows == ({"uuid": "GPU-1", "name": "Oddly, named, GPU", "pstate": "P2"},)


def test_old_names_of_columns_are_read_as_the_new_ones() -> None:
    table = parse_query_gpu("uuid, clocks_throttle_reasons.gpu_idle\nGPU-1, Active\n")
    assert table.rows == ({"uuid": "GPU-1", "clocks_event_reasons.gpu_idle": "Active"},)


HEALTHY = (CAPTURES / "h100-processes" / "query-gpu-550.csv").read_text()
WHOLE = parse_query_gpu(HEALTHY)


@given(st.integers(0, len(HEALTHY)))
def test_truncated_output_gives_complete_rows_only(length: int) -> None:
    table = parse_query_gpu(HEALTHY[:length])
    assert table.rows == WHOLE.rows[: len(table.rows)]
    assert len(table.rows) == max(0, HEALTHY[:length].count("\n") - 1)
    if length < len(HEALTHY) and table.columns:
        assert table.malformed == int(not HEALTHY[:length].endswith("\n"))


@given(st.text() | st.binary().map(lambda noise: noise.decode("utf-8", "replace")))
def test_random_text_is_no_table(noise: str) -> None:
    table = parse_query_gpu(noise)
    assert table.columns == () or "uuid" in table.columns
    assert all(tuple(row) == table.columns for row in table.rows if len(set(table.columns)) == len(row))


@given(st.text())
def test_random_text_after_a_valid_header_is_counted_or_a_row(noise: str) -> None:
    table = parse_query_gpu("uuid, index, pstate\n" + noise)
    assert table.columns == ("uuid", "index", "pstate")
    assert len(table.rows) + table.malformed <= noise.count("\n") + 1


@pytest.mark.parametrize("capture", ["h100", "h100-processes"])
def test_incomplete_xml_is_no_table(capture: str) -> None:
    assert parse_query_gpu((CAPTURES / capture / "q-x-crashed.xml").read_text()) == CsvTable()


def test_the_plain_table_of_the_tool_is_not_parsed_as_csv() -> None:
    assert parse_query_gpu((CAPTURES / "h100" / "plain.txt").read_text()) == CsvTable()


@pytest.mark.parametrize(("tool", "columns"), [("535", 141), ("550", 144)])
def test_supported_columns_are_found_by_all_their_names(tool: str, columns: int) -> None:
    text = (CAPTURES / f"tool-{tool}" / "help-query-gpu.txt").read_text()
    lines = [line for line in text.splitlines() if re.match(r'"[^"]*"( or "[^"]*")?$', line)]
    assert len(lines) == columns
    found = parse_help_columns(text)
    assert found == tuple(tuple(re.findall(r'"([^"]+)"', line)) for line in lines)
    offered = {name for names in found for name in names}
    assert {"uuid", "gpu_uuid", "clocks_event_reasons.active", "clocks_throttle_reasons.active"} <= offered
    assert ("c2c.mode" in offered) == (tool == "550")
    assert parse_help_columns(text.rstrip("\n")) == (), "a list that may be cut off is not trusted"


def test_a_quoted_word_inside_a_description_is_no_column() -> None:
    assert parse_help_columns('"pstate"\nThe state.\n"P0" is the fastest.\n\n"index"\n') == (
        ("pstate",),
        ("index",),
    )


@given(st.text())
def test_any_help_text_is_parsed_without_an_exception(text: str) -> None:
    for names in parse_help_columns(text):
        assert names
        assert all(re.fullmatch(r"[A-Za-z0-9_.]+", name) for name in names)


def test_the_list_contains_the_gpus_that_respond() -> None:
    lost = (CAPTURES / "h100-lost" / "list.txt").read_text(errors="replace")
    assert parse_list(lost) == (0, 1, 3, 4, 5, 6, 7)
    assert parse_list((CAPTURES / "gb200" / "list.txt").read_text()) == tuple(range(8))
    assert parse_list("  MIG 1g.10gb     Device  0: (UUID: MIG-1)\nNo devices found.\n") == ()


@given(st.text())
def test_any_list_is_parsed_without_an_exception(text: str) -> None:
    assert all(index >= 0 for index in parse_list(text))


def test_the_cuda_version_is_read_if_the_tool_prints_it() -> None:
    assert parse_cuda_version((CAPTURES / "tool-550" / "version.txt").read_text()) == "12.4"
    assert parse_cuda_version((CAPTURES / "tool-535" / "version.txt").read_text()) is None
    of_610 = 'CUDA version     : Deprecated, see "CUDA UMD version" instead\nCUDA UMD version : 13.3\n'
    assert parse_cuda_version(of_610) == "13.3"


@given(st.text() | st.text().map("CUDA Version : ".__add__))
def test_any_version_text_is_parsed_without_an_exception(text: str) -> None:
    version = parse_cuda_version(text)
    assert version is None or re.fullmatch(r"[0-9]{1,3}\.[0-9]{1,3}", version)
