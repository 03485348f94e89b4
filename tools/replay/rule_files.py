"""Reads rule files of Prometheus: recording rules with their dependencies, and alerting rules."""

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_UNITS = {"y": 365 * 86400, "w": 7 * 86400, "d": 86400, "h": 3600, "m": 60, "s": 1, "ms": 0.001}
_PART = re.compile(r"(\d+)(ms|[ywdhms])")
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_NAMES = re.compile(r'__name__\s*=~\s*"([^"]*)"')

RuleGroup = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AlertRule:
    """One alerting rule."""

    name: str
    expr: str
    for_seconds: float = 0.0
    keep_firing_for_seconds: float = 0.0
    labels: Mapping[str, str] = field(default_factory=dict)


def read_groups(file: Path) -> list[RuleGroup]:
    """The groups of a rule file, or of a PrometheusRule."""
    content = yaml.safe_load(file.read_text())
    groups: list[RuleGroup] = content.get("spec", content)["groups"]
    return groups


def list_alerts(groups: Iterable[RuleGroup]) -> Iterator[AlertRule]:
    for group in groups:
        for rule in group["rules"]:
            if "alert" in rule:
                yield AlertRule(
                    rule["alert"],
                    rule["expr"],
                    parse_duration(rule.get("for", 0)),
                    parse_duration(rule.get("keep_firing_for", 0)),
                    {name: str(value) for name, value in rule.get("labels", {}).items()},
                )


def split_by_level(groups: Iterable[RuleGroup]) -> list[list[RuleGroup]]:
    """The recording rules in the order in which they must be recorded.

    A rule is in a later part than the rules that it reads; a rule that reads its own record reads the earlier
    values. Alerting rules, and groups without recording rules, are left out.
    """
    groups = list(groups)
    reads: dict[str, set[str]] = {rule["record"]: set() for rule in _recording_rules(groups)}
    for rule in _recording_rules(groups):
        reads[rule["record"]] |= names_in(rule["expr"], reads.keys()) - {rule["record"]}
    levels = _levels(reads)
    return [
        [
            {**group, "rules": rules}
            for group in groups
            if (rules := [rule for rule in _recording_rules([group]) if levels[rule["record"]] == level])
        ]
        for level in range(max(levels.values(), default=-1) + 1)
    ]


def names_in(expr: str, names: Set[str]) -> set[str]:
    """The names that the expression reads, directly or by a regular expression."""
    found = set(_NAME.findall(expr)) & names
    for pattern in _NAMES.findall(expr):
        found |= {name for name in names if re.fullmatch(pattern, name)}
    return found


def _levels(reads: Mapping[str, set[str]]) -> dict[str, int]:
    levels: dict[str, int] = {}
    while len(levels) < len(reads):
        level = max(levels.values(), default=-1) + 1
        ready = [name for name, needed in reads.items() if name not in levels and needed <= levels.keys()]
        if not ready:
            raise ValueError(
                f"these rules read each other: {', '.join(sorted(reads.keys() - levels.keys()))}"
            )
        levels.update(dict.fromkeys(ready, level))
    return levels


def _recording_rules(groups: Iterable[RuleGroup]) -> Iterator[Mapping[str, Any]]:
    return (rule for group in groups for rule in group["rules"] if "record" in rule)


def parse_duration(text: str | int) -> float:
    """Seconds of 1h30m, 5m, 500ms ... or 0."""
    parts = _PART.findall(str(text))
    if str(text) != "0" and (not parts or "".join(number + unit for number, unit in parts) != text):
        raise ValueError(f"{text!r} is not allowed; it takes a duration as in 90s, 5m or 1h30m")
    return float(sum(int(number) * _UNITS[unit] for number, unit in parts))
