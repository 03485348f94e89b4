"""Versions that are written twice: the chart's images and the programs of the tests are the same."""

import tomllib

import pytest
import yaml

from tools import ROOT

PINS = tomllib.loads((ROOT / "tools/programs.toml").read_text())
STACK = yaml.safe_load((ROOT / "helm/gputally/values.yaml").read_text())["stack"]


@pytest.mark.parametrize("program", ["prometheus", "alertmanager"])
def test_the_stack_has_the_version_that_is_tested(program: str) -> None:
    assert STACK[program]["image"]["tag"] == f"v{PINS[program]['version']}"


def test_prometheus_has_the_ui_of_its_own_version() -> None:
    for setting in ("version", "module", "module_sum"):
        assert PINS["prometheus-ui"][setting] == PINS["prometheus"][setting]
