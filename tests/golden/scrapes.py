"""Compares a whole scrape with a file of this directory."""

import re
import subprocess
from pathlib import Path

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from tests.support.exporter import Exporter, parse_samples
from tests.support.ledger_series import check_balance
from tools.dependencies.programs import path as program

GOLDEN = Path(__file__).parent

# Their values depend on the moment or the machine; that they are there does not.
VOLATILE = re.compile(
    r"^(process_\w+|gputally_machine_boot_time_seconds|gputally_snapshot_timestamp_seconds|gputally_source_(?:duration|last_success_timestamp)"
    r"_seconds\{.*\}|gputally_source_failures_total\{.*\}"
    r"|gputally_gpu_xid_last_timestamp_seconds\{.*\}|gputally_gpu_ledger_start_timestamp_seconds\{.*\}"
    r"|gputally_(?:pod|host)_held_seconds_total\{.*\}"
    r"|gputally_(?:pod|host)_busy_seconds_total\{.*\}(?! 0$)"  # 0 is one that never ran
    r"|gputally_\w+_energy_joules_total\{.*\}) \S+$",
    re.MULTILINE,
)
EXPORTER_INFO = re.compile(r'^(gputally_exporter_info\{.*?)version="[^"]*",python="[^"]*"', re.MULTILINE)


def steady(text: str) -> str:
    return EXPORTER_INFO.sub(r'\1version="-",python="-"', VOLATILE.sub(r"\1 -", text))


def check_metrics(text: str) -> None:
    """promtool must be silent."""
    result = subprocess.run(
        [program("promtool"), "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def check_scrape(exporter: Exporter, name: str, update: bool, *, whole_ledger: bool = True) -> None:
    exporter.next_snapshots(3)  # activity is measured between two readings
    text = exporter.scrape()
    check_metrics(text)
    if whole_ledger:
        check_balance(parse_samples(text))
    openmetrics = exporter.scrape(Accept="application/openmetrics-text; version=1.0.0")
    assert same_samples(text, openmetrics)
    golden = GOLDEN / f"{name}.prom"
    if update:
        golden.write_text(steady(text))
    assert steady(text) == golden.read_text()


def same_samples(text: str, openmetrics: str) -> bool:
    found = {
        (sample.name, tuple(sample.labels.values()))
        for family in parse_openmetrics(openmetrics)
        for sample in family.samples
    }
    return found == {(name, labels) for name, values in parse_samples(text).items() for labels in values}


def wait_for_meters(exporter: Exporter) -> None:
    """Wait until the energy of every GPU has been measured once: before that, its source is not decided."""

    def measured() -> bool:
        samples = exporter.samples()
        initial = {
            labels[:2]: joules
            for labels, joules in samples.get("gputally_gpu_unattributed_energy_joules_total", {}).items()
            if labels[2] == "initial"
        }
        energy = samples.get("gputally_gpu_energy_joules_total", {})
        return all(joules > initial[labels] for labels, joules in energy.items())

    exporter.wait_until(measured, "the energy of every GPU is measured")
