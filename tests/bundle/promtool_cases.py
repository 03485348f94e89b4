"""promtool's unit tests of the rules: the files in rules/, completed with the annotations.

A case states the labels of an alert and, as `exp_value`, the value that its description shows. The words are
taken from the alert, so that promtool checks the labels and the value in them.
"""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from alerts.filling import with_defaults
from alerts.groups import GROUPS
from alerts.model import Alert
from alerts.rules import annotations, rule_groups
from tools.dependencies import programs

DIRECTORY = Path(__file__).with_name("rules")
FILES = sorted(DIRECTORY.glob("*.yml"))
_ALERTS = {alert.name: alert for group in GROUPS for alert in with_defaults(group).alerts}
_OPTIONAL = re.compile(r"\{\{ with \$labels\.(\w+) \}\}(.*?)\{\{ \. \}\}(.*?)\{\{ end \}\}")
_LABEL = re.compile(r"\{\{ \$labels\.(\w+) \}\}")
_VALUE = re.compile(r"\{\{ [^}]*\$value[^}]* \}\}")


def load(file: Path) -> dict[str, Any]:
    # Through JSON, so that what YAML repeats by reference is not one object.
    cases: dict[str, Any] = json.loads(json.dumps(yaml.safe_load(file.read_text())))
    return cases


def alert_cases(file: Path) -> list[tuple[str, list[dict[str, Any]]]]:
    """(alert, expected alerts) of each case."""
    return [
        (case["alertname"], case.get("exp_alerts") or [])
        for test in load(file)["tests"]
        for case in test.get("alert_rule_test", ())
    ]


def write_rules(path: Path, cases: str = "") -> Path:
    """Writes the rules with their defaults, and the alerts that are off by default.

    Given the text of cases, only the groups that these use, because promtool evaluates every group.
    """
    groups = rule_groups(disabled_too=True, stack=True)
    chosen = _groups_in(cases, groups) if cases else groups
    path.write_text(yaml.safe_dump({"groups": chosen}, sort_keys=False))
    return path


def _groups_in(text: str, groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The groups with a rule that the text names, and the groups that these read."""
    while True:
        chosen = [g for g in groups if any(_name(rule) in text for rule in g["rules"])]
        read = text + "".join(rule["expr"] for group in chosen for rule in group["rules"])
        if [g for g in groups if any(_name(rule) in read for rule in g["rules"])] == chosen:
            return chosen
        text = read


def _name(rule: dict[str, Any]) -> str:
    name: str = rule.get("alert") or rule["record"]
    return name


def shows_value(alert: str) -> bool:
    return bool(_VALUE.search(_ALERTS[alert].description))


def _annotations(alert: Alert, labels: dict[str, str], value: str) -> dict[str, str]:
    """The annotations of the alert as Prometheus shows them for these labels and this value."""

    def optional(found: re.Match[str]) -> str:
        return f"{found[2]}{labels[found[1]]}{found[3]}" if labels.get(found[1]) else ""

    def shown(text: str) -> str:
        return _VALUE.sub(value, _LABEL.sub(lambda found: labels[found[1]], _OPTIONAL.sub(optional, text)))

    return {name: shown(text) for name, text in annotations(alert).items()}


def run(file: Path, directory: Path) -> subprocess.CompletedProcess[str]:
    """`promtool test rules` on one file of cases."""
    cases = load(file)
    for test in cases["tests"]:
        for case in test.get("alert_rule_test", ()):
            for expected in case.get("exp_alerts") or ():
                expected["exp_annotations"] = _annotations(
                    _ALERTS[case["alertname"]], expected["exp_labels"], expected.pop("exp_value", "")
                )
    rules = write_rules(directory / "rules.yml", file.read_text())
    completed = directory / file.name
    completed.write_text(yaml.safe_dump({"rule_files": [rules.name], "evaluation_interval": "1m"} | cases))
    return promtool("test", "rules", completed)


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [programs.path("promtool"), *arguments], capture_output=True, text=True, check=False
    )
