"""The NVLink fabric: states, results, problems, and drivers that know less."""

from dataclasses import replace
from typing import Any

import pynvml
import pytest

from gputally.devices.nvml.fabric import _problems
from gputally.model import FABRIC_PROBLEMS, Labelled, Reading
from tests.support.nvml_cards import gb200, h100, l40s
from tests.unit.devices.nvml.driver import Driver
from tools.standin.scenario import Fault, FaultKind

ARGUMENT_VERSION_MISMATCH = 25


def fabric(reading: Reading) -> tuple[Any, ...]:
    return (reading.fabric_state, reading.fabric_status, reading.fabric_problem, reading.fabric_clique)


def read(driver: Driver, reading: Reading, **options: Any) -> Reading:
    driver.shows(reading, **options)
    report = driver.reader().read()
    assert report.errors == {}
    return report.readings[0]


@pytest.mark.parametrize("state", [None, 0])
def test_gpu_without_a_fabric_has_no_values(driver: Driver, state: int | None) -> None:
    assert fabric(read(driver, replace(l40s(), fabric_state=state))) == (None, None, None, None)


@pytest.mark.parametrize("state", [1, 2])
def test_result_and_clique_are_unknown_until_the_registration_is_completed(
    driver: Driver, state: int
) -> None:
    reading = read(driver, replace(h100(), fabric_state=state, fabric_status=999))
    assert fabric(reading) == (state, None, None, None)


def test_registration_that_failed_has_a_result_and_no_clique(driver: Driver) -> None:
    assert fabric(read(driver, replace(h100(), fabric_status=999))) == (3, 999, None, None)


@pytest.mark.parametrize("problem", FABRIC_PROBLEMS)
def test_each_problem_is_told_from_the_others(driver: Driver, problem: str) -> None:
    problems: Labelled = {(name,): float(name == problem) for name in FABRIC_PROBLEMS}
    assert read(driver, replace(gb200(), fabric_problem=problems)).fabric_problem == problems


def test_older_struct_is_used_where_pynvml_or_the_driver_has_no_newer_one(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(pynvml, "c_nvmlGpuFabricInfo_v3_t")
    assert fabric(read(driver, gb200())) == fabric(gb200())


def test_driver_without_the_structs_has_no_values(driver: Driver) -> None:
    fault = Fault(FaultKind.ERROR, "nvmlDeviceGetGpuFabricInfoV", value=ARGUMENT_VERSION_MISMATCH)
    assert fabric(read(driver, gb200(), faults=[fault])) == (None, None, None, None)


def health(name: str, value: str) -> int:
    shift = getattr(pynvml, f"NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_{name}")
    return int(getattr(pynvml, f"NVML_GPU_FABRIC_HEALTH_MASK_{name}_{value}") << shift)


@pytest.mark.parametrize(
    ("mask", "problems"),
    [
        (0, {}),
        (health("DEGRADED_BW", "TRUE"), {("degraded_bandwidth",): 1.0}),
        (health("DEGRADED_BW", "FALSE"), {("degraded_bandwidth",): 0.0}),
        (health("ROUTE_RECOVERY", "TRUE"), {("route_recovery",): 1.0}),
        (health("ROUTE_UNHEALTHY", "FALSE"), {("route_unhealthy",): 0.0}),
        (health("ACCESS_TIMEOUT_RECOVERY", "TRUE"), {("access_timeout_recovery",): 1.0}),
        (health("INCORRECT_CONFIGURATION", "NONE"), {("incorrect_configuration",): 0.0}),
        (health("INCORRECT_CONFIGURATION", "GPU_STATE_INVALID"), {("incorrect_configuration",): 1.0}),
        (health("PARTITION_ASSIGNED", "FALSE"), {}),
    ],
)
def test_health_mask_is_read_as_nvml_writes_it(mask: int, problems: dict[tuple[str], float]) -> None:
    assert _problems(mask) == problems
