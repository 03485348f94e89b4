"""The groups of rules, in the order of triage: is it there, is it ill, is it full, is it wasted."""

from alerts.groups import (
    anomalies,
    availability,
    efficiency,
    energy,
    exporter,
    health,
    levels,
    prices,
    saturation,
)
from alerts.model import Alert, Group, Record

GROUPS: tuple[Group, ...] = (
    prices.GROUP,
    *levels.GROUPS,
    *anomalies.GROUPS,
    availability.GROUP,
    health.GROUP,
    saturation.GROUP,
    efficiency.GROUP,
    energy.GROUP,
    exporter.GROUP,
)
ALERTS: tuple[Alert, ...] = tuple(alert for group in GROUPS for alert in group.alerts)
RECORDS: tuple[Record, ...] = tuple(record for group in GROUPS for record in group.records)
