"""The owner of a workload in a scenario. The readings of the GPUs do not depend on it.

`{run}` in a name is the number of the run, from 0: a repeated workload is then a new pod or job
each time.
"""

from dataclasses import dataclass

HOST_KINDS = ("docker", "podman", "slurm", "service", "session", "process")


@dataclass(frozen=True, slots=True)
class PodOwner:
    """One pod, on all GPUs of the workload."""

    namespace: str
    pod: str
    container: str = "main"
    controller: str = ""
    """The controller of the pod, as Kind/name."""
    requested: bool = True
    """Whether it requested the GPUs, so that they are allocated to it."""

    def of_run(self, run: int) -> "PodOwner":
        return PodOwner(
            self.namespace,
            _numbered(self.pod, run),
            self.container,
            _numbered(self.controller, run),
            self.requested,
        )


@dataclass(frozen=True, slots=True)
class HostOwner:
    """An owner that is no pod: one of HOST_KINDS, and its name."""

    kind: str
    name: str

    def of_run(self, run: int) -> "HostOwner":
        return HostOwner(self.kind, _numbered(self.name, run))


def _numbered(name: str, run: int) -> str:
    return name.replace("{run}", str(run))
