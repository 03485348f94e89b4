"""What the catalog says of the AMD readers is what they do on the hosts that there are fixtures of."""

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from gputally.devices import Reader
from gputally.devices.amdgpu import AmdgpuReader
from gputally.devices.rocm_smi import RocmSmiReader
from gputally.metrics.catalog import BOOK_METRICS, CATALOG, GPU_METRICS, MIG_METRICS, Metric
from gputally.model import MigReading, ProcessSample, Reading
from tests.support.amd_trees import HOSTS, planted

CAPTURES = Path(__file__).parents[2] / "fixtures" / "rocm-smi"
# What they can fill, and no fixture has: a newer table; a fan that the tool reports, a limit above 0 W.
UNSEEN = {"amdgpu": {"jpeg_utilization_ratio"}, "rocm-smi": {"fan_speed_ratio", "power_min_limit_watts"}}
ON_A_GPU = {
    "info": "gpu",
    "process_count": "processes",
    "unattributed_millijoules": "energy_millijoules",
    "began_at_seconds": "energy_millijoules",
}
ON_A_PARTITION = {"info": "instance", "process_count": "processes"}


def amdgpu_readers(_: Path) -> Iterator[Reader]:
    for host in HOSTS:
        yield AmdgpuReader(planted(host) / "sys", planted(host) / "proc", pcie_throughput=True)


def rocm_smi_readers(folder: Path) -> Iterator[Reader]:
    for captures, name, answer in (
        (CAPTURES.glob("*/*.json"), "rocm-smi", "{path}"),
        (CAPTURES.glob("*/*metric.json"), "amd-smi", "{stem}$1.json"),
    ):
        for path in captures:
            if path.parent.name.startswith("amd-smi") == (name == "amd-smi"):
                tool = folder / path.parent.name / path.stem / name
                tool.parent.mkdir(parents=True)
                told = answer.format(path=path, stem=str(path).removesuffix("metric.json"))
                tool.write_text(f"#!/bin/sh\ncat {told}\n")
                tool.chmod(0o755)
                yield RocmSmiReader(str(tool), timeout_seconds=60)


READERS = {"amdgpu": amdgpu_readers, "rocm-smi": rocm_smi_readers}


def told(holders: list[Reading] | list[MigReading]) -> set[str]:
    return {
        field.name
        for holder in holders
        for field in fields(holder)
        if getattr(holder, field.name) is not None
    }


@pytest.mark.parametrize("name", READERS)
def test_a_metric_names_the_readers_that_fill_it(name: str, tmp_path: Path) -> None:
    readings: list[Reading] = []
    for reader in READERS[name](tmp_path):
        reader.read()
        readings += reader.read().readings  # some values need two looks
    partitions = [mig for reading in readings for mig in reading.mig]
    assert partitions
    claims: tuple[tuple[tuple[Metric, ...], dict[str, str], set[str]], ...] = (
        ((*GPU_METRICS, *BOOK_METRICS), ON_A_GPU, told(readings) | UNSEEN[name]),
        (MIG_METRICS, ON_A_PARTITION, told(partitions)),
    )
    for metrics, computed, filled in claims:
        claimed = {metric.name for metric in metrics if name in metric.readers}
        assert claimed == {
            metric.name for metric in metrics if computed.get(metric.field, metric.field) in filled
        }
    assert not told(readings) & UNSEEN[name], "there is a fixture of it now"


@pytest.mark.parametrize("name", READERS)
def test_what_is_said_of_owners_follows_from_the_samples(name: str, tmp_path: Path) -> None:
    samples: list[ProcessSample] = []
    for reader in READERS[name](tmp_path):
        reader.read()
        samples += [sample for reading in reader.read().readings for sample in reading.process_samples or ()]
    ratios = {
        field.name
        for sample in samples
        for field in fields(sample)
        if getattr(sample, field.name) is not None
    }
    for metric in CATALOG:
        if metric.field.endswith("_ratio") and hasattr(ProcessSample, metric.field):
            assert (name in metric.readers) is (metric.field in ratios), metric.name
        if metric.field == "busy_microseconds":
            assert (name in metric.readers) is bool(samples), metric.name
