"""Where a cluster has its files, its names and its addresses."""

from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

from tools.dependencies import programs
from tools.servers.control_plane import ControlPlane

# Set aside for measuring networks (RFC 2544): no network of a company, cloud or home has these addresses.
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
# Below it the kubelet has its own tree, so that a kubelet of the host keeps /kubepods to itself.
CGROUP = "gputally-cluster"
STORAGE_CLASS = "folders"


@dataclass(frozen=True, slots=True)
class Layout:
    """The folder of one cluster."""

    folder: Path

    @property
    def plane(self) -> ControlPlane:
        return ControlPlane(self.folder, API_PORT, NODE_ADDRESS)

    @property
    def plan(self) -> Path:
        """What node.py starts; a folder that has it is a cluster's."""
        return self.folder / "plan.json"

    @property
    def state(self) -> Path:
        """How node.py is doing."""
        return self.folder / "state.json"

    @property
    def logs(self) -> Path:
        return self.folder / "log"

    @property
    def kubelet(self) -> Path:
        return self.folder / "kubelet"

    @property
    def device_plugins(self) -> Path:
        return self.kubelet / "device-plugins"

    @property
    def pod_resources(self) -> Path:
        """The kubelet's socket, as a process of the host reaches it."""
        return self.kubelet / "pod-resources" / "kubelet.sock"

    @property
    def volumes(self) -> Path:
        return self.folder / "volumes"

    @property
    def mounts(self) -> dict[str, Path]:
        """Places of a node -> folders that stand there, for the cluster alone."""
        return {
            "/run/containerd": self.folder / "run-containerd",
            "/var/lib/kubelet": self.kubelet,
            "/var/log/containers": self.folder / "container-logs",
            "/var/log/pods": self.folder / "pod-logs",
        }

    def make(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # First of all, so that whatever happens next, the folder is known as a cluster's.
        self.plan.touch()
        more = (self.logs, self.volumes, self.folder / "var", self.folder / "var-work")
        for folder in (*more, self.folder / "cni", *self.mounts.values()):
            folder.mkdir(exist_ok=True)


def default_folder() -> Path:
    return programs.cache() / "cluster"
