"""Other tools' names for what the model says: one module per profile, imported only when it is asked for.

A profile is a table, from the model to the other tool's names, units, types and labels, and nothing more.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeVar

from gputally.metrics.catalog import Kind, Metric, Scope
from gputally.metrics.families import Family
from gputally.model import Labels, Snapshot

T = TypeVar("T")

PROFILES = {
    "dcgm": "gputally.metrics.compat.dcgm",
    "dcgm-4.9": "gputally.metrics.compat.dcgm_renamed",
    "nvidia-smi": "gputally.metrics.compat.nvidia_smi",
    "opencost": "gputally.metrics.compat.opencost",
    "purplepill": "gputally.metrics.compat.purplepill",
    "process-energy": "gputally.metrics.compat.process_energy",
    "pod-gpu": "gputally.metrics.compat.pod_gpu",
}
"""What --compat takes -> the module."""
DEFAULT_METRIC_PREFIX = "my_gpu_process"


@dataclass(frozen=True, slots=True)
class Row:
    """One metric of the other tool, and ours that says the same."""

    name: str
    kind: Kind
    help: str
    ours: str
    """The name in the catalog that it comes from; empty where we have none."""

    def metric(self, labels: Labels) -> Metric:
        return Metric(self.name, self.kind, Scope.EXPORTER, "", self.help, labels)


@dataclass(frozen=True, slots=True)
class Options:
    """What a profile needs to know beside the snapshot."""

    hostname: str
    metric_prefix: str = DEFAULT_METRIC_PREFIX


class Scene:
    """What the profiles look at. What several of them make of it is made once."""

    def __init__(self, snapshot: Snapshot, options: Options) -> None:
        self.snapshot = snapshot
        self.options = options
        self._made: dict[Callable[[Scene], Any], Any] = {}

    def once(self, make: Callable[["Scene"], T]) -> T:
        if make not in self._made:
            self._made[make] = make(self)
        made: T = self._made[make]
        return made


Profile = Callable[[Scene], list[Family]]


def load_profile(name: str) -> Profile:
    """`families(scene)` of the profile's module."""
    profile: Profile = import_module(PROFILES[name]).families
    return profile


def load_rows(name: str) -> Sequence[Row]:
    """`ROWS` of the profile's module: every metric that it can give."""
    rows: Sequence[Row] = import_module(PROFILES[name]).ROWS
    return rows
