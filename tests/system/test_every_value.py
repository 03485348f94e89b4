"""Every exported value is the one that the scenario put into the driver, with `--metrics full`."""

from dataclasses import replace
from pathlib import Path

import pytest

from gputally.metrics.catalog import LEDGER_METRICS, UNKNOWN_METRICS
from gputally.metrics.families import build_families
from gputally.metrics.own_process import ExporterFacts
from gputally.model import Reading, Snapshot
from tests.support.exporter import Exporter, Samples
from tests.support.worlds import EVERY_MODEL, play
from tools.standin.scenario import environment

# The time of an event, the owner of a process and the ledger are the exporter's own observations.
OBSERVED = {
    "gputally_gpu_xid_last_timestamp_seconds",
    *(metric.name for metric in (*LEDGER_METRICS, *UNKNOWN_METRICS)),
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


@pytest.mark.parametrize("name", EVERY_MODEL)
def test_every_exported_value_equals_the_scenarios(name: str, tmp_path: Path) -> None:
    readings = EVERY_MODEL[name]()
    expected = about_gpus(expected_samples(readings))
    scenario = play(tmp_path / "world", readings)
    arguments = ("serve", "--reader", "nvml", "--interval", "200ms", "--metrics", "full")
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
