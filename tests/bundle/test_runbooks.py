"""Runbooks: what an alert looks like when it is wrong, and a silence that matches no more than is meant."""

import re
import shlex

import pytest

from alerts import promql, runbooks
from alerts.check import full_schema
from alerts.filling import with_defaults
from alerts.groups import GROUPS
from alerts.model import Alert

ALERTS = [alert for group in GROUPS for alert in with_defaults(group).alerts]
_MATCHER = re.compile(r"(\w+)(=~|!~|!=|=)(.+)")


def section(alert: Alert, heading: str) -> str:
    text = (runbooks.DIRECTORY / f"{alert.name}.md").read_text()
    return text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0].strip()


def silence(alert: Alert) -> tuple[dict[str, str], list[str]]:
    """The matchers and the options of the command."""
    (command,) = re.findall(r"```\n(amtool silence add .*?)\n```", section(alert, "Silence"), re.DOTALL)
    words = shlex.split(command.replace("\\\n", " "))[3:]
    matchers = [_MATCHER.fullmatch(word) for word in words if not word.startswith("--")]
    return (
        {found[1]: found[3] for found in matchers if found},
        [word for word in words if word.startswith("--")],
    )


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_a_runbook_says_what_the_alert_looks_like_when_it_is_wrong(alert: Alert) -> None:
    assert section(alert, "False positives")


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_a_silence_names_the_alert_and_labels_that_it_has(alert: Alert) -> None:
    matchers, options = silence(alert)
    assert matchers.pop("alertname") == alert.name
    assert matchers, "it would silence the alert everywhere"
    assert matchers.keys() <= promql.labels_of(alert.expr, full_schema())
    assert [option.split("=")[0] for option in options] == ["--duration", "--comment"]


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_the_other_matchers_of_a_silence_are_labels_of_the_alert_too(alert: Alert) -> None:
    used = re.findall(r"`(\w+)=~?[\"A-Z]", section(alert, "Silence"))
    known = promql.labels_of(alert.expr, full_schema()) | {"alertname"}
    assert set(used) - known - {"action"} == set()
