"""The paths, names and addresses of a cluster."""

from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

from tools.dependencies import programs
from tools.servers.control_plane import ControlPlane

# Reserved for benchmarks (RFC 2544): not used by networks of companies, clouds or homes.
ADDRESSES = IPv4Network("198.18.0.0/15")
LINK_LENGTH = 24
HOST_ADDRESS = "198.18.0.1"
NODE_ADDRESS = "198.18.0.2"
POD_ADDRESSES = "198.18.1.0/24"
BRIDGE_ADDRESS = "198.18.1.1"
SERVICE_ADDRESSES = "198.19.0.0/16"
API_SERVICE_ADDRESS = "198.19.0.1"
API_PORT = 6443

NODE_NAME = "gpu-node"
INTERFACE = "gputally0"
BRIDGE = "cni0"
# The kubelet's cgroups are below it: /kubepods belongs to a kubelet of the host.
CGROUP = "gputally-cluster"
STORAGE_CLASS = "directories"


@dataclass(frozen=True, slots=True)
class Layout:
    """The directory of one cluster."""

    directory: Path

    @property
    def plane(self) -> ControlPlane:
        return ControlPlane(self.directory, API_PORT, NODE_ADDRESS)

    @property
    def plan(self) -> Path:
        """The plan for node.py; it marks a directory as a cluster's."""
        return self.directory / "plan.json"

    @property
    def state(self) -> Path:
        """The status that node.py writes."""
        return self.directory / "state.json"

    @property
    def logs(self) -> Path:
        return self.directory / "log"

    @property
    def kubelet(self) -> Path:
        return self.directory / "kubelet"

    @property
    def device_plugins(self) -> Path:
        return self.kubelet / "device-plugins"

    @property
    def pod_resources(self) -> Path:
        """The kubelet's socket, by its path on the host."""
        return self.kubelet / "pod-resources" / "kubelet.sock"

    @property
    def volumes(self) -> Path:
        return self.directory / "volumes"

    @property
    def mounts(self) -> dict[str, Path]:
        """Paths of a node -> directories that are mounted there for the cluster only."""
        return {
            "/run/containerd": self.directory / "run-containerd",
            "/var/lib/kubelet": self.kubelet,
            "/var/log/containers": self.directory / "container-logs",
            "/var/log/pods": self.directory / "pod-logs",
        }

    def make(self) -> None:
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        # First, so that the directory is marked as a cluster's even after a failure.
        self.plan.touch()
        more = (self.logs, self.volumes, self.directory / "var", self.directory / "var-work")
        for directory in (*more, self.directory / "cni", *self.mounts.values()):
            directory.mkdir(exist_ok=True)


def default_directory() -> Path:
    return programs.cache() / "cluster"
