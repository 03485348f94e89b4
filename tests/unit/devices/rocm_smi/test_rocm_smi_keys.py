"""What rocm-smi's keys become, in the spelling of every generation."""

import json
from pathlib import Path

import pytest

from gputally.devices import Errors
from gputally.devices.plausible import drop_implausible
from gputally.devices.rocm_smi.rocm_smi_keys import (
    CardJson,
    build_gpu,
    build_reading,
    partition_profile,
    with_plain_keys,
)
from gputally.model import Gpu, Reading

CAPTURES = Path(__file__).parents[3] / "fixtures" / "rocm-smi"
GPU = Gpu("GPU-1", 0, "amd", "AMD GPU")


def cards(capture: str) -> list[CardJson]:
    document = json.loads((CAPTURES / capture).read_text())
    return [with_plain_keys(card) for name, card in document.items() if name != "system"]


def read(capture: str) -> Reading:
    errors = Errors()
    (card,) = cards(capture)
    reading = build_reading(GPU, card, errors)
    assert errors == {}
    return reading


def test_the_tool_of_2019() -> None:
    reading = read("published/vega-2019.json")
    assert reading.power_watts == 222
    assert reading.fan_speed_ratio == {("0",): 0.45}
    assert reading.sensor_celsius == {("edge",): 77, ("junction",): 103, ("mem",): 79}
    assert (reading.temperature_celsius, reading.memory_temperature_celsius) == (77, 79)
    assert reading.memory_total_bytes is None


def test_average_power_and_memory_in_bytes() -> None:
    reading = read("published/rx7900xtx.json")
    assert reading.power_watts == 19
    assert reading.gpu_utilization_ratio == 0, "a measured zero"
    assert reading.memory_total_bytes == 25753026560
    assert reading.memory_used_bytes == 794341376
    assert reading.memory_free_bytes == 25753026560 - 794341376


def test_an_apu_without_unique_id_and_with_current_power() -> None:
    reading = read("published/radeon-780m.json")
    assert reading.power_watts == 7.222
    assert reading.memory_utilization_ratio is None, "allocated is not busy"
    assert reading.clock_hertz == {
        ("fabric",): 4e8,
        ("memory",): 4e8,
        ("graphics",): 8e8,
        ("soc",): 4e8,
    }
    gpu = build_gpu(cards("published/radeon-780m.json")[0], 3, "6.2", Errors())
    assert gpu == Gpu(
        uuid="GPU-0000:c4:00.0",
        index=3,
        vendor="amd",
        model="AMD Radeon 780M (Hawk Point)",
        pci_bus_id="0000:c4:00.0",
        vbios_version="113-PHXGENERIC-001",
        driver_version="6.2",
    )


def test_counters_named_activity_are_not_ratios() -> None:
    reading = read("published/mi250x.json")
    assert reading.gpu_utilization_ratio == 1
    assert reading.memory_utilization_ratio == 0
    assert reading.power_limit_watts == 560
    gpu = build_gpu(cards("published/mi250x.json")[0], 7, None, Errors())
    assert gpu is not None
    assert gpu.model == "AMD INSTINCT MI200 (MCM) OAM LC MBA HPE C2"
    assert gpu.serial == "692139000119"


def test_every_value_of_an_instinct() -> None:
    reading = read("rocm-smi-6.4/mi210.json")
    assert drop_implausible(reading) == (reading, ())
    for field in (
        "gpu_utilization_ratio",
        "memory_utilization_ratio",
        "memory_total_bytes",
        "memory_visible_total_bytes",
        "gtt_total_bytes",
        "power_watts",
        "power_limit_watts",
        "energy_millijoules",
        "temperature_celsius",
        "memory_temperature_celsius",
        "clock_hertz",
        "pcie_replays",
    ):
        assert getattr(reading, field) is not None, field


def test_the_second_of_two_dies_has_neither_power_nor_energy() -> None:
    first, second = (build_reading(GPU, card, Errors()) for card in cards("rocm-smi-6.4/mi250.json"))
    assert first.power_watts is not None
    assert first.energy_millijoules is not None
    assert second.power_watts is None
    assert second.energy_millijoules is None
    zero = with_plain_keys({"GPU ID": "0x740c", "Average Graphics Package Power (W)": "0.0"})
    assert build_reading(GPU, zero, Errors()).power_watts is None, "older tools print 0"


