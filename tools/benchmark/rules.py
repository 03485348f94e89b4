"""Measures the rules with a thousand nodes in one Prometheus, which evaluates them itself.

A node of each of some models runs through the real exporter and is cloned. Every series goes back as far as a
rule reads it, so that every window is full: the scrapes of the last hour are those of the exporter. Earlier
ones, and those of records, repeat the last value times a factor that changes from sample to sample. Then
Prometheus loads the rules and evaluates each group at its own interval; a `query_offset` moves the clock to
the time of the data.
"""

import math
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import yaml

from alerts.check import full_schema
from alerts.filling import with_defaults
from alerts.groups import GROUPS
from alerts.model import Alert, RecordingRule
from alerts.rules import rule_groups
from tools.benchmark.fleet import GPUS, nodes_of
from tools.benchmark.reach import Reach, reach_of
from tools.replay.blocks import (
    RECEIVER,
    encode_requests,
    load,
    play_nodes,
    read_windows,
    write_history,
)
from tools.replay.clones import renamed
from tools.replay.fleet import PORT, WINDOW_SECONDS, GpuNode, Period
from tools.replay.rule_files import RuleGroup, names_in, parse_duration
from tools.replay.rules import record_rules
from tools.replay.tape import EncodedSeries, LabelPairs, encode_sample
from tools.servers.prometheus import Prometheus, running, serving

SCRAPE_SECONDS = 15
_BEGAN = 1_748_736_000  # the same time gives the same values
EVALUATED = _BEGAN + 86_400
"""The first evaluation. Records go back further; the scenario does not have to."""
_LOOKBACK = 300
_WINDOW_SECONDS = 300
_SCRAPED_SECONDS = 4200
"""What is read further back is not simulated: its last value is repeated, as that of records."""
_POLL_SECONDS = 10
_CLUSTER, _JOB = "simulated", "gputally"

_Rename = Callable[[LabelPairs], LabelPairs]


@dataclass(frozen=True, slots=True)
class GroupCost:
    """The cost of one group, as Prometheus reports it."""

    name: str
    interval_seconds: float
    rules: int
    seconds: float | None
    """The median evaluation; None if there was none."""
    recorded: int
    """Series."""

    @property
    def seconds_per_minute(self) -> float:
        return (self.seconds or 0.0) * 60 / self.interval_seconds


@dataclass(frozen=True, slots=True)
class RulesCost:
    """The cost of all rules on one fleet."""

    nodes: int
    minutes: float
    series: int
    """Scraped."""
    samples: int
    """Loaded."""
    reach: Reach
    groups: Sequence[GroupCost]
    cpu_seconds_per_minute: float
    """Of the whole process of Prometheus."""
    resident_bytes: int
    missed: int
    failed: int

    @property
    def seconds_per_minute(self) -> float:
        return sum(group.seconds_per_minute for group in self.groups)

    @property
    def recorded_per_gpu(self) -> float:
        return sum(group.recorded for group in self.groups) / (self.nodes * GPUS)


@dataclass(frozen=True, slots=True)
class PastSeries:
    """A series that rules read further back than it is recorded or scraped."""

    labels: Mapping[str, str]
    value: float
    interval: float
    reach: float
    until: float


