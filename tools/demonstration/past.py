"""Writes the demo's history (samples, recorded rules and alerts), so that graphs have data at once."""

import json
import time
from collections.abc import Sequence
from pathlib import Path

from alerts.rules import rule_groups
from tools.demonstration.machines import CLUSTER, Machine
from tools.replay.alert_states import record_alerts
from tools.replay.blocks import write_history
from tools.replay.fleet import WARM_UP_SECONDS, Period
from tools.replay.rules import record_rules

STORY_SECONDS = 6 * 3600
"""The scenarios of the fleet cover this time, even if a shorter history is written."""
_DAY_SECONDS = 24 * 3600
_NEEDS_A_DAY = "gputally-anomalies"
_BLOCK_HOURS = 54


def step_of(seconds: float) -> int:
    """Seconds between scrapes: one minute, or two for more than a few hours, because scrapes take most of the
    time.
    """
    return 60 if seconds <= STORY_SECONDS else 120


def story_seconds(past_seconds: float, at_least: int = 0) -> int:
    """The age of the scenarios: they begin before the first scrape."""
    return max(int(past_seconds), at_least) + WARM_UP_SECONDS


def write_rules(directory: Path) -> list[Path]:
    """Writes our rules as two files: the second has the rules that need a day of data.

    Without the intervals of the groups: the demo evaluates all of them often.
    """
    groups = [{"name": group["name"], "rules": group["rules"]} for group in rule_groups()]
    parts = {
        directory / "gputally.rules.yml": [group for group in groups if group["name"] != _NEEDS_A_DAY],
        directory / "anomalies.rules.yml": [group for group in groups if group["name"] == _NEEDS_A_DAY],
    }
    for file, part in parts.items():
        file.write_text(json.dumps({"groups": part}))
    return list(parts)


def write_past(
    machines: Sequence[Machine], directory: Path, rule_files: Sequence[Path], seconds: float, began: float
) -> None:
    """Writes the history to `directory`/data, which Prometheus serves. Raises Failed."""
    data = directory / "data"
    now = time.time()
    period = Period(now - seconds, now, step_of(seconds))
    rule_files = rule_files if seconds > _DAY_SECONDS else rule_files[:1]
    names = ", ".join(machine.name for machine in machines)
    print(
        f"playing the last {seconds / 3600:.3g} hours of {names}: "
        f"{len(period)} scrapes each; this takes a minute or more",
        flush=True,
    )
    begun = time.monotonic()
    nodes = [machine.past() for machine in machines]
    written = write_history(nodes, period, data, cluster=CLUSTER, began_at=began, process_metrics=True)
    begun = _done(f"{written.samples:,} samples", begun)
    rules = record_rules(data, rule_files, period, block_hours=_BLOCK_HOURS)
    begun = _done(f"{rules} rules recorded over them", begun)
    found = record_alerts(data, rule_files, period)
    at_the_end = sum(each.last == period.at(len(period) - 1) for each in found)
    _done(f"an alert fired {len(found)} times, {at_the_end} fire at the end", begun)


def _done(what: str, begun: float) -> float:
    now = time.monotonic()
    print(f"  {what}: {now - begun:.1f} s", flush=True)
    return now
