"""The catalogue follows from the model; the readers of each metric, from what they read on the fixtures."""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path

import pytest

from gputally.declarations import LABEL, STANDARD, Group, counter, gauge, metric, over_first, several, total
from gputally.devices import Reader
from gputally.devices.amdgpu import AmdgpuReader
from gputally.devices.rocm_smi import RocmSmiReader
from gputally.metrics.catalog import (
    CATALOG,
    GPU_METRICS,
    LEDGER_METRICS,
    MIG_METRICS,
    Kind,
    Metric,
    Scope,
    info_labels,
    metrics_of,
)
from gputally.metrics.exposition import render_text
from gputally.metrics.families import fill
from gputally.model import Activity, Labelled, MigReading, ProcessSample, Reading
from tests.support.amd_trees import HOSTS, planted
from tools.rendering.metrics_page import readers_of

CAPTURES = Path(__file__).parents[2] / "fixtures" / "rocm-smi"
# What they can fill, and no fixture has: a newer table; a fan that the tool reports, a limit above 0 W.
UNSEEN = {"amdgpu": {"jpeg_utilization_ratio"}, "rocm-smi": {"fan_speed_ratio", "power_min_limit_watts"}}
ON_A_GPU = {
    "unattributed_millijoules": "energy_millijoules",
    "began_at_seconds": "energy_millijoules",
}


def amdgpu_readers(_: Path) -> Iterator[Reader]:
    for host in HOSTS:
        yield AmdgpuReader(planted(host) / "sys", planted(host) / "proc", pcie_throughput=True)


def rocm_smi_readers(directory: Path) -> Iterator[Reader]:
    for captures, name, answer in (
        (CAPTURES.glob("*/*.json"), "rocm-smi", "{path}"),
        (CAPTURES.glob("*/*metric.json"), "amd-smi", "{stem}$1.json"),
    ):
        for path in captures:
            if path.parent.name.startswith("amd-smi") == (name == "amd-smi"):
                tool = directory / path.parent.name / path.stem / name
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
    claims: tuple[tuple[tuple[Metric, ...], set[str]], ...] = (
        ((*GPU_METRICS, *LEDGER_METRICS), told(readings) | UNSEEN[name]),
        (MIG_METRICS, told(partitions)),
    )
    for metrics, filled in claims:
        claimed = {one.name for one in metrics if name in readers_of(one)}
        assert claimed == {one.name for one in metrics if ON_A_GPU.get(one.field, one.field) in filled}
    assert not told(readings) & UNSEEN[name], "there is a fixture of it now"


@pytest.mark.parametrize("name", READERS)
def test_the_documented_kinds_of_owners_follow_from_the_samples(name: str, tmp_path: Path) -> None:
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
    for one in CATALOG:
        if one.field.endswith("_ratio") and hasattr(ProcessSample, one.field):
            assert (name in readers_of(one)) is (one.field in ratios), one.name
        if one.field == "busy_microseconds":
            assert (name in readers_of(one)) is bool(samples), one.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Thruster(Activity):
    """A device that does not exist, with a metric of every form."""

    serial: str | None = field(default=None, metadata=LABEL)
    up: bool = field(metadata=metric("1 when it is on."))
    thrust_newtons: float | None = gauge("Thrust of {owner}.")
    burn_microseconds: int | None = counter("Time of burning.")
    fuel_bytes: Labelled | None = counter("Fuel.", "tank", name="propellant_bytes")  # noqa: RUF009
    plumes: Labelled | None = several(  # noqa: RUF009
        metric("Plumes.", set=STANDARD, view=total),
        metric("Plumes by side.", "side", name="side_plumes", view=over_first),
    )
    heading: float | None = None


def test_a_field_with_a_declaration_is_a_metric_without_further_edits() -> None:
    own = metrics_of(Thruster, Scope.POD, "ship", owner="the pod")[:4]
    assert own == (
        Metric("ship_up", Kind.GAUGE, Scope.POD, "up", "1 when it is on.", group=Group.PODS),
        Metric(
            "ship_thrust_newtons",
            Kind.GAUGE,
            Scope.POD,
            "thrust_newtons",
            "Thrust of the pod.",
            group=Group.PODS,
        ),
        Metric(
            "ship_burn_seconds_total",
            Kind.COUNTER,
            Scope.POD,
            "burn_microseconds",
            "Time of burning.",
            per=1_000_000,
            group=Group.PODS,
        ),
        Metric(
            "ship_propellant_bytes_total",
            Kind.COUNTER,
            Scope.POD,
            "fuel_bytes",
            "Fuel.",
            ("tank",),
            group=Group.PODS,
        ),
    )


def test_a_field_with_two_declarations_is_two_metrics() -> None:
    both = metrics_of(Thruster, Scope.MIG, "ship")[4:6]
    assert [(one.name, one.field, one.set) for one in both] == [
        ("ship_plumes", "plumes", "standard"),
        ("ship_side_plumes", "plumes", "full"),
    ]


def test_a_metric_of_a_gpu_declares_its_group() -> None:
    with pytest.raises(ValueError, match="ship_up is declared without a group"):
        metrics_of(Thruster, Scope.GPU, "ship")


def test_inherited_fields_follow_the_own_fields() -> None:
    inherited = metrics_of(Thruster, Scope.MIG, "ship")[6:]
    assert [one.field for one in inherited] == [one.name for one in fields(Activity)]


def test_a_label_of_an_info_metric_is_declared_at_its_field() -> None:
    assert info_labels(Thruster) == {"serial": "serial"}


def test_the_values_of_declared_fields_are_exported() -> None:
    thruster = Thruster(
        up=True,
        thrust_newtons=2.5,
        burn_microseconds=1_500_000,
        fuel_bytes={("aft",): 7},
        plumes={("0", "left"): 1, ("1", "left"): 2, ("2", "right"): 3},
    )
    families = fill(metrics_of(Thruster, Scope.MIG, "ship"), [(("0", "T-1"), thruster)])
    samples = [line for line in render_text(families).decode().splitlines() if not line.startswith("#")]
    assert samples == [
        'ship_up{gpu="0",uuid="T-1"} 1',
        'ship_thrust_newtons{gpu="0",uuid="T-1"} 2.5',
        'ship_burn_seconds_total{gpu="0",uuid="T-1"} 1.5',
        'ship_propellant_bytes_total{gpu="0",uuid="T-1",tank="aft"} 7',
        'ship_plumes{gpu="0",uuid="T-1"} 6',
        'ship_side_plumes{gpu="0",uuid="T-1",side="left"} 3',
        'ship_side_plumes{gpu="0",uuid="T-1",side="right"} 3',
    ]
