"""Values that are flags of `gputally serve`: the table in templates/_exporter.tpl."""

import json
import re
import subprocess
import sys
from typing import Any

import pytest
import yaml

from tests.bundle.chart import CHART, at, merged, objects, refusal
from tests.bundle.exporter_pod import config, container, parsed
from tools.chart_values import source

TABLE = (
    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: flags}\n"
    'data:\n  rows: |\n    {{- include "gputally.exporter.flags" . | nindent 4 }}\n'
)
VALUES = {
    value.dotted: value
    for value in source.every(source.values((CHART / "values.yaml").read_text()))
    if not value.children
}
# What some values need besides, and a value that no schema describes.
NEEDS = {
    f"kubernetes.{name}": {"kubernetes": {"enabled": True}}
    for name in ("podLabels", "podAnnotations", "nodeLabels")
}
SAMPLES: dict[str, Any] = {
    "exporter.relay": "http://localhost:9500/metrics",
    "exporter.grafanaUrl": "https://grafana.example.com",
    "exporter.metricsInclude": ["nvlink", "gputally_gpu_bar1_used_bytes"],
    "exporter.metricsExclude": ["xid"],
}


def rows() -> dict[str, str]:
    """Path of the value -> flag, as Helm reads the table."""
    (made,) = [m for m in objects("ConfigMap", {"extraObjects": [TABLE]}) if m["metadata"]["name"] == "flags"]
    table: list[tuple[str, str]] = yaml.safe_load(made["data"]["rows"])
    found = dict(table)
    assert len({*found.values()}) == len(found) == len(table), "a value or a flag stands there twice"
    return found


def known_flags() -> set[str]:
    """The flags in `gputally serve --help`."""
    command = [sys.executable, "-m", "gputally", "serve", "--help"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {*re.findall(r"^  (--[a-z-]+)", printed, re.MULTILINE)}


def another(path: str) -> Any:
    """A value that the schema allows and that is not the default."""
    value = VALUES[path]
    if path in SAMPLES:
        return SAMPLES[path]
    if isinstance(value.default, bool):
        return not value.default
    if isinstance(value.default, list):
        return value.schema["items"].get("enum", ["app", "team.example.org/*"])[:2]
    if "enum" in value.schema:
        return next(choice for choice in value.schema["enum"] if choice != value.default)
    return {"#/$defs/port": 9401, "#/$defs/samplingTime": "7s"}[value.schema["$ref"]]


def test_each_row_is_a_value_and_a_flag_that_the_exporter_has() -> None:
    assert {*rows()} <= {*VALUES}
    assert {*rows().values()} <= known_flags()


@pytest.mark.parametrize("path", rows())
def test_each_value_reaches_the_exporter_by_its_flag(path: str) -> None:
    given, needed = another(path), NEEDS.get(path, {})
    flag = rows()[path]
    text = (
        ",".join(given) if isinstance(given, list) else given if isinstance(given, str) else json.dumps(given)
    )
    before = [*container(needed)["args"][1:]]
    assert config(merged(needed, at(path, given))) == parsed(
        *(argument for argument in before if argument.partition("=")[0] != flag), f"{flag}={text}"
    )
    assert parsed(f"{flag}={text}") != parsed()


@pytest.mark.parametrize("path", [path for path in rows() if not VALUES[path].default])
def test_a_value_that_is_off_or_empty_adds_no_flag(path: str) -> None:
    assert rows()[path] not in {argument.partition("=")[0] for argument in container()["args"]}


def test_no_value_is_named_like_a_flag_and_missing_in_the_table() -> None:
    for flag in known_flags() - {*rows().values()}:
        name = re.sub("-(.)", lambda found: found[1].upper(), flag[2:])
        assert f"exporter.{name}" not in VALUES


@pytest.mark.parametrize("path", rows())
def test_a_flag_of_the_table_is_refused_in_extra_args_with_the_name_of_its_value(path: str) -> None:
    line = refusal({"exporter": {"extraArgs": [f"{rows()[path]}=x"]}})
    assert line.startswith("exporter.extraArgs: ")
    assert {rows()[path], path} <= {*re.split(r"[\s,;:]+", line)}
