"""Finds the alerts that would have fired: queries their expressions over a range and applies `for` and
`keep_firing_for`.

promtool can record rules for the past, but not alerts.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from tools.replay.fleet import Period
from tools.replay.rule_files import AlertRule, list_alerts, read_groups
from tools.servers.prometheus import Prometheus

_MOST_POINTS = 10_000
"""Points of one series in a response; Prometheus returns 11,000 at most."""

AlertLabels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, order=True)
class Firing:
    """One alert, from its first firing evaluation to its last, in seconds since 1970."""

    alert: str
    labels: AlertLabels
    """The labels of the series and those of the rule, with templates as they are written; sorted."""
    first: float
    last: float


def firing(url: str, rule_files: Sequence[Path], period: Period) -> list[Firing]:
    """Every period in which an alert of these files would have fired.

    Alerts are evaluated at each step of the period, independent of the interval of the group, and are
    inactive before the first. A series counts for the lookback delta of Prometheus (5 m) after its last
    sample unless it is marked as stale; recorded series never are.
    """
    prometheus = Prometheus(url)
    return sorted(
        found
        for file in rule_files
        for alert in list_alerts(read_groups(file))
        for found in firing_of(alert, _active(prometheus, alert, period), period)
    )


def firing_of(alert: AlertRule, active: Mapping[AlertLabels, Set[int]], period: Period) -> Iterator[Firing]:
    """`active` has the steps at which the expression returned a sample with these labels."""
    wait, keep = alert.for_seconds / period.step, alert.keep_firing_for_seconds / period.step
    for labels, steps in active.items():
        for first, last in _firing_steps(steps, len(period), wait, keep):
            yield Firing(alert.name, labels, period.at(first), period.at(last))


def _firing_steps(active: Set[int], end: int, wait: float, keep: float) -> Iterator[tuple[int, int]]:
    """The first and the last step of each firing period; `wait` and `keep` are in steps."""
    active_since = fires_since = silent_since = None
    for step in range(min(active), end):
        if step in active:
            silent_since = None
            active_since = step if active_since is None else active_since
            if fires_since is None and step - active_since >= wait:
                fires_since = step
            continue
        if fires_since is not None:
            silent_since = step if silent_since is None else silent_since
            if step - silent_since < keep:
                continue
            yield fires_since, step - 1
        active_since = fires_since = silent_since = None
    if fires_since is not None:
        yield fires_since, end - 1


def _active(prometheus: Prometheus, alert: AlertRule, period: Period) -> dict[AlertLabels, set[int]]:
    found: defaultdict[AlertLabels, set[int]] = defaultdict(set)
    for begin in range(0, len(period), _MOST_POINTS):
        end = min(begin + _MOST_POINTS, len(period)) - 1
        answer = prometheus.api(
            "query_range",
            query=alert.expr,
            start=f"{period.at(begin):.3f}",
            end=f"{period.at(end):.3f}",
            step=f"{period.step:.3f}",
        )
        for series in answer["result"]:
            labels = {**series["metric"], **alert.labels}
            labels.pop("__name__", None)
            found[tuple(sorted(labels.items()))].update(
                round((at - period.first) / period.step) for at, _ in series["values"]
            )
    return found
