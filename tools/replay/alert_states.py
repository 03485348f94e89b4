"""Writes down which alerts fired in the past, as Prometheus would have.

A Prometheus that starts on such data (with --rules.alert.for-grace-period=0s) takes an alert that fired at
its end for one that has waited long enough, as after a restart.
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


def record_alerts(data_folder: Path, rule_files: Sequence[Path], period: Period) -> list[Firing]:
    """Add ALERTS and ALERTS_FOR_STATE to the blocks in `data_folder`; returns what fired.

    Only while an alert fires, not while it waits. No Prometheus may be running on the folder. Raises Failed.
    """
    waits = {alert.name: alert.for_seconds for file in rule_files for alert in list_alerts(read_groups(file))}
    with serving(data_folder) as prometheus:
        found = firing(prometheus.url, rule_files, period)
    if found:
        with tempfile.TemporaryDirectory(prefix=".alerts-", dir=data_folder) as scratch:
            folder = Path(scratch)
            (folder / "alerts.om").write_text("".join(openmetrics(found, waits, period)))
            (folder / "blocks").mkdir()
            _create_blocks(folder)
            move_blocks(folder / "blocks", data_folder)
    return found


def openmetrics(found: Iterable[Firing], waits: dict[str, float], period: Period) -> Iterator[str]:
    """`waits`: for how many seconds each alert was active before it fired."""
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


def _create_blocks(folder: Path) -> None:
    command: list[str | Path] = [
        *(programs.path("promtool"), "tsdb", "create-blocks-from", "openmetrics", "--quiet"),
        *("alerts.om", "blocks"),
    ]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"promtool did not take the alerts:\n{done.stdout}{done.stderr}")
