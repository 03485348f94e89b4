"""Is the Fleet dashboard quick with a thousand nodes in one Prometheus, and do its rules keep up?

A node of each of some models is played through the real exporter, with all of its series, and cloned; the
rules are recorded over that. Of what the dashboard reads over hours, the hours before are made of the last
values, multiplied by something else every minute: as many series and samples as there would be.
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
from gputally.metrics.catalog import CATALOG
from gputally.simulator.default_scenario import default_scenario
from tools.benchmark.questions import Question, View, questions
from tools.replay.blocks import write_history
from tools.replay.fleet import Node, Period
from tools.replay.rule_files import Group, names_in
from tools.replay.rules import record_rules
from tools.servers.prometheus import UNMERGED, Prometheus, serving

GPUS = 8
HOURS = 6
MINUTES = 20
"""What is played: more than the windows of the rates."""
PIXELS = 1920
_MODELS = ("h100", "a100", "l40s", "mi300x")
_STEP = 60
_RECORDED_MINUTES = 10
_BEGAN = 1_748_736_000  # the same time gives the same values
_END = _BEGAN + (HOURS * 60 + 25) * 60
"""When one GPU of every node is too hot: much for the table of the worst ones."""
_BLOCK_HOURS = 6
_TIMES = 3
_SECONDS_TO_ANSWER = 120

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """What one question of the dashboard costs."""

    place: str
    seconds: float
    """The middle of three, after one that has brought the data into memory."""
    results: int
    samples: int
    """That Prometheus had to look at, as it counts them itself."""


@dataclass(frozen=True, slots=True)
class GroupCost:
    """One evaluation of a group of rules."""

    name: str
    rules: int
    seconds: float


@dataclass(frozen=True, slots=True)
class FleetCost:
    nodes: int
    samples: int
    answers: Sequence[Answer]
    groups: Sequence[GroupCost]

    @property
    def slowest(self) -> Answer:
        return max(self.answers, key=lambda answer: answer.seconds)

    @property
    def empty(self) -> list[str]:
        """Questions that have no answer on this fleet: their times say little."""
        return [answer.place for answer in self.answers if not answer.results]

    @property
    def middle_seconds(self) -> float:
        return median(answer.seconds for answer in self.answers)

    @property
    def round_seconds(self) -> float:
        """All groups, one after the other; Prometheus evaluates them side by side."""
        return sum(group.seconds for group in self.groups)


def measure_fleet(folder: Path, nodes: int, say: Callable[[str], None]) -> FleetCost:
    """Takes some minutes, and some gigabytes of memory for a thousand nodes. Raises Failed."""
    data = folder / "fleet"
    groups = rule_groups()
    asked = list(questions(json.loads(text_of(fleet.DASHBOARD)), View(_END, HOURS * 3600, PIXELS)))
    say(f"fleet: playing and loading {MINUTES} minutes of {nodes:,} nodes")
    played = Period(_END - MINUTES * 60, _END, _STEP)
    written = write_history(nodes_of(nodes), played, data, began_at=_BEGAN)
    say("fleet: recording the rules")
    last = Period(_END - _RECORDED_MINUTES * 60, _END, _STEP)
    record_rules(data, [_file(folder / "fleet-rules.yml", [as_records(group) for group in groups])], last)
    before = Period(_END - HOURS * 3600, last.first - _STEP, _STEP)
    past = [{"name": "past", "rules": past_of(read_over_time(asked, names_of(groups)), _END)}]
    record_rules(data, [_file(folder / "fleet-past.yml", past)], before, block_hours=_BLOCK_HOURS)
    with serving(data, UNMERGED) as prometheus:
        say(f"fleet: asking {len(asked)} questions")
        answers = [_answer(prometheus, question) for question in asked]
        say("fleet: evaluating the rules")
        costs = [_evaluate(prometheus, group) for group in groups]
    return FleetCost(nodes, written.samples, answers, costs)


def nodes_of(count: int) -> list[Node]:
    """So many nodes in all, of each model as many as of the others."""
    shares = [range(number, count, len(_MODELS)) for number in range(len(_MODELS))]
    return [
        Node(
            name=f"{model}-{share[0]:04}",
            scenario=default_scenario(GPUS, model, share[0]),
            clones=tuple(f"{model}-{number:04}" for number in share[1:]),
        )
        for model, share in zip(_MODELS, shares, strict=True)
        if share
    ]


def as_records(group: Group) -> Group:
    """The group, with what Prometheus itself writes of an alert in place of it: here, none waits."""
    written = (_firing(rule) if "alert" in rule else [rule] for rule in group["rules"])
    return {**group, "rules": [record for records in written for record in records]}


def _firing(rule: Json) -> list[Json]:
    labels = {"alertname": rule["alert"], **rule["labels"]}
    firing = {**labels, "alertstate": "firing"}
    return [
        {"record": "ALERTS", "expr": f"({rule['expr']}) * 0 + 1", "labels": firing},
        {"record": "ALERTS_FOR_STATE", "expr": f"({rule['expr']}) * 0 + time()", "labels": labels},
    ]


def names_of(groups: Iterable[Group]) -> set[str]:
    """Of every series that there can be, but for alerts."""
    recorded = {rule["record"] for group in groups for rule in group["rules"] if "record" in rule}
    return recorded | {metric.name for metric in CATALOG}


def read_over_time(asked: Iterable[Question], names: Set[str]) -> set[str]:
    """The series of which more than the last value is read."""
    expressions = (
        question.parameters["query"]
        for question in asked
        if question.path == "query_range" or "[" in question.parameters.get("query", "")
    )
    return {name for expression in expressions for name in names_in(expression, names)}


def past_of(names: Iterable[str], end: float) -> list[Json]:
    """Rules that give series a past: their last values, multiplied by something else every minute."""
    return [{"record": name, "expr": f"{name} @ {end:.0f} * (time() % 97 / 97)"} for name in sorted(names)]


def _file(path: Path, groups: Sequence[Group]) -> Path:
    path.write_text(yaml.safe_dump({"groups": list(groups)}))
    return path


def _answer(prometheus: Prometheus, question: Question) -> Answer:
    seconds, data = _timed(prometheus, question)
    if isinstance(data, list):  # the values of a label
        return Answer(question.place, seconds, len(data), 0)
    samples = data["stats"]["samples"]["totalQueryableSamples"]
    return Answer(question.place, seconds, len(data["result"]), samples)


def _evaluate(prometheus: Prometheus, group: Group) -> GroupCost:
    """As queries whose results are only counted: no other part of the evaluation takes long."""
    asked = [
        Question(group["name"], "query", {"query": f"count({rule['expr']})", "time": f"{_END}"})
        for rule in group["rules"]
    ]
    return GroupCost(group["name"], len(asked), sum(_timed(prometheus, question)[0] for question in asked))


def _timed(prometheus: Prometheus, question: Question) -> tuple[float, Any]:
    url = f"{prometheus.url}/api/v1/{question.path}?{urllib.parse.urlencode(question.parameters)}"
    spent = []
    for _ in range(1 + _TIMES):
        begun = time.monotonic()
        with urllib.request.urlopen(url, timeout=_SECONDS_TO_ANSWER) as response:
            body = response.read()
        spent.append(time.monotonic() - begun)
    return median(spent[1:]), json.loads(body)["data"]
