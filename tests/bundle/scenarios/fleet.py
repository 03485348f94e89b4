"""Two days of a simulated fleet in a real Prometheus: what is well, and every fault in its own place.

Cluster `well` is healthy for both days. In cluster `ill` each GPU, pod or node has one fault, most of them in
the last hours. A few faults need a cluster of their own.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path

import yaml

from alerts.filling import fill_record, written
from alerts.groups import GROUPS
from alerts.model import Alert, Group, RecordingRule
from alerts.rules import rule_groups
from alerts.settings import GPU_HOUR_PRICES
from tools.replay.blocks import write_history
from tools.replay.fleet import GpuNode, Period
from tools.replay.rule_files import names_in
from tools.replay.rules import record_rules

MINUTE, HOUR, DAY = 60, 3600, 86_400
STEP = 2 * MINUTE
START = 1_748_736_000  # 2025-06-01: any time that has passed will do, and the same one gives the same values
END = START + 2 * DAY
HOURS_ILL = 5
TWO_DAYS = Period(START, END, STEP)
ILL = Period(END - HOURS_ILL * HOUR, END, STEP)
UNTIL_EVICTED = Period(END - HOURS_ILL * HOUR, END - 2 * HOUR, STEP)
LAST_MINUTES = Period(END - 36 * MINUTE, END, STEP)
WEEK_BEFORE = Period(END - 7 * DAY - 2 * HOUR, END - 7 * DAY, STEP)

_FOLDER = Path(__file__).parent
_ROWS: Mapping[str, Mapping[str, float]] = {
    # The healthy fleet has a model that is not among the defaults.
    "gpu_hour_prices": {**GPU_HOUR_PRICES, "GTX 1080 Ti": 0.02},
    "namespace_budgets": {"lavish": 0.01},
    "node_power_budgets": {"hungry": 50},
}
_USED_FOR_WEEKS = {"model:gputally_gpus:count", "gpu:gputally_gpu:info"}
"""The second is what the first is made of."""


def write(folder: Path) -> Path:
    """Plays the fleet and records the rules into the directory; returns the file of rules."""
    rules = folder / "rules.yml"
    groups = list(_groups())
    _write_rules(rules, groups, _names_that_alerts_need(groups))
    week_ago = folder / "week_ago.yml"
    _write_rules(week_ago, groups, _USED_FOR_WEEKS)
    write_history([_SPARE], WEEK_BEFORE, folder / "data", cluster="ill")
    record_rules(folder / "data", [week_ago], WEEK_BEFORE)
    write_history(_FOR_TWO_DAYS, TWO_DAYS, folder / "data", cluster="well")
    write_history(_FOR_HOURS, ILL, folder / "data", cluster="ill")
    write_history([_EVICTED], UNTIL_EVICTED, folder / "data", cluster="ill")
    write_history([_CROWDED], LAST_MINUTES, folder / "data", cluster="ill")
    record_rules(folder / "data", [rules], TWO_DAYS, block_hours=54)
    return rules


def _groups() -> Iterator[Group]:
    """All rules, with the rows of the tables above."""
    for group in GROUPS:
        yield replace(group, rules=tuple(filled for rule in group.rules for filled in _with_rows(rule)))


def _with_rows(rule: Alert | RecordingRule) -> Sequence[Alert | RecordingRule]:
    if not isinstance(rule, RecordingRule) or rule.each not in _ROWS:
        return [rule]
    rows = _ROWS[rule.each].items()
    return [replace(fill_record(rule, {"key": key, "value": written(value)}), each="") for key, value in rows]


def _names_that_alerts_need(groups: Sequence[Group]) -> set[str]:
    """The other records are for dashboards, and take most of the time."""
    reads = {record.name: "" for group in groups for record in group.records}
    for group in groups:
        for record in group.records:
            reads[record.name] += f" {record.expr}"
    needed: set[str] = set()
    asked = " ".join(alert.expr for group in groups for alert in group.alerts)
    while found := names_in(asked, reads.keys()) - needed:
        needed |= found
        asked = " ".join(reads[name] for name in found)
    return needed


def _write_rules(file: Path, groups: Sequence[Group], names: Set[str]) -> None:
    kept = tuple(
        replace(
            group, rules=tuple(rule for rule in group.rules if isinstance(rule, Alert) or rule.name in names)
        )
        for group in groups
    )
    file.write_text(yaml.safe_dump({"groups": rule_groups(kept, disabled_too=True)}))


def _minutes_down(*spans: tuple[float, float], period: Period = ILL) -> tuple[tuple[float, float], ...]:
    return tuple((period.first + first * MINUTE, period.first + end * MINUTE) for first, end in spans)


def _small(seed: int, more: str = "", model: str = "l4", gpus: int = 1) -> str:
    """A node with little on it, and a job that keeps it busy."""
    job = f'[[workload]]\nshape = "training"\ngpus = [0]\nowner = "slurm/{seed}"\n'
    return f'model = "{model}"\ngpus = {gpus}\nseed = {seed}\n{job}{more}'


_FOR_TWO_DAYS = [
    GpuNode(
        name="well-hopper",
        scenario=_FOLDER / "well-hopper.toml",
        # A new version of the exporter, by day.
        down=_minutes_down((33 * 60, 33 * 60 + 4), period=TWO_DAYS),
    ),
    GpuNode(name="well-ampere", scenario=_FOLDER / "well-ampere.toml"),
    GpuNode(name="well-ada", scenario=_FOLDER / "well-ada.toml"),
    GpuNode(name="well-instinct", scenario=_FOLDER / "well-instinct.toml"),
    GpuNode(name="drifting", scenario=_FOLDER / "drifting.toml", labels={"cluster": "ill"}),
]
_SPARE = GpuNode(name="spare", scenario=_small(300, model="rtx4090", gpus=3))
_CROWDED = GpuNode(name="crowded", scenario=_small(309, model="h100", gpus=100))
_EVICTED = GpuNode(name="evicted", scenario=_small(312))
_FOR_HOURS = [
    _SPARE,
    GpuNode(name="cards", scenario=_FOLDER / "cards.toml"),
    GpuNode(name="instinct", scenario=_FOLDER / "instinct.toml"),
    GpuNode(name="teams", scenario=_FOLDER / "teams.toml"),
    GpuNode(name="silent", scenario=_small(301), down=_minutes_down((60, 90))),
    GpuNode(
        name="driverless",
        scenario=_small(302, '[[fault]]\nkind = "source_down"\nstart = "1h"\nstop = "1h20m"\n'),
    ),
    GpuNode(
        name="podless",
        scenario=_small(
            303,
            '[[workload]]\nshape = "training"\ngpus = [1]\npod = "apart/known-0"\n'
            '[[fault]]\nkind = "source_down"\nsource = "simulated_pods"\nstart = "1h"\nstop = "2h"\n',
            gpus=2,
        ),
    ),
    GpuNode(
        name="restarting",
        scenario=_small(305),
        down=_minutes_down(*((at, at + 2) for at in range(60, 120, 10))),
    ),
    # A new exporter takes over, and there is a GPU less; for a while both are there.
    GpuNode(name="shrunk", scenario=_small(306, gpus=3), down=_minutes_down((120, HOURS_ILL * 60 + 1))),
    GpuNode(
        name="shrunk",
        scenario=_small(306, gpus=2),
        labels={"instance": "shrunk:9401"},
        down=_minutes_down((-10, 110)),
    ),
    GpuNode(
        name="hungry",
        scenario=_small(
            307, '[[workload]]\nshape = "training"\ngpus = [1]\npod = "lavish/large-0"\n', gpus=2
        ),
    ),
    GpuNode(
        name="nameless",
        scenario='model = "l4"\ngpus = 1\nseed = 308\n[[workload]]\nshape = "training"\n'
        'start = "1h"\nstop = "4h"\n',
    ),
    GpuNode(name="full", scenario=_small(310), labels={"cluster": "full"}),
    GpuNode(
        name="dark",
        scenario=_small(311, gpus=2),
        labels={"cluster": "dark"},
        down=_minutes_down((60, 90)),
    ),
]
