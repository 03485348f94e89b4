"""`FILLS` of each reader is what the reader fills on the stand-ins and fixtures: no more and no less."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from gputally.devices import Reader
from gputally.devices.amdgpu import AmdgpuReader
from gputally.devices.nvidia_smi import NvidiaSmiReader
from gputally.devices.nvml import NvmlReader
from gputally.devices.rocm_smi import RocmSmiReader
from gputally.devices.vendors import READER_NAMES, VENDORS, fields_filled, reader_row, readers_that_fill
from gputally.model import MigReading, Process, ProcessSample, Reading
from tests.support.amd_trees import HOSTS, planted
from tests.support.nvml_cards import CARDS
from tests.unit.devices.nvidia_smi.captures import QUERY_CAPTURES, CapturedNvidiaSmi
from tools.standin.scenario import Frame, preload, write_scenario

ROCM_SMI_CAPTURES = Path(__file__).parents[2] / "fixtures" / "rocm-smi"
ALWAYS_FILLED = {
    *("gpu", "up", "late", "read_at_us", "MigReading.instance", "Process.pid", "Process.kind"),
    *("ProcessSample.pid", "ProcessSample.timestamp_us", "ProcessSample.covers_us"),
}
# Fields that a reader can fill and that no fixture has.
WITHOUT_FIXTURE = {
    "nvml": set[str](),
    # No captured GPU has a fan; drivers newer than the captured ones have the other columns.
    "nvidia-smi": {"fan_speed_ratio", "throttle_seconds", "recovery_action"},
    # Only tables newer than the captured ones have it.
    "amdgpu": {"jpeg_utilization_ratio"},
    # No captured GPU has a fan or a lower limit above 0 W, and rocm-smi could not name the processes.
    "rocm-smi": {"fan_speed_ratio", "power_min_limit_watts", "Process.name"},
}


def nvml_readers(directory: Path) -> Iterator[Reader]:
    scenario = directory / "scenario"
    write_scenario(scenario, [Frame(0.0, tuple(card(index) for index, card in enumerate(CARDS.values())))])
    preload(scenario)
    yield NvmlReader(pcie_throughput=True, accounting=True)


def nvidia_smi_readers(directory: Path) -> Iterator[Reader]:
    for capture in QUERY_CAPTURES:
        name, driver = capture.parent.name, capture.stem.rpartition("-")[2]
        if not (capture.parent / "query-compute-apps.csv").exists():
            continue
        command = directory / name / driver
        command.mkdir(parents=True)
        yield NvidiaSmiReader(command=CapturedNvidiaSmi(command, name, driver).path, timeout_seconds=60)


def amdgpu_readers(_: Path) -> Iterator[Reader]:
    for host in HOSTS:
        yield AmdgpuReader(planted(host) / "sys", planted(host) / "proc", pcie_throughput=True)


def rocm_smi_readers(directory: Path) -> Iterator[Reader]:
    for captures, name, answer in (
        (ROCM_SMI_CAPTURES.glob("*/*.json"), "rocm-smi", "{path}"),
        (ROCM_SMI_CAPTURES.glob("*/*metric.json"), "amd-smi", "{stem}$1.json"),
    ):
        for path in captures:
            if path.parent.name.startswith("amd-smi") == (name == "amd-smi"):
                tool = directory / path.parent.name / path.stem / name
                tool.parent.mkdir(parents=True)
                printed = answer.format(path=path, stem=str(path).removesuffix("metric.json"))
                tool.write_text(f"#!/bin/sh\ncat {printed}\n")
                tool.chmod(0o755)
                yield RocmSmiReader(str(tool), timeout_seconds=60)


READERS: dict[str, Callable[[Path], Iterator[Reader]]] = {
    "nvml": nvml_readers,
    "nvidia-smi": nvidia_smi_readers,
    "amdgpu": amdgpu_readers,
    "rocm-smi": rocm_smi_readers,
}


def filled(readings: Iterable[Reading]) -> set[str]:
    """The names of all fields that have a value in at least one of the readings."""
    names: set[str] = set()
    todo: list[Any] = list(readings)
    while todo:
        record = todo.pop()
        prefix = "" if isinstance(record, Reading) else f"{type(record).__name__}."
        for field in fields(record):
            value = getattr(record, field.name)
            if value is None or (value == () and field.name == "mig"):
                continue
            names.add(prefix + field.name)
            if isinstance(value, tuple):
                todo += [one for one in value if isinstance(one, MigReading | Process | ProcessSample)]
    return names - ALWAYS_FILLED


def test_every_reader_has_a_fixture() -> None:
    assert tuple(READERS) == READER_NAMES


@pytest.mark.parametrize("name", READERS)
def test_a_reader_fills_the_fields_in_its_list_and_no_other(name: str, tmp_path: Path) -> None:
    readings: list[Reading] = []
    for reader in READERS[name](tmp_path):
        for _ in range(2):  # some values are the difference of two samples
            readings += reader.read().readings
        reader.close()
    seen = filled(readings)
    assert {field for field in seen if name not in readers_that_fill(field)} == set()
    assert reader_row(name).fills - seen == WITHOUT_FIXTURE[name]


def test_a_field_lists_its_readers_in_the_order_of_the_flag() -> None:
    assert readers_that_fill("power_watts") == READER_NAMES
    assert readers_that_fill("xid_errors") == ("nvml",)
    assert readers_that_fill("MigReading.memory_used_bytes") == ("nvml", "rocm-smi")
    assert readers_that_fill("no_such_field") == ()


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.name)
def test_a_row_lists_the_ratios_that_no_reader_of_the_vendor_samples(vendor: Any) -> None:
    ratios = {field.name for field in fields(ProcessSample) if field.name.endswith("_ratio")}
    sampled = {name.removeprefix("ProcessSample.") for name in fields_filled(vendor)}
    assert vendor.unsampled == ratios - sampled
