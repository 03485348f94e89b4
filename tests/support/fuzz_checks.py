"""What must hold for readings, whatever a tool or a file told: they make a valid scrape."""

from collections.abc import Sequence

from gputally.devices.plausible import drop_implausible
from gputally.metrics.exposition import render_openmetrics, render_text
from gputally.metrics.families import build_families
from gputally.metrics.own_process import read_exporter_facts
from gputally.model import Reading, Snapshot
from tests.support.text_format import check_lines

FACTS = read_exporter_facts("1", "node")


def check_snapshot(snapshot: Snapshot) -> None:
    """Raises unless its scrape is valid."""
    families = build_families(snapshot, FACTS)
    check_lines(render_text(families))
    render_openmetrics(families)


def check_readings(readings: Sequence[Reading]) -> None:
    plausible = tuple(drop_implausible(reading)[0] for reading in readings)
    check_snapshot(Snapshot(taken_at_seconds=1.0, age_seconds=0.0, readings=plausible, sources=()))
