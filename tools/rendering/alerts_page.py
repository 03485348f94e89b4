"""The tables of docs/alerts.md: every alert and every setting."""

from alerts.filling import defaults, fill_alert, written
from alerts.groups import GROUPS
from alerts.model import Alert
from alerts.settings import SETTINGS, TABLES
from alerts.templating import camel
from tools.rendering.markdown import put, table

PAGE = "docs/alerts.md"


def stamp(text: str) -> str:
    text = put(alerts_tables(), "alerts", PAGE, text)
    return put(settings_table(), "settings", PAGE, text)


def alerts_tables() -> str:
    head = ("alert", "severity", "after", "audience", "action", "fault")
    parts = []
    for group in GROUPS:
        if group.alerts:
            title = group.name.removeprefix("gputally-").capitalize()
            parts.append(f"### {title}\n\n{table(head, [_alert_row(alert) for alert in group.alerts])}")
    return "\n\n".join(parts)


def settings_table() -> str:
    rows = [
        *((each.name, f"`{written(each.value)}`", each.help, each.source) for each in SETTINGS),
        *((each.name, f"{len(each.rows)} rows", each.help, "") for each in TABLES),
    ]
    named = [(f"`{camel(name)}`", *rest) for name, *rest in rows]
    return table(("chart value", "default", "meaning", "source"), named)


def _alert_row(alert: Alert) -> tuple[str, ...]:
    filled = fill_alert(alert, defaults())
    name = f"[{alert.name}](runbooks/{alert.name}.md)"
    off = "" if alert.enabled else " Off by default."
    return (name, alert.severity, alert.for_, alert.audience, alert.action, filled.fault + off)
