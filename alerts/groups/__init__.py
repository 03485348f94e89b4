"""The groups of rules. Groups of records come first, then alerts in the order of triage."""

from alerts.groups import (
    anomalies,
    availability,
    baselines,
    bill,
    capacity,
    devices,
    efficiency,
    energy,
    exporter,
    fleet,
    health,
    ledger,
    owners,
    prices,
    saturation,
    stack,
)
from alerts.model import Alert, Group, RecordingRule

GROUPS: tuple[Group, ...] = (
    prices.GROUP,
    bill.GROUP,
    ledger.GROUP,
    devices.GROUP,
    owners.GROUP,
    fleet.GROUP,
    baselines.GROUP,
    anomalies.GROUP,
    capacity.GROUP,
    availability.GROUP,
    health.GROUP,
    saturation.GROUP,
    efficiency.GROUP,
    energy.GROUP,
    exporter.GROUP,
    stack.GROUP,
)
ALERTS: tuple[Alert, ...] = tuple(alert for group in GROUPS for alert in group.alerts)
RECORDS: tuple[RecordingRule, ...] = tuple(record for group in GROUPS for record in group.records)
