"""What rules and settings are made of.

PromQL and annotations stand in the groups as they will be read, with `[[ name ]]` in place of a setting.
`alerts.render` puts in the default, or, in the chart's templates, the Helm value.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Value = float | int | str | tuple[int, ...]
"""A number, a duration or text as Prometheus writes it, or a list of codes (in PromQL: `48|79`)."""


class Severity(StrEnum):
    """critical wakes somebody, warning is for working hours, info goes to the team that it is about."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class Action(StrEnum):
    """What a robot may do about it, in the label `action`."""

    DRAIN = "drain"
    RESET = "reset"
    NONE = "none"


class Audience(StrEnum):
    """Who can do something about it: those who run the GPUs, or the team that uses them."""

    ONCALL = "oncall"
    TEAM = "team"


@dataclass(frozen=True, slots=True)
class Setting:
    """A threshold, a window or another value of the rules that users change."""

    name: str
    value: Value
    help: str
    source: str = ""
    """Where the default comes from, when it is not our own judgement."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows that users write: a rule with `each` is repeated for every row."""

    name: str
    rows: Mapping[str, float]
    help: str


@dataclass(frozen=True, slots=True)
class Alert:
    """One alerting rule. `expr` and the annotations may have `[[ setting ]]` in them."""

    name: str
    expr: str
    severity: Severity
    summary: str
    """One line without values: it must stay the same while the alert fires."""
    description: str
    """What is wrong where, with the labels and the value, and what to do first."""
    for_: str = "0s"
    keep_firing_for: str = ""
    action: Action = Action.NONE
    audience: Audience = Audience.ONCALL
    enabled: bool = True


@dataclass(frozen=True, slots=True)
class Record:
    """One recording rule, named level:metric:operation. With `each`, one per row of that table, and
    `[[ key ]]` and `[[ value ]]` are the row's."""

    name: str
    expr: str
    labels: Mapping[str, str] = field(default_factory=dict)
    each: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Rules that are evaluated together, in order."""

    name: str
    rules: tuple[Alert | Record, ...]
    interval: str = ""

    @property
    def alerts(self) -> tuple[Alert, ...]:
        return tuple(rule for rule in self.rules if isinstance(rule, Alert))

    @property
    def records(self) -> tuple[Record, ...]:
        return tuple(rule for rule in self.rules if isinstance(rule, Record))
