"""What a panel answers for series that a test makes up, by promtool's own engine."""

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
"""How long the series are; the range of the dashboard is the last hour of it."""
_EVERY_MINUTE = HOURS * 60
_GIVEN = {"$__rate_interval": "5m", "$__range_s": "3600", "$__range": "1h", "$__interval": "1m"}


def always(value: float) -> str:
    """The value at every minute."""
    return f"{value}x{_EVERY_MINUTE}"


def query(made: core.Dashboard, title: str, letter: str = "A") -> str:
    """One query of the panel with this title, with All for every variable."""
    (panel,) = (panel for panel in _panels(json.loads(text_of(made))) if panel.get("title") == title)
    (expression,) = (target["expr"] for target in panel["targets"] if target["refId"] == letter)
    for name, value in _GIVEN.items():
        expression = expression.replace(name, value)
    return re.sub(r"\$[a-z]\w*", ".*", expression)


def assert_answers(
    folder: Path, series: Mapping[str, str], answers: Mapping[str, Mapping[str, float]]
) -> None:
    """`answers` has the samples that each query must give, by their labels as PromQL writes them."""
    asked = [
        {
            # Sums of floating-point numbers: what should be 0 has a rest.
            "expr": f"round({expression}, 1e-9)",
            "eval_time": f"{HOURS}h",
            "exp_samples": [{"labels": labels, "value": value} for labels, value in samples.items()],
        }
        for expression, samples in answers.items()
    ]
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": asked,
    }
    cases = folder / "cases.yml"
    cases.write_text(yaml.safe_dump({"fuzzy_compare": True, "tests": [test]}))
    tested = promtool("test", "rules", cases)
    assert tested.returncode == 0, tested.stdout + tested.stderr


def _panels(made: dict[str, Any]) -> list[dict[str, Any]]:
    return [inner for panel in made["panels"] for inner in (panel, *panel.get("panels", ()))]
