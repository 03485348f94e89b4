"""Alert and recording rules: promtool accepts them, and every rule has a test case."""

import re
from pathlib import Path
from textwrap import dedent

import pytest
import yaml

from alerts import check, manifests
from alerts.groups import ALERTS, GROUPS, RECORDS
from alerts.model import Alert
from alerts.rules import rule_groups
from tests.bundle import promtool_cases


def test_nothing_is_wrong_with_the_rules() -> None:
    assert check.problems() == []


def test_promtool_accepts_the_rules_without_a_remark(tmp_path: Path) -> None:
    rules = promtool_cases.write_rules(tmp_path / "rules.yml")
    checked = promtool_cases.promtool("check", "rules", "--lint=all", "--lint-fatal", rules)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("file", promtool_cases.FILES, ids=lambda file: file.stem)
def test_the_rules_pass_their_promtool_cases(file: Path, tmp_path: Path) -> None:
    tested = promtool_cases.run(file, tmp_path)
    assert tested.returncode == 0, tested.stdout + tested.stderr


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_the_fault_of_an_alert_is_its_summary_without_labels(alert: Alert) -> None:
    assert "{{" not in alert.fault
    assert "  " not in alert.fault
    assert alert.fault.endswith(".")


def test_no_line_of_an_expression_is_longer_than_a_page_is_wide() -> None:
    lines = [line for group in GROUPS for rule in group.rules for line in dedent(rule.expr).splitlines()]
    assert [line for line in lines if len(line) > 100] == []


def test_every_alert_has_a_case_that_fires_and_one_that_does_not() -> None:
    cases = [case for file in promtool_cases.FILES for case in promtool_cases.alert_cases(file)]
    fires = {alert for alert, expected in cases if expected}
    quiet = {alert for alert, expected in cases if not expected}
    names = {alert.name for alert in ALERTS}
    assert names - fires == set(), "no case in which these fire"
    assert names - quiet == set(), "no case in which these stay quiet"


def test_every_case_that_fires_states_the_severity_the_action_and_the_value() -> None:
    for file in promtool_cases.FILES:
        for alert, expected in promtool_cases.alert_cases(file):
            for one in expected:
                assert {"severity", "action"} <= one["exp_labels"].keys(), alert
                assert ("exp_value" in one) is promtool_cases.shows_value(alert), alert


def test_every_record_has_a_case_with_its_value() -> None:
    queries = "\n".join(
        case["expr"]
        for file in promtool_cases.FILES
        for test in promtool_cases.load(file)["tests"]
        for case in test.get("promql_expr_test", ())
    )
    assert [record.name for record in RECORDS if record.name not in queries] == []


def test_energy_and_its_charges_are_recorded_in_one_evaluation() -> None:
    # Groups are evaluated at different moments of a minute: sums of a few minutes would differ.
    energy = re.compile(r"\w+:gputally_(energy|charged|unattributed):watts")
    groups = [group.name for group in GROUPS for record in group.records if energy.fullmatch(record.name)]
    assert set(groups) == {"gputally-ledger"}


def test_the_plain_file_and_the_manifest_hold_the_same_rules() -> None:
    files = manifests.files()
    plain = yaml.safe_load(files["alerts/plain/gputally.rules.yml"])
    manifest = yaml.safe_load(files["alerts/manifests/prometheusrule.yaml"])
    assert plain["groups"] == manifest["spec"]["groups"] == rule_groups(GROUPS)
