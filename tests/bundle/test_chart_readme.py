"""README.md of the chart: its commands work and its values exist."""

import re
import shlex
import subprocess

import pytest

from tests.bundle.chart import CHART, PRESETS
from tools import ROOT
from tools.chart_values import source
from tools.dependencies import programs

README = (CHART / "README.md").read_text()
BLOCKS = re.findall(r"^```\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
VALUES = list(source.every(source.values((CHART / "values.yaml").read_text())))
INSTALLS = [block for block in BLOCKS if block.startswith("helm install gputally helm/gputally ")]


def template(flags: list[str]) -> str:
    command = [str(programs.path("helm")), "template", "gputally", "helm/gputally", *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_two_installations_are_documented() -> None:
    assert len(INSTALLS) == 2


@pytest.mark.parametrize("block", INSTALLS)
@pytest.mark.parametrize("simulated", [False, True])
def test_each_installation_works_also_without_gpus(block: str, simulated: bool) -> None:
    (without_gpus,) = re.findall(r"Without a GPU, add `([^`]+)`", README)
    flags = shlex.split(block.replace("\\\n", " "))[4:] + (shlex.split(without_gpus) if simulated else [])
    assert "\nkind: DaemonSet\n" in template(flags)


def test_every_value_is_in_a_table() -> None:
    rows = set(re.findall(r"^\| `([^`]+)` \|", README, re.MULTILINE))
    missing = [value.dotted for value in VALUES if not value.children and value.dotted not in rows]
    assert missing == ["defaultsVersion"]


def test_every_preset_is_in_the_table() -> None:
    assert [name for name in PRESETS if f"| `{name}.yaml` |" not in README] == []


def test_every_value_in_the_text_exists() -> None:
    text = "\n".join(line for line in README.splitlines() if not line.startswith("|"))
    mentioned = set(re.findall(r"`(?:--set )?([a-z]\w+(?:\.[a-z]\w+)+)(?:=\w+)?`", text))
    assert len(mentioned) > 8
    known = " ".join(f".{value.dotted} " for value in VALUES)
    own_keys = tuple(f"{value.dotted}." for value in VALUES if value.schema.get("$ref") == "#/$defs/labels")
    assert {name for name in mentioned if f".{name} " not in known and not name.startswith(own_keys)} == set()
