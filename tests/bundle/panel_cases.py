"""Evaluates the query of a panel on given series with promtool."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from grafanalib import core

from dashboards.build import text_of
from tests.bundle.promtool_cases import promtool

HOURS = 2
"""Length of the series; the dashboard's range is its last hour."""
_EVERY_MINUTE = HOURS * 60
_GRAFANA_VARIABLES = {"$__rate_interval": "5m", "$__range_s": "3600", "$__range": "1h", "$__interval": "1m"}


def always(value: float) -> str:
    """The value at every minute."""
    return f"{value}x{_EVERY_MINUTE}"


def query(made: core.Dashboard, title: str, letter: str = "A") -> str:
    """A query of the panel with this title, with All for every variable."""
    (panel,) = (panel for panel in _panels(json.loads(text_of(made))) if panel.get("title") == title)
    (expression,) = (target["expr"] for target in panel["targets"] if target["refId"] == letter)
    for name, value in _GRAFANA_VARIABLES.items():
        expression = expression.replace(name, value)
    return re.sub(r"\$[a-z]\w*", ".*", expression)


def assert_results(
    directory: Path, series: Mapping[str, str], results: Mapping[str, Mapping[str, float]]
) -> None:
    """`results`: query -> labels as PromQL writes them -> value."""
    tests = [
        {
            # Sums of floating-point numbers leave a small remainder.
            "expr": f"round({expression}, 1e-9)",
            "eval_time": f"{HOURS}h",
            "exp_samples": [{"labels": labels, "value": value} for labels, value in samples.items()],
        }
        for expression, samples in results.items()
    ]
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": tests,
    }
    cases = directory / "cases.yml"
    cases.write_text(yaml.safe_dump({"fuzzy_compare": True, "tests": [test]}))
    tested = promtool("test", "rules", cases)
    assert tested.returncode == 0, tested.stdout + tested.stderr


def _panels(made: dict[str, Any]) -> list[dict[str, Any]]:
    return [inner for panel in made["panels"] for inner in (panel, *panel.get("panels", ()))]
