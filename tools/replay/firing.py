"""Which alerts would have fired: the expressions over a range, and then what Prometheus makes of them.

promtool can record rules into the past, but not alerts.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from tools.replay.fleet import Period
from tools.replay.rule_files import Alert, list_alerts, read_groups
from tools.servers.prometheus import Prometheus

_MOST_POINTS = 10_000
"""Of one series in one answer; Prometheus gives no more than 11,000."""

AlertLabels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, order=True)
class Firing:
    """One alert, from the first evaluation at which it fired to the last, in seconds since 1970."""

    alert: str
    labels: AlertLabels
    """Those of the series and, as they are written (templates too), those of the rule; sorted."""
    first: float
    last: float


def firing(url: str, rule_files: Sequence[Path], period: Period) -> list[Firing]:
    """Every time that an alert of these files would have fired, had it been evaluated in this period.

    An evaluation takes place at each step of the period, whatever the interval of the group; nothing is known
    of what was pending before the first. A series counts for as long as Prometheus's lookback delta (5 m)
    after its last sample, unless it was marked as stale: recorded series never are.
    """
    prometheus = Prometheus(url)
    return sorted(
        found
        for file in rule_files
        for alert in list_alerts(read_groups(file))
        for found in firing_of(alert, _active(prometheus, alert, period), period)
    )


def firing_of(alert: Alert, active: Mapping[AlertLabels, Set[int]], period: Period) -> Iterator[Firing]:
    """`active` has the numbers of the steps at which the expression gave a sample with these labels."""
    wait, keep = alert.for_seconds / period.step, alert.keep_firing_for_seconds / period.step
    for labels, steps in active.items():
        for first, last in _firing_steps(steps, len(period), wait, keep):
            yield Firing(alert.name, labels, period.at(first), period.at(last))


def _firing_steps(active: Set[int], end: int, wait: float, keep: float) -> Iterator[tuple[int, int]]:
    """First and last step of each time that it fires; `wait` and `keep` are in steps as well."""
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


def _active(prometheus: Prometheus, alert: Alert, period: Period) -> dict[AlertLabels, set[int]]:
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
