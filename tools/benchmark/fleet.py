"""Measures the Fleet dashboard with a thousand nodes in one Prometheus.

A node of each of some models runs through the real exporter and is cloned; the rules are recorded over it.
For queries over hours, the earlier hours are the last values times a factor that changes every minute: with
the same number of series and samples.
"""

import json
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from alerts.rules import rule_groups
from dashboards import fleet
from dashboards.build import text_of
from gputally.declarations import STANDARD
from gputally.metrics.catalog import CATALOG
from gputally.simulator.default_scenario import default_scenario
from tools.benchmark.queries import ApiRequest, View, queries
from tools.replay.blocks import write_history
from tools.replay.fleet import GpuNode, Period
from tools.replay.rule_files import RuleGroup, names_in
from tools.replay.rules import record_rules
from tools.servers.prometheus import UNMERGED, Prometheus, serving

GPUS = 8
HOURS = 6
MINUTES = 20
"""Length of the simulated history: more than the windows of the rates."""
PIXELS = 1920
_MODELS = ("h100", "a100", "l40s", "mi300x")
_STEP = 60
_RECORDED_MINUTES = 10
_BEGAN = 1_748_736_000  # the same time gives the same values
_END = _BEGAN + (HOURS * 60 + 25) * 60
"""At this time one GPU of every node is too hot: many rows for the table of the worst GPUs."""
_BLOCK_HOURS = 6
_TIMES = 3
_SECONDS_TO_RESPOND = 120

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """The cost of one query of the dashboard."""

    place: str
    seconds: float
    """The median of three, after one that loads the data into memory."""
    results: int
    samples: int
    """Samples that Prometheus read, by its own statistics."""


@dataclass(frozen=True, slots=True)
class FleetCost:
    nodes: int
    samples: int
    answers: Sequence[Answer]

    @property
    def slowest(self) -> Answer:
        return max(self.answers, key=lambda answer: answer.seconds)

    @property
    def empty(self) -> list[str]:
        """Queries without a result on this fleet: their durations mean little."""
        return [answer.place for answer in self.answers if not answer.results]

    @property
    def middle_seconds(self) -> float:
        return median(answer.seconds for answer in self.answers)


def measure_fleet(directory: Path, nodes: int, say: Callable[[str], None]) -> FleetCost:
    """Takes minutes, and gigabytes of memory for a thousand nodes. Raises Failed."""
    data = directory / "fleet"
    groups = rule_groups()
    asked = list(queries(json.loads(text_of(fleet.DASHBOARD)), View(_END, HOURS * 3600, PIXELS)))
    say(f"fleet: simulating and loading {MINUTES} minutes of {nodes:,} nodes")
    played = Period(_END - MINUTES * 60, _END, _STEP)
    written = write_history(nodes_of(nodes), played, data, began_at=_BEGAN)
    say("fleet: recording the rules")
    last = Period(_END - _RECORDED_MINUTES * 60, _END, _STEP)
    record_rules(data, [_file(directory / "fleet-rules.yml", [as_records(group) for group in groups])], last)
    before = Period(_END - HOURS * 3600, last.first - _STEP, _STEP)
    past = [{"name": "past", "rules": past_of(read_over_time(asked, names_of(groups)), _END)}]
    record_rules(data, [_file(directory / "fleet-past.yml", past)], before, block_hours=_BLOCK_HOURS)
    with serving(data, UNMERGED) as prometheus:
        say(f"fleet: running {len(asked)} queries")
        answers = [_answer(prometheus, query) for query in asked]
    return FleetCost(nodes, written.samples, answers)


def nodes_of(count: int) -> list[GpuNode]:
    """`count` nodes, equally divided among the models."""
    shares = [range(number, count, len(_MODELS)) for number in range(len(_MODELS))]
    return [
        GpuNode(
            name=f"{model}-{share[0]:04}",
            scenario=default_scenario(GPUS, model, share[0]),
            metrics=STANDARD,
            clones=tuple(f"{model}-{number:04}" for number in share[1:]),
        )
        for model, share in zip(_MODELS, shares, strict=True)
        if share
    ]


def as_records(group: RuleGroup) -> RuleGroup:
    """The group with the series that Prometheus writes for alerts in place of them; none is pending."""
    written = (_firing(rule) if "alert" in rule else [rule] for rule in group["rules"])
    return {**group, "rules": [record for records in written for record in records]}


def _firing(rule: Json) -> list[Json]:
    labels = {"alertname": rule["alert"], **rule["labels"]}
    firing = {**labels, "alertstate": "firing"}
    return [
        {"record": "ALERTS", "expr": f"({rule['expr']}) * 0 + 1", "labels": firing},
        {"record": "ALERTS_FOR_STATE", "expr": f"({rule['expr']}) * 0 + time()", "labels": labels},
    ]


def names_of(groups: Iterable[RuleGroup]) -> set[str]:
    """The names of all series except those of alerts."""
    recorded = {rule["record"] for group in groups for rule in group["rules"] if "record" in rule}
    return recorded | {metric.name for metric in CATALOG}


def read_over_time(asked: Iterable[ApiRequest], names: Set[str]) -> set[str]:
    """The series of which a query reads more than the last value."""
    expressions = (
        query.parameters["query"]
        for query in asked
        if query.path == "query_range" or "[" in query.parameters.get("query", "")
    )
    return {name for expression in expressions for name in names_in(expression, names)}


def past_of(names: Iterable[str], end: float) -> list[Json]:
    """Rules that give series earlier values: the last value times a factor that changes every minute."""
    return [{"record": name, "expr": f"{name} @ {end:.0f} * (time() % 97 / 97)"} for name in sorted(names)]


def _file(path: Path, groups: Sequence[RuleGroup]) -> Path:
    path.write_text(yaml.safe_dump({"groups": list(groups)}))
    return path


def _answer(prometheus: Prometheus, query: ApiRequest) -> Answer:
    seconds, data = _timed(prometheus, query)
    if isinstance(data, list):  # the values of a label
        return Answer(query.place, seconds, len(data), 0)
    samples = data["stats"]["samples"]["totalQueryableSamples"]
    return Answer(query.place, seconds, len(data["result"]), samples)


def _timed(prometheus: Prometheus, query: ApiRequest) -> tuple[float, Any]:
    url = f"{prometheus.url}/api/v1/{query.path}?{urllib.parse.urlencode(query.parameters)}"
    spent = []
    for _ in range(1 + _TIMES):
        begun = time.monotonic()
        with urllib.request.urlopen(url, timeout=_SECONDS_TO_RESPOND) as response:
            body = response.read()
        spent.append(time.monotonic() - begun)
    return median(spent[1:]), json.loads(body)["data"]
