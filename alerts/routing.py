"""Routes of alerts to receivers, and the alerts that are inhibited because another alert explains them.

On-call gets one notification per node for all its GPUs; a team gets the alerts about its own pods.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Matcher:
    """A condition on a label: =, !=, =~ or !~ a value."""

    label: str
    operator: str
    value: str

    def __str__(self) -> str:
        return f'{self.label}{self.operator}"{self.value}"'

    def as_resource(self) -> dict[str, str]:
        """Returns the matcher in the format of an AlertmanagerConfig."""
        return {"name": self.label, "matchType": self.operator, "value": self.value}


@dataclass(frozen=True, slots=True)
class Route:
    """Alerts that match go to this receiver, in notifications grouped by these labels."""

    matchers: tuple[Matcher, ...]
    receiver: str
    group_by: tuple[str, ...]
    group_wait: str
    group_interval: str
    repeat_interval: str
    muted_in_maintenance: bool = True


@dataclass(frozen=True, slots=True)
class Inhibition:
    """While a source alert fires, target alerts with equal labels are not sent."""

    why: str
    source: tuple[Matcher, ...]
    target: tuple[Matcher, ...]
    equal: tuple[str, ...]


OURS = Matcher("alertname", "=~", "GPUTally.+")
_LOST = "GPUTallyGpuLost"
_UNREADABLE = "GPUTallyNodeDark|GPUTallyDriverUnavailable"
_NODE_DOWN = Matcher("alertname", "=~", "KubeNodeNotReady|KubeNodeUnreachable|NodeDown|HostDown")
_ON_A_NODE = Matcher("node", "!=", "")
_CRITICAL = Matcher("severity", "=", "critical")
_NOT_CRITICAL = Matcher("severity", "=~", "warning|info")
"""A warning never inhibits a critical alert: no one would be woken up."""
_ON_A_GPU = Matcher("uuid", "!=", "")
"""Labels that both alerts lack would otherwise count as equal."""

RECEIVERS = ("slack", "pagerduty", "opsgenie", "email", "teams", "webhook")


def routes(teams: dict[str, str] | None = None) -> tuple[Route, ...]:
    """Returns the routes; the first match applies. `teams`: regular expression of a namespace -> receiver."""

    def team(receiver: str, *more: Matcher) -> Route:
        matchers = (Matcher("audience", "=", "team"), *more)
        return Route(matchers, receiver, ("cluster", "namespace", "alertname"), "5m", "30m", "24h")

    def severity(name: str, receiver: str, *timing: str, muted: bool = True) -> Route:
        wait, interval, repeat = timing
        grouping = ("cluster", "node")
        return Route((Matcher("severity", "=", name),), receiver, grouping, wait, interval, repeat, muted)

    return (
        *(team(name, Matcher("namespace", "=~", namespace)) for namespace, name in (teams or {}).items()),
        team("slack"),
        severity("critical", "pagerduty", "30s", "5m", "4h", muted=False),
        severity("warning", "slack", "2m", "15m", "12h"),
        severity("info", "slack", "5m", "1h", "24h"),
    )


WATCHDOG = Route(
    matchers=(Matcher("alertname", "=", "GPUTallyWatchdog"),),
    receiver="watchdog",
    group_by=("cluster",),
    group_wait="0s",
    group_interval="1m",
    repeat_interval="5m",
    muted_in_maintenance=False,
)
"""Of an Alertmanager with its own file: repeated to a service that raises an alarm when it no longer is."""


INHIBITIONS: tuple[Inhibition, ...] = (
    Inhibition(
        "A node that is down explains all alerts about it.",
        (_NODE_DOWN, _ON_A_NODE, _CRITICAL),
        (OURS,),
        ("cluster", "node"),
    ),
    Inhibition(
        "A warning about the node leaves the critical alerts about it.",
        (_NODE_DOWN, _ON_A_NODE),
        (OURS, _NOT_CRITICAL),
        ("cluster", "node"),
    ),
    Inhibition(
        "One notification for all exporters replaces those for single nodes.",
        (Matcher("alertname", "=~", "GPUTallyAllExportersDown|GPUTallyExporterAbsent"), _CRITICAL),
        (Matcher("alertname", "=~", "GPUTallyExporterDown|GPUTallyExporterMissing|GPUTallyNodeDark"),),
        ("cluster",),
    ),
    Inhibition(
        "Alerts about GPUs that cannot be read cannot be confirmed.",
        (Matcher("alertname", "=~", _UNREADABLE), _CRITICAL),
        (OURS, Matcher("alertname", "!~", _UNREADABLE)),
        ("cluster", "node"),
    ),
    Inhibition(
        "The same, if only the exporter is down: what was critical before still is.",
        (Matcher("alertname", "=", "GPUTallyExporterDown"),),
        (OURS, Matcher("alertname", "!=", "GPUTallyExporterDown"), _NOT_CRITICAL),
        ("cluster", "node"),
    ),
    Inhibition(
        "A lost GPU explains every other alert about it.",
        (Matcher("alertname", "=", _LOST), _CRITICAL),
        (OURS, Matcher("alertname", "!=", _LOST), _ON_A_GPU),
        ("cluster", "node", "uuid"),
    ),
    Inhibition(
        "A lost GPU is also missing.",
        (Matcher("alertname", "=", _LOST),),
        (Matcher("alertname", "=", "GPUTallyGpusMissing"),),
        ("cluster", "node"),
    ),
    Inhibition(
        "Of the alerts about a pod with idle GPUs, the one with the longest window is sent.",
        (Matcher("alertname", "=", "GPUTallyHeldIdleLong"),),
        (Matcher("alertname", "=~", "GPUTallyHeldIdle|GPUTallyHeldUnderused"),),
        ("cluster", "namespace", "pod"),
    ),
    Inhibition(
        "Of the alerts about one GPU, only critical ones are sent.",
        (OURS, _CRITICAL, _ON_A_GPU),
        (OURS, _NOT_CRITICAL, _ON_A_GPU),
        ("cluster", "node", "uuid"),
    ),
)
