"""The dashboards' JSON conforms to Grafana's linter, its types and its SDK."""

import json
import re
import shutil
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins

from dashboards import Json, registry
from tools import ROOT
from tools.dependencies import programs

TEXTS = registry.texts()
LINT = ROOT / "dashboards" / ".lint"
TYPES = Path(__file__).with_name("schema.ts")
OLDER_KEYS = {
    "tooltip/show": "read by Grafana before 10.3; newer versions read mode",
}
"""Keys that the SDK does not have, and why they are needed."""


def lint(name: str, directory: Path, rules: Path) -> tuple[int, str]:
    file = directory / f"{name}.json"
    file.write_text(TEXTS[name])
    command: list[str | Path] = [
        programs.path("dashboard-linter"),
        "lint",
        "--strict",
        "--verbose",
        "--config",
        rules,
        file,
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("name", TEXTS)
def test_the_linter_finds_nothing(name: str, tmp_path: Path) -> None:
    code, output = lint(name, tmp_path, LINT)
    assert (code, [line for line in output.splitlines() if "❌" in line]) == (0, [])
    assert output.count("[✔️] OK") > 10


@pytest.mark.parametrize("rule", yaml.safe_load(LINT.read_text())["exclusions"])
def test_an_excluded_linter_rule_would_fail(rule: str, tmp_path: Path) -> None:
    exclusions = yaml.safe_load(LINT.read_text())["exclusions"]
    assert exclusions.pop(rule)["reason"]
    rules = tmp_path / "rules.yml"
    rules.write_text(yaml.safe_dump({"exclusions": exclusions}))
    code, output = lint("fleet", tmp_path, rules)
    assert code == 1, output


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The compiler's output for all dashboards and for a wrong one."""
    directory = tmp_path_factory.mktemp("types")
    shutil.copy(TYPES, directory)
    wrong = json.loads(TEXTS["fleet"])
    wrong["panels"][0]["fieldConfig"]["defaults"]["unti"] = "watt"
    wrong["panels"][1]["fieldConfig"]["defaults"]["color"]["mode"] = "colourful"
    wrong["graphTooltip"] = 7
    for name, text in (*TEXTS.items(), ("wrong", json.dumps(wrong, indent=1))):
        lines = (
            'import type { DashboardFile } from "./schema";',
            f"export const dashboard: DashboardFile = {text.strip()};",
        )
        (directory / f"{name}.ts").write_text("\n".join(lines))
    types = programs.path("grafana-schema") / "dist" / "types" / "index.d.ts"
    options = {
        "strict": True,
        "noEmit": True,
        "target": "es2022",
        "module": "esnext",
        "moduleResolution": "bundler",
        "types": [],
        "skipLibCheck": True,
        "paths": {"@grafana/schema": [str(types)]},
    }
    (directory / "tsconfig.json").write_text(json.dumps({"compilerOptions": options, "include": ["*.ts"]}))
    compiler = programs.path("typescript") / "bin" / "tsc"
    command: list[str | Path] = [programs.path("node"), compiler, "--pretty", "false", "-p", directory]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert not done.stderr
    return done.stdout


@pytest.mark.parametrize("name", TEXTS)
def test_the_types_accept_every_key_and_value(name: str, compiled: str) -> None:
    assert re.findall(rf"^(?:\S*/)?{name}\.ts.*", compiled, re.MULTILINE) == []


@pytest.mark.parametrize("mistake", ["unti", "colourful", "'7'"])
def test_the_types_find_mistakes(mistake: str, compiled: str) -> None:
    said = re.findall(r"^(?:\S*/)?wrong\.ts.*", compiled, re.MULTILINE)
    assert any(mistake in line for line in said), said
    assert not re.findall(r"^(?:\S*/)?schema\.ts.*", compiled, re.MULTILINE)


def lost(ours: object, theirs: object, path: str = "") -> Iterator[str]:
    """Paths in `ours` that are missing or different in `theirs`; defaults added by `theirs` are ignored."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key, value in ours.items():
            if key in theirs:
                yield from lost(value, theirs[key], f"{path}/{key}")
            else:
                yield f"{path}/{key}"
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from lost(one, other, f"{path}/{number}")
    elif ours != theirs:
        yield f"{path}: {ours} became {theirs}"


def round_trip(dashboard: Json) -> Json:
    register_default_plugins()
    with warnings.catch_warnings():
        # The SDK warns about the schema version, which older Grafana versions need.
        warnings.simplefilter("ignore", DeprecationWarning)
        from grafana_foundation_sdk.models.dashboard import Dashboard
    made: Json = json.loads(JSONEncoder().encode(Dashboard.from_json(dashboard)))
    return made


@pytest.mark.parametrize("name", TEXTS)
def test_the_sdk_round_trip_is_lossless(name: str) -> None:
    ours = json.loads(TEXTS[name])
    unknown = [path for path in lost(ours, round_trip(ours)) if not path.endswith(tuple(OLDER_KEYS))]
    assert unknown == []


def test_an_unknown_key_is_found() -> None:
    wrong = json.loads(TEXTS["fleet"])
    stat = next(panel for panel in wrong["panels"] if panel["type"] == "stat")
    stat["options"]["colourMode"] = "value"
    assert [path for path in lost(wrong, round_trip(wrong)) if path.endswith("colourMode")]


def test_the_key_for_older_grafana_versions_has_its_successor_beside_it() -> None:
    (tooltip,) = [
        panel["options"]["tooltip"]
        for panel in json.loads(TEXTS["fleet"])["panels"]
        if panel["type"] == "heatmap"
    ]
    assert tooltip["show"] is True
    assert tooltip["mode"] == "single"
