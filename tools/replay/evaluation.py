"""Evaluates recording rules as Prometheus does, at any time, over data that is written as it goes.

promtool records one rule after the other over a whole period. Here the rules of a group are evaluated
together and in order, minute by minute, and series that vanish are marked as stale: rules may read what was
recorded at the evaluation before, and evaluations can be left out.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tools.replay.remote_write import Receiver
from tools.replay.rule_files import RuleGroup
from tools.replay.tape import encode_sample, encode_series
from tools.servers.prometheus import Prometheus

_Labels = frozenset[tuple[str, str]]


class Evaluation:
    """The recording rules of some groups on one Prometheus that accepts remote writes."""

    def __init__(self, groups: Sequence[RuleGroup], prometheus: Prometheus, receiver: Receiver) -> None:
        self._rules = [rule for group in groups for rule in group["rules"] if "record" in rule]
        self._prometheus = prometheus
        self._receiver = receiver
        self._before: list[set[_Labels]] = [set() for _ in self._rules]

    def evaluate(self, at: float) -> None:
        """Evaluates all rules once; `at` must be later than all earlier ones. Raises Failed."""
        for number, rule in enumerate(self._rules):
            result = self._prometheus.query(rule["expr"], time=f"{at:.3f}")
            values = {_labels(rule, one["metric"]): float(one["value"][1]) for one in result}
            self._write(values, self._before[number] - values.keys(), round(at * 1000))
            self._before[number] = set(values)

    def forget(self) -> None:
        """Prometheus restarts: what vanished meanwhile is not marked as stale."""
        self._before = [set() for _ in self._rules]

    def _write(self, values: Mapping[_Labels, float], vanished: Iterable[_Labels], at_ms: int) -> None:
        series = [
            *(encode_series(dict(labels), encode_sample(value, at_ms)) for labels, value in values.items()),
            *(encode_series(dict(labels), encode_sample(None, at_ms)) for labels in vanished),
        ]
        if series:
            self._receiver.write(series)


def _labels(rule: Mapping[str, Any], labels: Mapping[str, str]) -> _Labels:
    recorded = {**labels, **rule.get("labels", {}), "__name__": rule["record"]}
    return frozenset((name, str(value)) for name, value in recorded.items())
