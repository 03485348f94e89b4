"""The machines of the demo, each with an exporter: this host, a simulated one, or a small simulated fleet."""

import re
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from socket import gethostname

from gputally.simulator.default_scenario import default_scenario
from gputally.simulator.scenario import DEFAULT_GPUS, DEFAULT_MODEL, Scenario
from gputally.simulator.scenario_file import load_scenario
from tools.replay.fleet import PORT, Node
from tools.replay.rule_files import parse_duration
from tools.servers.children import Child
from tools.servers.ports import HOST, choose_port

CLUSTER = "demo"
SAMPLE_SECONDS = 5
SIMULATOR_FLAGS = ("gpus", "model", "seed", "scenario")
_COMPAT = ("dcgm", "nvidia-smi")
_COMPAT_IN_FLEET = "gpu-h100-01"
"""One is enough for the dashboard of those who stay with these names."""
_FLEET = Path(__file__).with_name("nodes")
_BEFORE_NOW = re.compile(r'"-(\w+)"')


@dataclass(frozen=True, slots=True)
class Machine:
    """One exporter, and the target that Prometheus knows it as."""

    name: str
    port: int
    flags: Sequence[str] = ()
    """Of `gputally simulate`."""
    scenario: Scenario | None = None
    """None: the GPUs are real."""
    compat: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def target(self) -> dict[str, object]:
        """One of Prometheus's static_configs: the labels are those that its past has."""
        labels = {"cluster": CLUSTER, "node": self.name, "instance": f"{self.name}:{PORT}"}
        return {"targets": [self.address], "labels": labels}

    def past(self) -> Node:
        """The same exporter at earlier times."""
        assert self.scenario is not None
        return Node(name=self.name, scenario=self.scenario, compat=self.compat, pcie_throughput=True)

    def exporter(self, python: Path, folder: Path, began: float) -> Child:
        command: list[str | Path] = [python, "-P", "-m", "gputally"]
        if self.scenario is None:
            command.append("serve")
        else:
            books = folder / f"{self.name}.books"
            command += ["simulate", *self.flags, f"--scenario-start={began}", f"--state-file={books}"]
            command += ["--process-metrics", "--pcie-throughput"]
            if self.compat:
                command.append(f"--compat={','.join(self.compat)}")
        command += [f"--listen-address={self.address}", f"--interval={SAMPLE_SECONDS}s"]
        command.append(f"--hostname-override={self.name}")
        return Child(f"gputally ({self.name})", command, folder, folder / f"{self.name}.log")


def this_host(port: int | None) -> Machine:
    return Machine(gethostname(), _port(port))


def one_simulated(options: Namespace) -> Machine:
    """With the flags of `gputally simulate` that were given."""
    given = {flag: getattr(options, flag) for flag in SIMULATOR_FLAGS if getattr(options, flag) is not None}
    flags = [f"--{flag}={value}" for flag, value in given.items()]
    file = given.pop("scenario", None)
    if file:
        scenario = load_scenario(file, **given)
    else:
        scenario = default_scenario(
            given.get("gpus", DEFAULT_GPUS), given.get("model", DEFAULT_MODEL), given.get("seed", 0)
        )
    return Machine("simulated", _port(options.port), flags, scenario, _COMPAT)


def small_fleet(folder: Path, port: int | None, story_seconds: int) -> list[Machine]:
    """The machines of the folder `nodes`, whose scenarios are written for a story of this length so far."""
    machines = []
    for number, source in enumerate(sorted(_FLEET.glob("*.toml"))):
        file = folder / source.name
        file.write_text(dated(source.read_text(), story_seconds))
        compat = _COMPAT if source.stem == _COMPAT_IN_FLEET else ()
        flags = [f"--scenario={file}"]
        machines.append(Machine(source.stem, _port(port, number), flags, load_scenario(file), compat))
    return machines


def dated(scenario: str, story_seconds: int) -> str:
    """The scenario with the times that are counted back from now counted from its start."""
    return _BEFORE_NOW.sub(lambda found: f'"{story_seconds - int(parse_duration(found[1]))}s"', scenario)


def _port(asked: int | None, number: int = 0) -> int:
    """Of the exporter with this number: the one after the other, unless any will do."""
    if number == 0 or asked == 0:
        return choose_port("the exporter", asked, PORT)
    return choose_port("an exporter", None, (asked or PORT) + number)
