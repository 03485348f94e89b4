"""The types of rules and settings.

Expressions and annotations are literals with `[[ name ]]` in place of a setting; `alerts.filling` replaces it
by the default, or, in the chart, by a reference to the Helm value. `[[- name -]]` also removes the spaces and
line breaks around it: `[ [[- rate_window -]] ]` becomes `[5m]`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

SettingValue = float | int | str | tuple[int, ...]
"""A number, a duration or text as Prometheus writes it, or a list of codes (in PromQL: `48|79`)."""


_LABELS = re.compile(r"\{\{ with .*?\{\{ end \}\}|(?: on)? \{\{.*?\}\}(?:/\{\{.*?\}\})?")


class Severity(StrEnum):
    """critical pages on-call, warning is for working hours, info is a notification."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class Action(StrEnum):
    """The automatic remediation that is safe, in the label `action`."""

    DRAIN = "drain"
    RESET = "reset"
    NONE = "none"


class Audience(StrEnum):
    """The operators of the GPUs, or the team that uses them."""

    ONCALL = "oncall"
    TEAM = "team"


@dataclass(frozen=True, slots=True)
class Setting:
    """A threshold, a window or another value of the rules that users may change."""

    name: str
    value: SettingValue
    help: str
    source: str = ""
    """The source of the default; empty for GPUTally's own choice."""


@dataclass(frozen=True, slots=True)
class RowSetting:
    """Rows that users write; a rule with `each` is repeated for each row."""

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
    """The fault and the object, in one line; without a value, so that it does not change while it fires."""
    description: str
    """The impact, then the first action."""
    for_: str = "0s"
    keep_firing_for: str = ""
    action: Action = Action.NONE
    audience: Audience = Audience.ONCALL
    enabled: bool = True

    @property
    def fault(self) -> str:
        """The summary without labels, for tables of all alerts."""
        return _LABELS.sub("", self.summary)


@dataclass(frozen=True, slots=True)
class RecordingRule:
    """One recording rule, named level:metric:operation.

    With `each`, one for each row of that table, whose cells are `[[ key ]]` and `[[ value ]]`.
    """

    name: str
    expr: str
    labels: Mapping[str, str] = field(default_factory=dict)
    each: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Rules that are evaluated together, in order."""

    name: str
    rules: tuple[Alert | RecordingRule, ...]
    interval: str = "1m"
    """Always stated: the default of a Prometheus may be 15 s, which costs four times as much."""
    enabled: bool = True
    """A group that is off is on where one of its alerts is."""

    @property
    def alerts(self) -> tuple[Alert, ...]:
        return tuple(rule for rule in self.rules if isinstance(rule, Alert))

    @property
    def records(self) -> tuple[RecordingRule, ...]:
        return tuple(rule for rule in self.rules if isinstance(rule, RecordingRule))
