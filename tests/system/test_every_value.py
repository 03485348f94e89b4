"""Every value that the exporter serves is the one that the scenario put into the driver."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gputally.metrics.catalog import BOOK_METRICS, UNKNOWN_METRICS
from gputally.metrics.families import build_families
from gputally.metrics.own_process import ExporterFacts
from gputally.model import Reading, Snapshot
from tests.support.exporter import Exporter, Samples
from tests.support.worlds import mig_world, play, world
from tools.standin.scenario import environment

SCENARIOS: dict[str, Callable[[], tuple[Reading, ...]]] = {
    "a100": lambda: world("a100", 3),
    "a100 with mig": lambda: mig_world("a100", "3g.20gb", "2g.10gb", "1g.5gb"),
    "h100": lambda: world("h100", 3),
    "h100 with mig": lambda: mig_world("h100", "4g.40gb", "1g.10gb"),
    "h200": lambda: world("h200", 2),
    "b200": lambda: world("b200", 3),
    "gb200": lambda: world("gb200", 3),
    "l4": lambda: world("l4", 2),
    "l40s": lambda: world("l40s", 3),
    "t4": lambda: world("t4", 3),
    "rtx4090": lambda: world("rtx4090", 2),
    "a desktop card without ecc or energy counter": lambda: world("gtx1080ti", 2),
}

# When an event came, whose a process is and what is in the books is the exporter's own observation.
OBSERVED = {
    "gputally_gpu_xid_last_timestamp_seconds",
    *(metric.name for metric in (*BOOK_METRICS, *UNKNOWN_METRICS)),
}


def expected_samples(readings: tuple[Reading, ...]) -> Samples:
    real = tuple(replace(reading, gpu=replace(reading.gpu, simulated=False)) for reading in readings)
    snapshot = Snapshot(taken_at_seconds=0, age_seconds=0, readings=real, sources=())
    facts = ExporterFacts(version="", python="", hostname="")
    families = build_families(snapshot, facts)
    return {f.metric.name: {labels: float(v) for labels, v in f.samples} for f in families}


def about_gpus(samples: Samples) -> Samples:
    scopes = ("gputally_gpu_", "gputally_mig_")
    found = {name: v for name, v in samples.items() if name.startswith(scopes) and name not in OBSERVED}
    info = found["gputally_gpu_info"]
    return {
        **found,
        "gputally_gpu_info": {labels[:-1]: value for labels, value in info.items()},
    }  # energy_source


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_exported_value_equals_the_scenarios(name: str, tmp_path: Path) -> None:
    readings = SCENARIOS[name]()
    expected = about_gpus(expected_samples(readings))
    scenario = play(tmp_path / "world", readings)
    arguments = ("serve", "--reader", "nvml", "--interval", "200ms")
    with Exporter(tmp_path / "log", *arguments, environment=environment(scenario)) as exporter:
        exporter.next_snapshots(4)  # activity is measured between two readings, events take a moment
        samples = exporter.samples()
        found = about_gpus(samples)
        log = exporter.log.read_text()
    assert found.keys() == expected.keys()
    for metric, values in expected.items():
        assert found[metric] == pytest.approx(values, rel=1e-12), metric
    for reading in readings:
        if reading.energy_millijoules is not None:
            gpu = (str(reading.gpu.index), reading.gpu.uuid)
            joules = samples["gputally_gpu_energy_joules_total"][gpu]
            assert round(joules * 1000) == reading.energy_millijoules
    assert "ERROR" not in log
