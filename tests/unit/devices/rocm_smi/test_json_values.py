"""Values as AMD's tools print them."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.devices import Errors
from gputally.devices.rocm_smi.json_values import (
    ListedProcess,
    Malformed,
    find_json,
    first_value,
    parse_device_id,
    parse_pci_address,
    parse_processes,
    parse_quantity,
    parse_text,
    parse_unique_id,
    parse_unrecognized,
    parse_whole,
)

LOW_POWER = "\nWARNING: AMD GPU device(s) is/are in a low-power state. Check power control/runtime_status\n\n"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
)


@pytest.mark.parametrize("before", ["", LOW_POWER, "GPU[0] {not: this}\n", "[]x\n  {half: \n"])
@pytest.mark.parametrize("after", ["", "\n", "\nopendir: No such file or directory\n"])
def test_a_document_is_found_among_warnings(before: str, after: str) -> None:
    wanted = {"card0": {"GPU use (%)": "0"}}
    found = find_json(before + json.dumps(wanted) + after)
    assert found == ([] if before.startswith("[]") else wanted)


@pytest.mark.parametrize(
    "text", ["", "WARNING: No AMD GPUs specified\n", '{"card0": {"GPU use', "{" * 100_000]
)
def test_an_incomplete_or_missing_document_is_none(text: str) -> None:
    assert find_json(text) is None


@given(st.text())
def test_any_output_is_parsed_without_an_exception(text: str) -> None:
    find_json(text)
    parse_unrecognized(text)
    parse_text(text)


@pytest.mark.parametrize(
    "value", ["N/A", "N/A (Secondary die)", "unknown", "", " ", "None", "Unsupported", None]
)
def test_values_unknown_to_the_tool_are_none(value: object) -> None:
    assert parse_quantity(value) is None
    assert parse_whole(value) is None
    assert parse_text(value) is None
    assert parse_unique_id(value) is None
    assert parse_pci_address(value) is None


@pytest.mark.parametrize(
    ("value", "unit", "number"),
    [
        ("19.0", "W", 19.0),
        ("7.222", "W", 7.222),
        ("37", "%", 0.37),
        ("68702699520", "", 68702699520),
        ("(1300Mhz)", "", 1_300_000_000),
        (41, "W", 41),
        ({"value": 65520, "unit": "MB"}, "", 65520 * 2**20),
        ({"value": 41, "unit": ""}, "C", 41),
        ({"value": "N/A", "unit": "GB/s"}, "", None),
        ("40 W", "", 40),
        ("-3.5", "C", -3.5),
    ],
)
def test_numbers_are_in_base_units(value: object, unit: str, number: float | None) -> None:
    assert parse_quantity(value, unit) == number


@pytest.mark.parametrize(
    "value", ["1.2.3", "12 parsecs", "0x10", "1e3", True, [], {"value": []}, float("nan")]
)
def test_an_invalid_number_is_malformed(value: object) -> None:
    with pytest.raises(Malformed):
        parse_quantity(value)


def test_a_count_has_no_fraction() -> None:
    assert parse_whole("3.0") == 3
    with pytest.raises(Malformed):
        parse_whole("3.5")


@given(JSON)
def test_a_value_is_read_or_malformed(value: object) -> None:
    for parse in (parse_quantity, parse_whole, parse_unique_id, parse_pci_address):
        with contextlib.suppress(Malformed):
            parse(value)
    parse_device_id(value)
    parse_text(value)


@given(st.integers(1, 2**64 - 2))
def test_a_unique_id_is_read_with_and_without_its_zeros(number: int) -> None:
    for text in (f"{number:#x}", f"{number:#018x}", f"0x{number:016X}"):
        assert parse_unique_id(text) == number


@given(st.integers(10**16, 2**64 - 2))
def test_a_unique_id_too_long_for_hexadecimal_is_decimal(number: int) -> None:
    assert parse_unique_id(f"0x{number}") == number


@pytest.mark.parametrize("text", ["0x0", "0xffffffffffffffff"])
def test_a_unique_id_of_all_zeros_or_ones_is_none(text: str) -> None:
    assert parse_unique_id(text) is None


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0000:C3:00.0", "0000:c3:00.0"),
        ("10000:05:00.7", "10000:05:00.7"),
        ("c3:00.0", "0000:c3:00.0"),
        ("00010000:c3:00.0", "10000:c3:00.0"),
    ],
)
def test_a_pci_address_is_in_the_format_of_the_kernel(text: str, address: str) -> None:
    assert parse_pci_address(text) == address


def test_an_uninitialised_address_is_malformed() -> None:
    with pytest.raises(Malformed):
        parse_pci_address("3810d43810d1:07:16.0")


@pytest.mark.parametrize(
    ("text", "number"), [("0x740f", 0x740F), ("0x1002", None), ("N/A", None), ("FirePro W4300", None)]
)
def test_names_and_vendors_are_not_a_device_id(text: str, number: int | None) -> None:
    assert parse_device_id(text) == number


def test_processes_are_read_from_lines_about_the_system() -> None:
    system = {
        "Driver version": "6.8.5",
        "PID4711": "python3, 8, 21474836480, 0, 96",
        "PID12": "my, training, run, 1, 0, 0, unknown",
        "PID13": "unknown, unknown, unknown, unknown, unknown",
        "PID14": "short, 1",
        "PID0": "swapper, 1, 0, 0, 0",
        "PID15": "odd, one, 0, 0, 0",
        "PID": "no, 1, 0, 0, 0",
    }
    assert parse_processes(system) == (
        [
            ListedProcess(4711, "python3", 8, 21474836480),
            ListedProcess(12, "my training run", 1, 0),
            ListedProcess(13, None, None, None),
        ],
        3,
    )


def test_the_rejected_options_in_an_error_message() -> None:
    stderr = (
        "usage: rocm-smi [-h]\nrocm-smi: error: unrecognized arguments: --showenergycounter --showx vram\n"
    )
    assert parse_unrecognized(stderr) == {"--showenergycounter", "--showx"}
    assert parse_unrecognized("WARNING: No AMD GPUs specified") == frozenset()


def test_the_first_valid_value_is_used() -> None:
    errors = Errors()
    assert first_value("power_watts", ["N/A", "x", "17.0", "3"], parse_quantity, errors) == 17
    assert errors == {}
    assert first_value("power_watts", ["N/A", "x", "y"], parse_quantity, errors) is None
    assert errors == {("power_watts", "malformed"): 1}
