"""Who hears of which alert, and what is not said because something worse explains it.

On-call gets one message per node, however many of its GPUs are ill; a team gets what is about its own pods.
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
        """As the operator's AlertmanagerConfig has it."""
        return {"name": self.label, "matchType": self.operator, "value": self.value}


@dataclass(frozen=True, slots=True)
class Route:
    """Alerts with these labels go to this receiver, in messages grouped by these labels."""

    matchers: tuple[Matcher, ...]
    receiver: str
    group_by: tuple[str, ...]
    group_wait: str
    group_interval: str
    repeat_interval: str
    muted_in_maintenance: bool = True


@dataclass(frozen=True, slots=True)
class Inhibition:
    """While a source fires, its targets with equal labels are not sent."""

    why: str
    source: tuple[Matcher, ...]
    target: tuple[Matcher, ...]
    equal: tuple[str, ...]


OURS = Matcher("alertname", "=~", "GPUTally.+")
_LOST = "GPUTallyGpuLost"
_BLIND = "GPUTallyExporterDown|GPUTallyDriverUnavailable"
_ON_A_CARD = Matcher("uuid", "!=", "")
"""Without this, labels that both alerts lack would count as equal."""

RECEIVERS = ("slack", "pagerduty", "opsgenie", "email", "teams", "webhook")


def routes(teams: dict[str, str] | None = None) -> tuple[Route, ...]:
    """The first that matches takes the alert. `teams`: regular expression of a namespace -> receiver."""

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


INHIBITIONS: tuple[Inhibition, ...] = (
    Inhibition(
        "A node that is down explains all that is said about it.",
        (
            Matcher("alertname", "=~", "KubeNodeNotReady|KubeNodeUnreachable|NodeDown|HostDown"),
            Matcher("node", "!=", ""),
        ),
        (OURS,),
        ("cluster", "node"),
    ),
    Inhibition(
        "When no exporter answers, the single ones are not worth a message.",
        (Matcher("alertname", "=~", "GPUTallyAllExportersDown|GPUTallyExporterAbsent"),),
        (Matcher("alertname", "=", "GPUTallyExporterDown"),),
        ("cluster",),
    ),
    Inhibition(
        "What was last said about GPUs that nobody can read now cannot be confirmed.",
        (Matcher("alertname", "=~", _BLIND),),
        (OURS, Matcher("alertname", "!~", _BLIND)),
        ("cluster", "node"),
    ),
    Inhibition(
        "A lost GPU explains every other alert about it.",
        (Matcher("alertname", "=", _LOST),),
        (OURS, Matcher("alertname", "!=", _LOST), _ON_A_CARD),
        ("cluster", "node", "uuid"),
    ),
    Inhibition(
        "A GPU that is lost is also missing.",
        (Matcher("alertname", "=", _LOST),),
        (Matcher("alertname", "=", "GPUTallyGpusMissing"),),
        ("cluster", "node"),
    ),
    Inhibition(
        "Of a pod that wastes a GPU the longest step of the ladder is enough.",
        (Matcher("alertname", "=", "GPUTallyHeldIdleLong"),),
        (Matcher("alertname", "=~", "GPUTallyHeldIdle|GPUTallyHeldUnderused"),),
        ("cluster", "namespace", "pod"),
    ),
    Inhibition(
        "Of one GPU the worst is enough.",
        (OURS, Matcher("severity", "=", "critical"), _ON_A_CARD),
        (OURS, Matcher("severity", "=~", "warning|info"), _ON_A_CARD),
        ("cluster", "node", "uuid"),
    ),
)
