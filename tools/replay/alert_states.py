"""Writes the series of alerts that fired, as Prometheus would have.

A Prometheus that starts on this data with --rules.alert.for-grace-period=0s continues the alerts that fired
at its end, as after a restart.
"""

import json
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tools import Failed
from tools.dependencies import programs
from tools.replay.blocks import move_blocks
from tools.replay.firing import Firing, firing
from tools.replay.fleet import Period
from tools.replay.rule_files import list_alerts, read_groups
from tools.servers.prometheus import serving


def record_alerts(data_directory: Path, rule_files: Sequence[Path], period: Period) -> list[Firing]:
    """Adds ALERTS and ALERTS_FOR_STATE to the blocks in `data_directory`, and returns the alerts that fired.

    Pending alerts are left out. No Prometheus may run on the directory. Raises Failed.
    """
    waits = {alert.name: alert.for_seconds for file in rule_files for alert in list_alerts(read_groups(file))}
    with serving(data_directory) as prometheus:
        found = firing(prometheus.url, rule_files, period)
    if found:
        with tempfile.TemporaryDirectory(prefix=".alerts-", dir=data_directory) as scratch:
            directory = Path(scratch)
            (directory / "alerts.om").write_text("".join(openmetrics(found, waits, period)))
            (directory / "blocks").mkdir()
            _create_blocks(directory)
            move_blocks(directory / "blocks", data_directory)
    return found


def openmetrics(found: Iterable[Firing], waits: dict[str, float], period: Period) -> Iterator[str]:
    """`waits` is the `for` of each alert, in seconds."""
    found = list(found)
    for each in found:
        yield from _samples("ALERTS", {"alertstate": "firing"}, each, 1.0, period)
    for each in found:
        yield from _samples("ALERTS_FOR_STATE", {}, each, each.first - waits[each.alert], period)
    yield "# EOF\n"


def _samples(name: str, more: dict[str, str], found: Firing, value: float, period: Period) -> Iterator[str]:
    labels = {"alertname": found.alert, **dict(found.labels), **more}
    series = ",".join(f"{label}={json.dumps(text, ensure_ascii=False)}" for label, text in labels.items())
    for at in period.times():
        if found.first <= at <= found.last:
            yield f"{name}{{{series}}} {value} {at:.3f}\n"


def _create_blocks(directory: Path) -> None:
    command: list[str | Path] = [
        *(programs.path("promtool"), "tsdb", "create-blocks-from", "openmetrics", "--quiet"),
        *("alerts.om", "blocks"),
    ]
    done = subprocess.run(command, cwd=directory, check=False, capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"promtool rejected the alerts:\n{done.stdout}{done.stderr}")
