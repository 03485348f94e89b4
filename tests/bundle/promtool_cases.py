"""promtool's unit tests of our rules: the files in rules/, completed with what every file would repeat."""

import subprocess
from pathlib import Path
from typing import Any

import yaml

from alerts.rules import rule_groups
from alerts.runbooks import runbook_url
from tools import programs

FOLDER = Path(__file__).with_name("rules")
FILES = sorted(FOLDER.glob("*.yml"))


def load(file: Path) -> dict[str, Any]:
    cases: dict[str, Any] = yaml.safe_load(file.read_text())
    return cases


def alert_cases(file: Path) -> list[tuple[str, list[dict[str, Any]]]]:
    """(alert, what is expected) for each question about an alert."""
    return [
        (case["alertname"], case.get("exp_alerts") or [])
        for test in load(file)["tests"]
        for case in test.get("alert_rule_test", ())
    ]


def write_rules(path: Path, cases: str = "") -> Path:
    """The rules with their defaults, also those alerts that are off unless asked for.

    Given the text of cases, only the groups that these are about: promtool evaluates all it is given.
    """
    groups = rule_groups(disabled_too=True)
    chosen = _groups_in(cases, groups) if cases else groups
    path.write_text(yaml.safe_dump({"groups": chosen}, sort_keys=False))
    return path


def _groups_in(text: str, groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The groups of which the text names a rule, and those that these read from."""
    while True:
        chosen = [g for g in groups if any(_name(rule) in text for rule in g["rules"])]
        read = text + "".join(rule["expr"] for group in chosen for rule in group["rules"])
        if [g for g in groups if any(_name(rule) in read for rule in g["rules"])] == chosen:
            return chosen
        text = read


def _name(rule: dict[str, Any]) -> str:
    name: str = rule.get("alert") or rule["record"]
    return name


def run(file: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """`promtool test rules` on one file of cases."""
    cases = load(file)
    for test in cases["tests"]:
        for case in test.get("alert_rule_test", ()):
            for expected in case.get("exp_alerts") or ():
                expected["exp_annotations"]["runbook_url"] = runbook_url(case["alertname"])
    rules = write_rules(folder / "rules.yml", file.read_text())
    completed = folder / file.name
    completed.write_text(yaml.safe_dump({"rule_files": [rules.name], "evaluation_interval": "1m"} | cases))
    return promtool("test", "rules", completed)


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [programs.path("promtool"), *arguments], capture_output=True, text=True, check=False
    )
