"""The driver stand-in, installed as NVIDIA's driver is on a node: in a directory that the chart mounts."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gputally.model import Process
from tools.standin.build import LIBRARY_NAME, build_library
from tools.standin.scenario import SCENARIO_VARIABLE
from tools.test_cluster.cluster import Cluster

_IN_THE_POD = Path("/usr/local/nvidia")


@dataclass(frozen=True, slots=True)
class Driver:
    """An installed driver; the test writes the state of its GPUs to `scenario`."""

    directory: Path

    @classmethod
    def installed(cls, cluster: Cluster, name: str) -> "Driver":
        driver = cls(cluster.place.directory / f"driver-{name}")
        (driver.directory / "lib64").mkdir(parents=True, exist_ok=True)
        shutil.copy(build_library() / LIBRARY_NAME, driver.directory / "lib64")
        return driver

    @property
    def scenario(self) -> Path:
        return self.directory / "scenario"

    def values(self, **exporter: object) -> dict[str, Mapping[str, Any]]:
        """Values of the chart for an exporter with this driver and these values of `exporter`."""
        scenario = {"name": SCENARIO_VARIABLE, "value": str(_IN_THE_POD / self.scenario.name)}
        return {
            "driver": {"hostPath": str(self.directory)},
            "exporter": {"reader": "nvml", "extraEnv": [scenario], **exporter},
        }


def on_a_gpu(pid: int) -> Process:
    """A process as the driver lists it, by its pid on the node."""
    return Process(pid=pid, kind="compute", name="python", memory_used_bytes=1 << 30)
