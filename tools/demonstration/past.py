"""Writes the demo's history (samples, recorded rules and alerts), so that graphs have data at once."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from alerts.rules import rule_groups
from tools.demonstration.machines import CLUSTER, STORY_SECONDS
from tools.demonstration.plan import Plan
from tools.replay.alert_states import record_alerts
from tools.replay.blocks import write_history
from tools.replay.fleet import Period
from tools.replay.rules import record_rules

_DAY_SECONDS = 24 * 3600
_NEEDS_A_DAY = "gputally-anomalies"
_BLOCK_HOURS = 54


def step_of(seconds: float) -> int:
    """Seconds between scrapes: one minute, or two for more than a few hours, because scrapes take most of the
    time.
    """
    return 60 if seconds <= STORY_SECONDS else 120


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


def write_recording_rules(directory: Path) -> list[Path]:
    """Writes the rules without alerts, for the time until the history is there."""
    file = directory / "recording.rules.yml"
    groups = [
        {"name": group["name"], "rules": [rule for rule in group["rules"] if "record" in rule]}
        for group in rule_groups()
    ]
    file.write_text(json.dumps({"groups": groups}))
    return [file]


def write_past(plan: Plan, directory: Path, rule_files: Sequence[Path], say: Callable[[str], None]) -> Path:
    """Writes the history up to the start of the exporters; returns its directory. Raises Failed."""
    data = directory / "past"
    seconds = plan.past_seconds
    period = Period(plan.now - seconds, plan.now, step_of(seconds))
    rule_files = rule_files if seconds > _DAY_SECONDS else rule_files[:1]
    names = ", ".join(machine.name for machine in plan.machines)
    say(
        f"history: playing {seconds / 3600:.3g} hours of {names}, {len(period)} scrapes each; "
        "this takes a minute or more"
    )
    begun = time.monotonic()
    nodes = [machine.past() for machine in plan.machines]
    written = write_history(nodes, period, data, cluster=CLUSTER, began_at=plan.began, process_metrics=True)
    rules = record_rules(data, rule_files, period, block_hours=_BLOCK_HOURS)
    found = record_alerts(data, rule_files, period)
    at_the_end = sum(each.last == period.at(len(period) - 1) for each in found)
    say(
        f"history: {written.samples:,} samples and {rules} rules, an alert fired {len(found)} times, "
        f"{at_the_end} fire at its end ({time.monotonic() - begun:.0f} s)"
    )
    return data