def measure_rules(directory: Path, nodes: int, minutes: float, say: Callable[[str], None]) -> RulesCost:
    """Takes a quarter of an hour and more, and gigabytes of memory for a thousand nodes. Raises Failed."""
    directory.mkdir(parents=True)
    groups = rule_groups()
    reach = reach_of(_enabled(), full_schema())
    intervals = {
        rule["record"]: parse_duration(group["interval"])
        for group in groups
        for rule in group["rules"]
        if "record" in rule
    }
    rules = directory / "rules.yml"
    rules.write_text(yaml.safe_dump({"groups": groups}))
    base = nodes_of(nodes)
    say(f"rules: recording them for {len(base)} nodes, which gives the series of the records")
    scraped = Period(
        EVALUATED - _SCRAPED_SECONDS, EVALUATED + minutes * 60 + 2 * SCRAPE_SECONDS, SCRAPE_SECONDS
    )
    past = [
        PastSeries(labels, value, intervals[name], reach[name], EVALUATED)
        if name in intervals
        else PastSeries(labels, value, SCRAPE_SECONDS, reach[name], scraped.first)
        for labels, value in _series(directory / "base", base, _needed(groups, reach))
        if reach.get(name := labels["__name__"], 0.0) > (0.0 if name in intervals else _SCRAPED_SECONDS)
    ]
    files = [directory / f"{number}.windows" for number in range(len(base))]
    play_nodes(base, files, scraped, began_at=_BEGAN, window_seconds=_WINDOW_SECONDS)
    config = directory / "prometheus.yml"
    config.write_text(_config())
    with running(directory, config, directory / "data", *RECEIVER, "--web.enable-lifecycle") as prometheus:
        say(f"rules: loading {nodes:,} nodes")
        load(prometheus, _requests(base, files, past, reach, scraped))
        loaded = own_figures(prometheus)
        series = int(prometheus.query('count({__name__=~"[a-z_]+"})', time=f"{EVALUATED}")[0]["value"][1])
        say(f"rules: evaluating them for {minutes:g} minutes")
        offset = f"{time.time() - EVALUATED:.0f}s"
        rules.write_text(yaml.safe_dump({"groups": [{**group, "query_offset": offset} for group in groups]}))
        config.write_text(_config(rules))
        _reload(prometheus)
        before, began = own_figures(prometheus), time.monotonic()
        spent = _watch(prometheus, minutes * 60)
        after, passed = own_figures(prometheus), time.monotonic() - began
        counts = _counts(prometheus, EVALUATED + minutes * 60)
    cpu = after["process_cpu_seconds_total"] - before["process_cpu_seconds_total"]
    return RulesCost(
        nodes=nodes,
        minutes=minutes,
        series=series,
        samples=int(loaded["prometheus_tsdb_head_samples_appended_total"]),
        reach=reach,
        groups=[_cost(group, spent, counts) for group in groups if group["rules"]],
        cpu_seconds_per_minute=cpu * 60 / passed,
        resident_bytes=int(after["process_resident_memory_bytes"]),
        missed=int(after["prometheus_rule_group_iterations_missed_total"]),
        failed=int(after["prometheus_rule_evaluation_failures_total"]),
    )


def _enabled() -> Iterator[Alert | RecordingRule]:
    for group in GROUPS:
        if group.enabled:
            yield from (rule for rule in with_defaults(group).rules if getattr(rule, "enabled", True))


def _needed(groups: Sequence[RuleGroup], reach: Reach) -> list[RuleGroup]:
    """The records that are read over time, with those that they read."""
    rules = [rule for group in groups for rule in group["rules"] if "record" in rule]
    every = {rule["record"] for rule in rules}
    needed = {name for name in every if reach.get(name)}
    while (
        more := {name for rule in rules if rule["record"] in needed for name in names_in(rule["expr"], every)}
        - needed
    ):
        needed |= more
    return [{"name": "needed", "rules": [rule for rule in rules if rule["record"] in needed]}]


def _series(
    directory: Path, base: Sequence[GpuNode], groups: Sequence[RuleGroup]
) -> list[tuple[Mapping[str, str], float]]:
    """Labels and values of all scraped series and of these records, of the nodes themselves."""
    alone = [replace(node, clones=()) for node in base]
    settled = Period(EVALUATED - _SCRAPED_SECONDS, EVALUATED, 60)
    write_history(alone, settled, directory, cluster=_CLUSTER, job=_JOB, began_at=_BEGAN)
    rules = directory / "rules.yml"
    rules.write_text(yaml.safe_dump({"groups": list(groups)}))
    record_rules(directory, [rules], Period(EVALUATED - 300, EVALUATED, 60))
    with serving(directory) as prometheus:
        found = prometheus.query('{__name__=~".+"}', time=f"{EVALUATED}")
    return [(series["metric"], float(series["value"][1])) for series in found]


