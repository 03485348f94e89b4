"""Names of other tools: one module per profile, imported only when --compat names it.

A profile is a table from the model to the other tool's names, units, types and labels.
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
    "dcgm-4.9": "gputally.metrics.compat.dcgm_4_9",
    "nvidia-smi": "gputally.metrics.compat.nvidia_smi",
    "opencost": "gputally.metrics.compat.opencost",
    "purplepill": "gputally.metrics.compat.purplepill",
    "process-energy": "gputally.metrics.compat.process_energy",
    "pod-gpu": "gputally.metrics.compat.pod_gpu",
}
"""Value of --compat -> module."""
DEFAULT_METRIC_PREFIX = "my_gpu_process"


@dataclass(frozen=True, slots=True)
class Row:
    """One metric of the other tool, and the equivalent of ours."""

    name: str
    kind: Kind
    help: str
    ours: str
    """The name in the catalogue; empty where there is none."""

    def metric(self, labels: Labels) -> Metric:
        return Metric(self.name, self.kind, Scope.EXPORTER, "", self.help, labels)


@dataclass(frozen=True, slots=True)
class Options:
    """The settings of a profile."""

    hostname: str
    metric_prefix: str = DEFAULT_METRIC_PREFIX


class ProfileInput:
    """The input of the profiles. `once` shares intermediate results between them."""

    def __init__(self, snapshot: Snapshot, options: Options) -> None:
        self.snapshot = snapshot
        self.options = options
        self._made: dict[Callable[[ProfileInput], Any], Any] = {}

    def once(self, make: Callable[["ProfileInput"], T]) -> T:
        if make not in self._made:
            self._made[make] = make(self)
        made: T = self._made[make]
        return made


Profile = Callable[[ProfileInput], list[Family]]


def load_profile(name: str) -> Profile:
    """`families(inputs)` of the profile's module."""
    profile: Profile = import_module(PROFILES[name]).families
    return profile


def load_rows(name: str) -> Sequence[Row]:
    """`ROWS` of the profile's module: every metric that it can export."""
    rows: Sequence[Row] = import_module(PROFILES[name]).ROWS
    return rows
