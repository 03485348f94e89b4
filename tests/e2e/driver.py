"""The driver's stand-in as NVIDIA's driver is on a node: a folder that the chart mounts into the exporter."""

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
    """One installed driver; what its GPUs do is in `scenario`, to be written by whoever installs it."""

    folder: Path

    @classmethod
    def installed(cls, cluster: Cluster, name: str) -> "Driver":
        driver = cls(cluster.place.folder / f"driver-{name}")
        (driver.folder / "lib64").mkdir(parents=True, exist_ok=True)
        shutil.copy(build_library() / LIBRARY_NAME, driver.folder / "lib64")
        return driver

    @property
    def scenario(self) -> Path:
        return self.folder / "scenario"

    def values(self, **exporter: object) -> dict[str, Mapping[str, Any]]:
        """Of the chart, so that the exporter reads this driver, with more of `exporter` as given."""
        scenario = {"name": SCENARIO_VARIABLE, "value": str(_IN_THE_POD / self.scenario.name)}
        return {
            "driver": {"hostPath": str(self.folder)},
            "exporter": {"reader": "nvml", "extraEnv": [scenario], **exporter},
        }


def on_a_gpu(pid: int) -> Process:
    """A process as the driver lists it, by the number that the node has for it."""
    return Process(pid=pid, kind="compute", name="python", memory_used_bytes=1 << 30)
