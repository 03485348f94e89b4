"""The machines of the demo: this host, a simulated one, or a small simulated fleet."""

import re
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from socket import gethostname

from gputally.simulator.default_scenario import default_scenario
from gputally.simulator.scenario import DEFAULT_GPUS, DEFAULT_MODEL, Scenario
from gputally.simulator.scenario_file import load_scenario
from tools.replay.fleet import PORT, WARM_UP_SECONDS, GpuNode
from tools.replay.rule_files import parse_duration
from tools.servers.children import Child
from tools.servers.ports import HOST, choose_port

CLUSTER = "demo"
STORY_SECONDS = 6 * 3600
"""The scenarios of the fleet cover this time, even if a shorter history is written."""
SAMPLE_SECONDS = EVALUATION_SECONDS = 5
SIMULATOR_FLAGS = ("gpus", "model", "seed", "scenario")
_COMPAT = ("dcgm", "nvidia-smi")
_COMPAT_IN_FLEET = "gpu-h100-01"
"""One machine serves these names too, for the dashboard that reads them."""
_FLEET = Path(__file__).with_name("nodes")
_BEFORE_NOW = re.compile(r'"-(\w+)"')


@dataclass(frozen=True, slots=True)
class Machine:
    """One exporter and its target in Prometheus."""

    name: str
    port: int
    flags: Sequence[str] = ()
    """Flags of `gputally simulate`."""
    scenario: Scenario | None = None
    """None for real GPUs."""
    compat: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def target(self) -> dict[str, object]:
        """An entry of static_configs, with the labels of the machine's history."""
        labels = {"cluster": CLUSTER, "node": self.name, "instance": f"{self.name}:{PORT}"}
        return {"targets": [self.address], "labels": labels}

    def past(self) -> GpuNode:
        """The same exporter, for its history."""
        assert self.scenario is not None
        return GpuNode(name=self.name, scenario=self.scenario, compat=self.compat, pcie_throughput=True)

    def exporter(self, python: Path, directory: Path, began: float) -> Child:
        command: list[str | Path] = [python, "-P", "-m", "gputally"]
        if self.scenario is None:
            command.append("serve")
        else:
            ledger = directory / f"{self.name}.ledger"
            command += ["simulate", *self.flags, f"--scenario-start={began}", f"--state-file={ledger}"]
            command += ["--process-metrics", "--pcie-throughput"]
            if self.compat:
                command.append(f"--compat={','.join(self.compat)}")
        command += [f"--listen-address={self.address}", f"--interval={SAMPLE_SECONDS}s"]
        command.append(f"--hostname-override={self.name}")
        return Child(f"gputally ({self.name})", command, directory, directory / f"{self.name}.log")


def story_seconds(past_seconds: float, at_least: int = 0) -> int:
    """The age of the scenarios: they begin before the first scrape."""
    return max(int(past_seconds), at_least) + WARM_UP_SECONDS


def this_host(port: int | None) -> Machine:
    return Machine(gethostname(), _port(port))


def one_simulated(options: Namespace) -> Machine:
    """One simulated machine with the flags that were given."""
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


def small_fleet(directory: Path, port: int | None, story_seconds: int) -> list[Machine]:
    """The machines of the directory `nodes`; their scenarios began `story_seconds` ago."""
    machines = []
    for number, source in enumerate(sorted(_FLEET.glob("*.toml"))):
        file = directory / source.name
        file.write_text(dated(source.read_text(), story_seconds))
        compat = _COMPAT if source.stem == _COMPAT_IN_FLEET else ()
        flags = [f"--scenario={file}"]
        machines.append(Machine(source.stem, _port(port, number), flags, load_scenario(file), compat))
    return machines


def dated(scenario: str, story_seconds: int) -> str:
    """The scenario, with times that count back from now converted to times since its start."""
    return _BEFORE_NOW.sub(lambda found: f'"{story_seconds - int(parse_duration(found[1]))}s"', scenario)


def _port(asked: int | None, number: int = 0) -> int:
    """The port of the exporter with this number."""
    if number == 0 or asked == 0:
        return choose_port("the exporter", asked, PORT)
    return choose_port("an exporter", None, (asked or PORT) + number)