def _requests(
    base: Sequence[GpuNode],
    files: Sequence[Path],
    past: Sequence[PastSeries],
    reach: Reach,
    scraped: Period,
) -> Iterator[list[bytes]]:
    """Everything in the order of time, window by window; no series before the time that a rule reads."""
    copies = {node.name: [(name, renamed(name)) for name in node.clones] for node in base}
    begin = min([scraped.first, *(EVALUATED - one.reach - _LOOKBACK for one in past)])
    while begin < scraped.first:
        end = min(begin + WINDOW_SECONDS, scraped.first)
        yield from encode_requests(earlier_samples(past, begin, end, copies), {})
        begin = end
    for windows in zip(*map(read_windows, files), strict=True):
        end = begin + _WINDOW_SECONDS
        yield from encode_requests(earlier_samples(past, begin, end, copies), {})
        for node, window in zip(base, windows, strict=True):
            read = [(labels, samples) for labels, samples in window if end > _first_read(labels, reach)]
            for name, rename in [(node.name, tuple), *copies[node.name]]:
                target = replace(node, name=name).target(job=_JOB, cluster=_CLUSTER)
                yield from encode_requests(((rename(labels), samples) for labels, samples in read), target)
        begin = end


def _first_read(labels: LabelPairs, reach: Reach) -> float:
    return EVALUATED - max(reach.get(dict(labels)["__name__"], 0.0), _LOOKBACK)


def earlier_samples(
    past: Sequence[PastSeries], begin: float, end: float, copies: Mapping[str, Sequence[tuple[str, _Rename]]]
) -> Iterator[EncodedSeries]:
    """The series of a window, those of clones too: from `begin`, included, to `end`, excluded. `copies` are
    the clones of a node, by its name.
    """
    for one in past:
        read_from = max(begin, EVALUATED - one.reach - _LOOKBACK)
        first, last = math.ceil(read_from / one.interval), math.ceil(min(end, one.until) / one.interval)
        samples = b"".join(
            encode_sample(one.value * (0.5 + number % 97 / 194), round(number * one.interval * 1000))
            for number in range(first, last)
        )
        if samples:
            node = one.labels.get("node", "")
            pairs = tuple(one.labels.items())
            yield pairs, samples
            for name, rename in copies.get(node, ()):
                target = {"node": name, "instance": f"{name}:{PORT}"}
                yield tuple((key, target.get(key, value)) for key, value in rename(pairs)), samples


def _config(*rule_files: Path) -> str:
    return yaml.safe_dump(
        {
            "rule_files": [str(file) for file in rule_files],
            "storage": {"tsdb": {"retention": {"time": "100y"}}},
        }
    )


def _watch(prometheus: Prometheus, seconds: float) -> dict[str, float]:
    """The median duration of the evaluations of each group, as Prometheus reports them."""
    durations: defaultdict[str, dict[str, float]] = defaultdict(dict)
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(_POLL_SECONDS, left))
        for group in prometheus.api("rules", exclude_alerts="true")["groups"]:
            if group["evaluationTime"]:
                durations[group["name"]][group["lastEvaluation"]] = group["evaluationTime"]
    return {name: median(times.values()) for name, times in durations.items()}


def _counts(prometheus: Prometheus, at: float) -> dict[str, int]:
    """The number of series of each record."""
    found = prometheus.query(
        'count by (__name__) (last_over_time({__name__=~".+:gputally_.+"}[6m]))', time=f"{at}"
    )
    return {series["metric"]["__name__"]: int(series["value"][1]) for series in found}


def _cost(group: RuleGroup, spent: Mapping[str, float], counts: Mapping[str, int]) -> GroupCost:
    records = {rule["record"] for rule in group["rules"] if "record" in rule}
    return GroupCost(
        group["name"],
        parse_duration(group["interval"]),
        len(group["rules"]),
        spent.get(group["name"]),
        sum(counts.get(name, 0) for name in records),
    )


def own_figures(prometheus: Prometheus) -> dict[str, float]:
    """Prometheus's own metrics, each summed over its series."""
    sums: defaultdict[str, float] = defaultdict(float)
    with urllib.request.urlopen(f"{prometheus.url}/metrics", timeout=60) as response:
        for line in response.read().decode().splitlines():
            if not line.startswith("#"):
                series, _, value = line.rpartition(" ")
                sums[series.partition("{")[0]] += float(value)
    return sums


def _reload(prometheus: Prometheus) -> None:
    request = urllib.request.Request(f"{prometheus.url}/-/reload", method="POST")
    with urllib.request.urlopen(request, timeout=60):
        pass
