"""Every command and manifest of docs/migrate.md is one that the exporter takes."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from gputally.attribution.own_pod import OwnPod
from gputally.cli import _parser
from gputally.config import Config, read_config
from gputally.server import parse_address

PAGE = (Path(__file__).parents[2] / "docs" / "migrate.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = [
    shlex.split(line, comments=True)
    for language, text in BLOCKS
    if not language
    for line in text.replace("\\\n", " ").splitlines()
]
OURS = [command for command in COMMANDS if "gputally" in command]
TAKEN_AS_THEY_ARE = [command for command in COMMANDS if command[0] in ("cmpp", "my-gpu-exporter")]
MANIFESTS = [yaml.safe_load(text) for language, text in BLOCKS if language == "yaml"]
POD = {
    "metadata.name": "train-0",
    "metadata.namespace": "ml",
    "metadata.uid": "0b1e6a2c-3c1f-4a5e-9d0f-6a7b8c9d0e1f",
}


def config(arguments: list[str]) -> Config:
    return read_config(_parser().parse_args(arguments), {})


def test_the_page_has_the_expected_examples() -> None:
    assert (len(OURS), len(TAKEN_AS_THEY_ARE), len(MANIFESTS)) == (6, 2, 1)


@pytest.mark.parametrize("command", OURS, ids=" ".join)
def test_a_documented_command_is_accepted(command: list[str]) -> None:
    assert config(command[command.index("gputally") + 1 :]) != Config()


@pytest.mark.parametrize("command", TAKEN_AS_THEY_ARE, ids=" ".join)
def test_the_options_of_the_replaced_tool_are_accepted(command: list[str]) -> None:
    assert config(["serve", *command[1:]]) != Config()


@pytest.mark.parametrize("command", [c for c in OURS if c[0] == "docker"], ids=" ".join)
def test_a_container_publishes_the_port_that_is_served(command: list[str]) -> None:
    served = config(command[command.index("gputally") + 1 :])
    _, port = parse_address(served.listen_address)
    published = command[command.index("-p") + 1]
    assert published.rpartition(":")[2] == str(served.port or port)


@pytest.mark.parametrize("manifest", MANIFESTS)
def test_a_documented_sidecar_is_accepted_and_reads_its_pod_from_variables(manifest: dict[str, Any]) -> None:
    (sidecar,) = manifest["sidecars"]
    assert config(sidecar["args"]).sidecar
    environment = {one["name"]: POD[one["valueFrom"]["fieldRef"]["fieldPath"]] for one in sidecar["env"]}
    (pod,) = OwnPod(environment, None, None).read().pods
    assert [pod.pod, pod.namespace, pod.pod_uid] == list(POD.values())
