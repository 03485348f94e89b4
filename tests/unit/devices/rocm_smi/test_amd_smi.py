"""What amd-smi's documents become."""

import json
from pathlib import Path
from typing import Any

import pytest

from gputally.devices import Errors
from gputally.devices.plausible import drop_implausible
from gputally.devices.rocm_smi.amd_smi import build_gpu, build_reading, gpus_of, partition_profile
from gputally.model import Gpu, Reading

CAPTURES = Path(__file__).parents[3] / "fixtures" / "rocm-smi"
GPU = Gpu("GPU-1", 0, "amd", "AMD GPU")


def load(name: str) -> dict[int, Any]:
    return dict(gpus_of(json.loads((CAPTURES / name).read_text())))


def read(metric: object, static: object = None) -> Reading:
    (facts,) = gpus_of([{"gpu": 0, **(metric if isinstance(metric, dict) else {})}]).values()
    return build_reading(GPU, static if isinstance(static, dict) else {}, facts, Errors())


def test_an_instinct_of_rocm_6() -> None:
    errors = Errors()
    static, metric = load("amd-smi-6.2/static.json")[0], load("amd-smi-6.2/metric.json")[0]
    gpu = build_gpu(static, 0, errors)
    assert gpu == Gpu(
        uuid="GPU-0f1e2d3c4b5a6978",
        index=0,
        vendor="amd",
        model="AMD Instinct MI300X",
        pci_bus_id="0001:0c:00.0",
        serial="692412000123",
        vbios_version="022.040.003.042.000001",
        driver_version="6.8.5",
    )
    assert build_reading(gpu, static, metric, errors) == Reading(
        gpu=gpu,
        gpu_utilization_ratio=0.97,
        memory_utilization_ratio=0.31,
        memory_total_bytes=196592 * 2**20,
        memory_used_bytes=283 * 2**20,
        memory_free_bytes=196309 * 2**20,
        memory_visible_total_bytes=196592 * 2**20,
        memory_visible_used_bytes=283 * 2**20,
        gtt_total_bytes=1031999 * 2**20,
        gtt_used_bytes=24 * 2**20,
        power_watts=612,
        power_limit_watts=700,
        power_max_limit_watts=750,
        energy_millijoules=5012345678,
        temperature_celsius=64,
        memory_temperature_celsius=49,
        temperature_slowdown_celsius=100,
        temperature_shutdown_celsius=110,
        sensor_celsius={("junction",): 64, ("mem",): 49},
        clock_hertz={
            ("graphics",): 2.1e9,
            ("memory",): 9e8,
            ("video",): 2.9e7,
            ("decode",): 2.2e7,
        },
        clock_max_hertz={("graphics",): 2.1e9, ("memory",): 1.3e9},
        ecc_errors={("corrected", "volatile"): 3, ("uncorrected", "volatile"): 0},
        pcie_generation=5,
        pcie_width=16,
        pcie_replays=2,
        ras_errors={
            ("umc", "corrected"): 3,
            ("umc", "uncorrected"): 0,
            ("umc", "deferred"): 1,
            ("gfx", "corrected"): 0,
            ("gfx", "uncorrected"): 0,
            ("gfx", "deferred"): 0,
        },
    )
    assert errors == {}
    assert partition_profile(static) == "SPX/NPS1"


@pytest.mark.parametrize("host", ["mi210", "mi250", "mi300x", "mi300x-cpx", "rx7900xtx", "apu"])
def test_the_newest_tool_is_read_without_an_error(host: str) -> None:
    errors = Errors()
    statics, metrics = (load(f"amd-smi-10.1/{host}.{what}.json") for what in ("static", "metric"))
    assert statics.keys() == metrics.keys() >= {0}
    for number, metric in metrics.items():
        gpu = build_gpu(statics[number], number, errors)
        assert gpu is not None
        reading = build_reading(gpu, statics[number], metric, errors)
        assert drop_implausible(reading) == (reading, ())
        if number == 0:
            assert reading.up
            assert reading.memory_total_bytes is not None
            assert reading.temperature_celsius is not None
    assert errors == {}


def test_numbers_without_units_as_rocm_5_and_6_0_have_them() -> None:
    reading = read(
        {
            "usage": {"gfx_activity": 5, "umc_activity": "N/A"},
            "fb_usage": {"vram_total": 16368, "vram_used": 10},
            "power": {"average_socket_power": 30},
            "clock": {"gfx": {"cur_clk": 500, "max_clk": 1700}},
            "temperature": {"edge_temperature": 40, "mem_temperature": "N/A"},
            "pcie": {"pcie_lanes": 16, "pcie_speed": 16000},
            "fan": {"usage": 20.5},
            "ecc_block": {"UMC": {"correctable": 1, "uncorrectable": 0}},
        }
    )
    assert reading.gpu_utilization_ratio == 0.05
    assert reading.memory_total_bytes == 16368 * 2**20
    assert reading.power_watts == 30
    assert reading.clock_hertz == {("graphics",): 5e8}
    assert reading.temperature_celsius == 40
    assert (reading.pcie_generation, reading.pcie_width) == (4, 16)
    assert reading.fan_speed_ratio == {("0",): 0.205}
    assert reading.ecc_errors == {("corrected", "volatile"): 1, ("uncorrected", "volatile"): 0}


def test_a_total_of_errors_without_blocks_is_not_used() -> None:
    assert read({"ecc": {"total_correctable_count": 0}, "ecc_blocks": "N/A"}).ecc_errors is None


def test_sensors_in_a_list_are_numbered_and_those_of_partitions_omitted() -> None:
    temperature = {"hbm_stacks": [{"value": 50, "unit": "C"}, "N/A"], "xcd": {"xcp_0": ["N/A"]}}
    assert read({"temperature": temperature}).sensor_celsius == {("hbm0",): 50}


def test_a_gpu_without_values_is_lost_even_with_known_limits() -> None:
    reading = read({"usage": "N/A", "power": "N/A"}, {"limit": {"max_power": 750}})
    assert not reading.up


@pytest.mark.parametrize(
    "document", [None, [], {}, {"gpu_data": "N/A"}, [{"cpu": 0}], [3], {"gpu_data": [{"gpu": "0"}]}]
)
def test_another_document_has_no_gpus(document: object) -> None:
    assert gpus_of(document) == {}


def test_a_gpu_without_identity_is_omitted() -> None:
    assert build_gpu({"asic": "N/A", "bus": {"bdf": "N/A"}}, 0, Errors()) is None
