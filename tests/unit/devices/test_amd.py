"""What all readers of AMD GPUs call things."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.devices.amd import (
    energy_millijoules,
    gpu_uuid,
    model_name,
    pair_dies,
    pcie_generation,
    sensor_name,
)
from gputally.model import Gpu, Reading


def test_a_uuid_is_the_unique_id_in_sixteen_digits() -> None:
    assert gpu_uuid(0xB2C3D4E5F60719, "0000:c3:00.0") == "GPU-00b2c3d4e5f60719"


@pytest.mark.parametrize("unique_id", [None, 0])
def test_without_a_unique_id_the_pci_address_is_used(unique_id: int | None) -> None:
    assert gpu_uuid(unique_id, "0000:c3:00.0") == "GPU-0000:c3:00.0"


@pytest.mark.parametrize(
    ("product", "device_id", "name"),
    [
        ("AMD Instinct MI300X OAM", 0x74A1, "AMD Instinct MI300X OAM"),
        ("Instinct MI210", 0x740F, "AMD Instinct MI210"),
        (None, 0x74A1, "AMD Instinct MI300X"),
        ("", 0x74A1, "AMD Instinct MI300X"),
        ("0x1002", 0x740F, "AMD Instinct MI210"),
        ("N/A", 0x1, "AMD GPU 0x0001"),
    ],
)
def test_a_model_is_the_product_name_or_the_name_of_its_chip(
    product: str | None, device_id: int, name: str
) -> None:
    assert model_name(product, device_id) == name


@pytest.mark.parametrize(
    ("said", "name"),
    [("edge", "edge"), ("memory", "mem"), ("hotspot", "junction"), ("HBM 3", "hbm3"), ("hbm_0", "hbm0")],
)
def test_sensors_have_the_labels_of_the_kernel(said: str, name: str) -> None:
    assert sensor_name(said) == name


@given(st.integers(1, 2**63))
def test_converted_energy_never_exceeds_the_counter(ticks: int) -> None:
    millijoules = energy_millijoules(ticks, 0x74A1)
    assert millijoules is not None
    assert millijoules * 2**16 <= ticks * 1000 < (millijoules + 1) * 2**16


@pytest.mark.parametrize("device_id", [None, 0x73BF, 0x744C, 0x738C])
def test_only_newer_instincts_have_an_energy_counter(device_id: int | None) -> None:
    assert energy_millijoules(65536, device_id) is None
    assert energy_millijoules(65536, 0x740F) == 1000
    assert energy_millijoules(0, 0x740F) is None


def test_generations_of_pcie() -> None:
    assert [pcie_generation(speed) for speed in (2.5, 5, 8, 16, 32, 64)] == [1, 2, 3, 4, 5, 6]
    assert pcie_generation(3.3) is None
    assert pcie_generation(None) is None


def die(number: int, *, watts: float | None, model: str = "AMD Instinct MI250X", up: bool = True) -> Reading:
    gpu = Gpu(f"GPU-{number}", number, "amd", model, pci_bus_id=f"0000:{number:02x}:00.0")
    return Reading(gpu=gpu, power_watts=watts, up=up)


def meters(*readings: Reading) -> dict[str, str | None]:
    return {reading.gpu.uuid: reading.gpu.metered_by for reading in pair_dies(readings)}


def test_the_second_die_of_a_package_has_the_meter_of_the_previous_die() -> None:
    package = (die(1, watts=90.0), die(2, watts=None), die(3, watts=80.0), die(4, watts=None))
    expected = {"GPU-1": None, "GPU-2": "GPU-1", "GPU-3": None, "GPU-4": "GPU-3"}
    assert meters(*package) == expected
    assert meters(*reversed(package)) == expected


def test_a_die_has_the_meter_of_no_other_package_and_no_other_card() -> None:
    assert meters(die(1, watts=90.0), die(2, watts=None), die(3, watts=None))["GPU-3"] is None
    assert meters(die(1, watts=None), die(2, watts=90.0)) == {"GPU-1": None, "GPU-2": None}
    radeon = "AMD Radeon RX 7900 XTX"
    assert meters(die(1, watts=90.0), die(2, watts=None, model=radeon))["GPU-2"] is None
    assert meters(die(1, watts=90.0, up=False), die(2, watts=None))["GPU-2"] is None