@pytest.mark.parametrize("capture", sorted(path.name for path in (CAPTURES / "rocm-smi-6.4").iterdir()))
def test_every_capture_is_read_without_an_error(capture: str) -> None:
    errors = Errors()
    for card in cards(f"rocm-smi-6.4/{capture}"):
        gpu = build_gpu(card, 0, None, errors)
        assert gpu is not None
        reading = build_reading(gpu, card, errors)
        assert drop_implausible(reading) == (reading, ())
    assert errors == {}


def test_of_both_power_values_the_available_one_is_used() -> None:
    both = {
        "Average Graphics Package Power (W)": "17.0",
        "Current Socket Graphics Package Power (W)": "N/A",
    }
    assert build_reading(GPU, with_plain_keys(both), Errors()).power_watts == 17


def test_memory_busy_under_both_names() -> None:
    old = with_plain_keys({"GPU memory use (%)": "12"})
    new = with_plain_keys({"GPU Memory Allocated (VRAM%)": "87", "GPU Memory Read/Write Activity (%)": "12"})
    assert build_reading(GPU, old, Errors()).memory_utilization_ratio == 0.12
    assert build_reading(GPU, new, Errors()).memory_utilization_ratio == 0.12


@pytest.mark.parametrize(
    ("text", "link"),
    [
        ("1 (16.0GT/s x16)", (4, 16)),
        ("1 (16.0GT/s, x16 619Mhz)", (4, 16)),
        ("0 (2.5GT/s x1)", (1, 1)),
        ("1 (32.0GT/s x8)", (5, 8)),
        ("N/A", (None, None)),
        ("1 (1.2.3GT/s x8)", (None, None)),
        ("1 (7.0GT/s x8)", (None, 8)),
    ],
)
def test_the_pcie_link(text: str, link: tuple[int | None, int | None]) -> None:
    reading = build_reading(GPU, with_plain_keys({"pcie clock level": text}), Errors())
    assert (reading.pcie_generation, reading.pcie_width) == link


def test_replays_under_both_names() -> None:
    for key in ("PCIe Replay Count", "PCIE Replay Count"):
        assert build_reading(GPU, with_plain_keys({key: "3"}), Errors()).pcie_replays == 3


def test_memory_stacks_are_separate_sensors() -> None:
    card = with_plain_keys(
        {"Temperature (Sensor HBM 0) (C)": "50.0", "Temperature (Sensor HBM 1) (C)": "N/A"}
    )
    assert build_reading(GPU, card, Errors()).sensor_celsius == {("hbm0",): 50}


def test_the_unit_of_energy_of_a_radeon_is_unknown() -> None:
    radeon = {"GPU ID": "0x73bf", "Energy counter": "17691682", "Accumulated Energy (uJ)": "270682737.97"}
    instinct = {**radeon, "GPU ID": "0x74a1"}
    assert build_reading(GPU, with_plain_keys(radeon), Errors()).energy_millijoules is None
    assert build_reading(GPU, with_plain_keys(instinct), Errors()).energy_millijoules == 269953


def test_a_card_without_values_is_lost() -> None:
    card = with_plain_keys({"GPU use (%)": "N/A", "PCI Bus": "0000:03:00.0", "Unique ID": "0x1"})
    assert not build_reading(GPU, card, Errors()).up


def test_malformed_values_are_counted_and_the_others_are_read() -> None:
    errors = Errors()
    card = with_plain_keys({"GPU use (%)": "much", "VRAM Total Memory (B)": "1.5", "PCIe Replay Count": "3"})
    reading = build_reading(GPU, card, errors)
    assert reading.pcie_replays == 3
    assert errors == {("gpu_utilization_ratio", "malformed"): 1, ("memory_total_bytes", "malformed"): 1}


def test_a_card_without_identity_is_omitted() -> None:
    errors = Errors()
    assert build_gpu(with_plain_keys({"PCI Bus": "here", "Unique ID": "N/A"}), 0, None, errors) is None
    assert errors == {("uuid", "malformed"): 1}


def test_of_two_spellings_of_one_key_the_one_with_a_value_is_used() -> None:
    assert with_plain_keys({"Fan speed (%)": "N/A", "Fan Speed (%)": "45"}) == {"fan speed (%)": "45"}


def test_the_partitioning_of_a_card() -> None:
    card = with_plain_keys({"Compute Partition": "CPX", "Memory Partition": "NPS4"})
    assert partition_profile(card) == "CPX/NPS4"
    assert partition_profile({}) is None
