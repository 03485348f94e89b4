"""Data for dashboards in tests: a day of two nodes and four hours of a third, for a real Prometheus.

Most events are in the last hours, and many last until the end. The real recording rules and alerts are
evaluated.
"""

from pathlib import Path

import yaml

from alerts.rules import rule_groups
from tools.replay.alert_states import record_alerts
from tools.replay.blocks import write_history
from tools.replay.fleet import GpuNode, Period
from tools.replay.rules import record_rules

HOUR = 3600
STEP = 120
CLUSTER = "lab"
START = 1_748_736_000  # 2025-06-01: the same time gives the same values
END = START + 26 * HOUR
DAY = Period(START, END, STEP)
LAST_HOURS = Period(END - 4 * HOUR, END, STEP)

_DIRECTORY = Path(__file__).parent
_HOPPER = GpuNode(
    name="gpu-h100-01",
    scenario=_DIRECTORY / "hopper.toml",
    compat=("dcgm", "nvidia-smi"),
    pcie_throughput=True,
    down=((END - 2 * HOUR, END - 2 * HOUR + 600),),
)
_OTHERS = [
    GpuNode(name="gpu-a100-01", scenario=_DIRECTORY / "ampere.toml"),
    GpuNode(name="gpu-mi300x-01", scenario=_DIRECTORY / "instinct.toml", pcie_throughput=True),
]


def write_data(directory: Path) -> None:
    """Simulates the nodes, evaluates the rules and writes the result as Prometheus stores it."""
    data = directory / "data"
    write_history(_OTHERS, DAY, data, cluster=CLUSTER, process_metrics=True)
    write_history([_HOPPER], LAST_HOURS, data, cluster=CLUSTER, process_metrics=True)
    rules = directory / "rules.yml"
    # The dashboard Trends shows bands and alerts that are off by default.
    rules.write_text(yaml.safe_dump({"groups": rule_groups(disabled_too=True)}))
    record_rules(data, [rules], DAY, block_hours=54)
    record_alerts(data, [rules], LAST_HOURS)
