"""The dashboards' JSON is what Grafana of today reads: by its linter, its types, and its SDK."""

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
    "tooltip/show": "Grafana before 10.3 reads it; mode stands beside it for the newer ones",
}
"""What the SDK does not know, and why it is there all the same."""


def lint(name: str, folder: Path, rules: Path) -> tuple[int, str]:
    file = folder / f"{name}.json"
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
    code, said = lint(name, tmp_path, LINT)
    assert (code, [line for line in said.splitlines() if "❌" in line]) == (0, [])
    assert said.count("[✔️] OK") > 10


@pytest.mark.parametrize("rule", yaml.safe_load(LINT.read_text())["exclusions"])
def test_a_rule_of_the_linter_is_left_out_only_where_it_would_complain(rule: str, tmp_path: Path) -> None:
    left_out = yaml.safe_load(LINT.read_text())["exclusions"]
    assert left_out.pop(rule)["reason"]
    rules = tmp_path / "rules.yml"
    rules.write_text(yaml.safe_dump({"exclusions": left_out}))
    code, said = lint("fleet", tmp_path, rules)
    assert code == 1, said


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the compiler says of all dashboards, and of one that is wrong."""
    folder = tmp_path_factory.mktemp("types")
    shutil.copy(TYPES, folder)
    wrong = json.loads(TEXTS["fleet"])
    wrong["panels"][0]["fieldConfig"]["defaults"]["unti"] = "watt"
    wrong["panels"][1]["fieldConfig"]["defaults"]["color"]["mode"] = "colourful"
    wrong["graphTooltip"] = 7
    for name, text in (*TEXTS.items(), ("wrong", json.dumps(wrong, indent=1))):
        lines = (
            'import type { DashboardFile } from "./schema";',
            f"export const dashboard: DashboardFile = {text.strip()};",
        )
        (folder / f"{name}.ts").write_text("\n".join(lines))
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
    (folder / "tsconfig.json").write_text(json.dumps({"compilerOptions": options, "include": ["*.ts"]}))
    compiler = programs.path("typescript") / "bin" / "tsc"
    command: list[str | Path] = [programs.path("node"), compiler, "--pretty", "false", "-p", folder]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert not done.stderr
    return done.stdout


@pytest.mark.parametrize("name", TEXTS)
def test_todays_types_take_every_key_and_value(name: str, compiled: str) -> None:
    assert re.findall(rf"^(?:\S*/)?{name}\.ts.*", compiled, re.MULTILINE) == []


@pytest.mark.parametrize("mistake", ["unti", "colourful", "'7'"])
def test_the_types_find_what_is_wrong(mistake: str, compiled: str) -> None:
    said = re.findall(r"^(?:\S*/)?wrong\.ts.*", compiled, re.MULTILINE)
    assert any(mistake in line for line in said), said
    assert not re.findall(r"^(?:\S*/)?schema\.ts.*", compiled, re.MULTILINE)


def lost(ours: object, theirs: object, place: str = "") -> Iterator[str]:
    """What is in ours and not, or not the same, in theirs; what theirs adds are its defaults."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key, value in ours.items():
            if key in theirs:
                yield from lost(value, theirs[key], f"{place}/{key}")
            else:
                yield f"{place}/{key}"
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from lost(one, other, f"{place}/{number}")
    elif ours != theirs:
        yield f"{place}: {ours} became {theirs}"


def round_trip(dashboard: Json) -> Json:
    register_default_plugins()
    with warnings.catch_warnings():
        # It would rather have a later schema; this one is what older Grafanas read, too.
        warnings.simplefilter("ignore", DeprecationWarning)
        from grafana_foundation_sdk.models.dashboard import Dashboard
    made: Json = json.loads(JSONEncoder().encode(Dashboard.from_json(dashboard)))
    return made


@pytest.mark.parametrize("name", TEXTS)
def test_the_sdk_gives_back_what_it_was_given(name: str) -> None:
    ours = json.loads(TEXTS[name])
    unknown = [place for place in lost(ours, round_trip(ours)) if not place.endswith(tuple(OLDER_KEYS))]
    assert unknown == []


def test_what_the_sdk_does_not_know_is_noticed() -> None:
    wrong = json.loads(TEXTS["fleet"])
    stat = next(panel for panel in wrong["panels"] if panel["type"] == "stat")
    stat["options"]["colourMode"] = "value"
    assert [place for place in lost(wrong, round_trip(wrong)) if place.endswith("colourMode")]


def test_a_key_that_only_older_grafanas_read_has_its_successor_beside_it() -> None:
    (tooltip,) = [
        panel["options"]["tooltip"]
        for panel in json.loads(TEXTS["fleet"])["panels"]
        if panel["type"] == "heatmap"
    ]
    assert tooltip["show"] is True
    assert tooltip["mode"] == "single"
