"""The whole scrape of the real exporter, on the driver stand-in, compared with a file.

`tools/test golden --update-golden` rewrites the files; read the diff before you commit it.
"""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from gputally.model import Reading
from tests.support.exporter import Exporter, Samples, parse_samples
from tests.support.worlds import mig_world, play, world
from tools.dependencies.programs import path as program
from tools.standin.scenario import Fault, FaultKind, environment

HERE = Path(__file__).parent

# Their values depend on the moment or the machine; that they are there does not.
VOLATILE = re.compile(
    r"^(process_\w+|gputally_snapshot_timestamp_seconds|gputally_source_(?:duration|last_success_timestamp)"
    r"_seconds\{.*\}|gputally_source_failures_total\{.*\}"
    r"|gputally_gpu_xid_last_timestamp_seconds\{.*\}|gputally_gpu_ledger_start_timestamp_seconds\{.*\}"
    r"|gputally_(?:pod|host)_held_seconds_total\{.*\}"
    r"|gputally_(?:pod|host)_busy_seconds_total\{.*\}(?! 0$)"  # 0 is one that never ran
    r"|gputally_\w+_energy_joules_total\{.*\}) \S+$",
    re.MULTILINE,
)
EXPORTER_INFO = re.compile(r'^(gputally_exporter_info\{.*?)version="[^"]*",python="[^"]*"', re.MULTILINE)


WORLDS: dict[str, Callable[[], tuple[Reading, ...]]] = {
    "eight-healthy": lambda: world("h100", 8, faults=()),
    "unsupported-fields": lambda: world("gtx1080ti", 1),
    "mig-a100": lambda: mig_world("a100", "3g.20gb", "2g.10gb", "1g.5gb"),
    "mig-h100": lambda: mig_world("h100", "3g.40gb", "1g.10gb"),
    "sixteen": lambda: world("b200", 16),
    "no-gpu": lambda: (),
}


def start(folder: Path, scenario: Path) -> Exporter:
    (folder / "proc").mkdir()  # the scenario's pids are not those of this machine
    arguments = (
        *("serve", "--reader", "nvml", "--interval", "200ms", "--hostname-override", "golden"),
        *("--procfs", str(folder / "proc")),
    )
    return Exporter(folder / "log", *arguments, environment=environment(scenario))


def steady(text: str) -> str:
    return EXPORTER_INFO.sub(r'\1version="-",python="-"', VOLATILE.sub(r"\1 -", text))


def check_metrics(text: str) -> None:
    """promtool must be silent."""
    result = subprocess.run(
        [program("promtool"), "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def check_scrape(exporter: Exporter, name: str, update: bool) -> None:
    exporter.next_snapshots(3)  # activity is measured between two readings
    text = exporter.scrape()
    check_metrics(text)
    check_books(parse_samples(text))
    openmetrics = exporter.scrape(Accept="application/openmetrics-text; version=1.0.0")
    assert same_samples(text, openmetrics)
    golden = HERE / f"{name}.prom"
    if update:
        golden.write_text(steady(text))
    assert steady(text) == golden.read_text()


def check_books(samples: Samples) -> None:
    """Owners and unattributed are what the counter says, GPU by GPU, to the millijoule."""
    for (gpu, _), joules in samples.get("gputally_gpu_energy_joules_total", {}).items():
        parts = (
            value
            for scope in ("pod", "host", "gpu_unattributed")
            for labels, value in samples.get(f"gputally_{scope}_energy_joules_total", {}).items()
            if labels[0] == gpu
        )
        assert sum(round(part * 1000) for part in parts) == round(joules * 1000), gpu


def same_samples(text: str, openmetrics: str) -> bool:
    found = {
        (sample.name, tuple(sample.labels.values()))
        for family in parse_openmetrics(openmetrics)
        for sample in family.samples
    }
    return found == {(name, labels) for name, values in parse_samples(text).items() for labels in values}


@pytest.mark.parametrize("name", WORLDS)
def test_a_world_at_rest(name: str, tmp_path: Path, update_golden: bool) -> None:
    with start(tmp_path, play(tmp_path / "world", WORLDS[name]())) as exporter:
        check_scrape(exporter, name, update_golden)


def test_one_gpu_of_eight_is_lost(tmp_path: Path, update_golden: bool) -> None:
    healthy = world("h100", 8, faults=())
    scenario = play(tmp_path / "world", healthy)
    with start(tmp_path, scenario) as exporter:
        exporter.wait_until(lambda: exporter.value("gputally_gpu_up", "3") == 1, "all are up")
        play(scenario, healthy, faults=(Fault(FaultKind.LOST, gpu=3),))
        exporter.wait_until(lambda: exporter.value("gputally_gpu_up", "3") == 0, "GPU 3 is lost")
        check_scrape(exporter, "one-lost", update_golden)


def test_the_driver_goes_and_comes_back(tmp_path: Path, update_golden: bool) -> None:
    healthy = world("l40s", 2, faults=())
    scenario = play(tmp_path / "world", healthy)
    with start(tmp_path, scenario) as exporter:
        exporter.wait_until(lambda: exporter.value("gputally_gpu_up", "0") == 1, "the GPUs are up")
        play(scenario, healthy, faults=(Fault(FaultKind.DRIVER_GONE),))
        exporter.wait_until(lambda: exporter.value("gputally_source_up", "nvml") == 0, "the driver is gone")
        check_scrape(exporter, "driver-gone", update_golden)
        play(scenario, healthy)
        exporter.wait_until(lambda: exporter.value("gputally_source_up", "nvml") == 1, "the driver is back")
        check_scrape(exporter, "driver-back", update_golden)
