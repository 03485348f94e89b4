"""Whose a workload is, as the scenario says. Nothing of what the GPUs read depends on it.

`{run}` in a name is the number of the run, from 0: a workload that comes again is then another pod or
job each time.
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
    """What made the pod, as Kind/name."""
    requested: bool = True
    """Whether it asked for the GPUs, and so was given them."""

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
    """Something of the host: one of HOST_KINDS, and its name."""

    kind: str
    name: str

    def of_run(self, run: int) -> "HostOwner":
        return HostOwner(self.kind, _numbered(self.name, run))


def _numbered(name: str, run: int) -> str:
    return name.replace("{run}", str(run))
