"""Hosts of every kind, as trees of files: two GPUs, and processes of pods, containers, jobs and services."""

from dataclasses import dataclass, replace
from pathlib import Path

from gputally.model import Process, Reading
from tests.support.worlds import world
from tools.standin.kubelet import message
from tools.standin.procfs import FakeProcfs, container_id, uid

GIB = 2**30
REQUESTED, SHADOW, OTHER, GONE = 4001, 4002, 4003, 4004
TRAIN, NOTEBOOK = uid(0xA1), uid(0xB2)
TRAIN_ID, NOTEBOOK_ID = container_id(0xA1), container_id(0xB2)
UNDERSCORED = {TRAIN: TRAIN.replace("-", "_"), NOTEBOOK: NOTEBOOK.replace("-", "_")}


def gpus() -> tuple[Reading, ...]:
    """Two GPUs: the first is shared, the second has something of the host and a process that has gone."""
    first, second = world("h100", 2, faults=())
    return (
        replace(
            first,
            processes=(
                Process(REQUESTED, "compute", "python3", 40 * GIB),
                Process(SHADOW, "compute", "python3", 2 * GIB),
            ),
            process_samples=(),
        ),
        replace(
            second,
            processes=(Process(OTHER, "compute", "ollama", GIB), Process(GONE, "compute", "python3", GIB)),
            process_samples=(),
        ),
    )


@dataclass(frozen=True)
class Host:
    train: str = ""
    """cgroup of the pod that asked for a GPU."""
    notebook: str = ""
    """cgroup of the pod that did not."""
    other: str = "0::/system.slice/ollama.service\n"
    gives: tuple[str, ...] = ()
    """Ids under which the kubelet gave the first GPU away."""
    resource: str = "nvidia.com/gpu"
    pods: bool = True


def systemd(prefix: str, parent: str = "", kubelet: str = "") -> tuple[str, str]:
    """cgroup v2 with the systemd driver; `prefix` is the runtime's."""
    root = f"0::{parent}/{kubelet}kubepods"
    return (
        f"{root}.slice/{kubelet}kubepods-pod{UNDERSCORED[TRAIN]}.slice/{prefix}-{TRAIN_ID}.scope\n",
        f"{root}.slice/{kubelet}kubepods-besteffort.slice/"
        f"{kubelet}kubepods-besteffort-pod{UNDERSCORED[NOTEBOOK]}.slice/{prefix}-{NOTEBOOK_ID}.scope\n",
    )


def cgroupfs(parent: str = "") -> tuple[str, str]:
    return (
        f"0::{parent}/kubepods/pod{TRAIN}/{TRAIN_ID}\n",
        f"0::{parent}/kubepods/besteffort/pod{NOTEBOOK}/{NOTEBOOK_ID}\n",
    )


FIRST_GPU = gpus()[0].gpu.uuid
HOSTS = {
    "k3s": Host(*systemd("cri-containerd"), gives=(FIRST_GPU,)),
    "gke": Host(*cgroupfs(), gives=("nvidia0/vgpu1", "nvidia0/vgpu2")),
    "aks": Host(*systemd("cri-containerd"), gives=(f"{FIRST_GPU}::0", f"{FIRST_GPU}::3")),
    "eks": Host(*systemd("cri-containerd"), gives=(f"{FIRST_GPU}::1",), resource="nvidia.com/gpu.shared"),
    "openshift": Host(*systemd("crio"), gives=(FIRST_GPU,)),
    # Read inside of the node, as in tests/fixtures/cgroups.tsv.
    "kind": Host(*systemd("cri-containerd", "/kubelet.slice", "kubelet-"), gives=(FIRST_GPU,)),
    "docker-only": Host(
        f"0::/system.slice/docker-{TRAIN_ID}.scope\n",
        f"0::/machine.slice/libpod-{NOTEBOOK_ID}.scope\n",
        pods=False,
    ),
    "slurm": Host(
        "0::/system.slice/slurmstepd.scope/job_42/step_0/user/task_0\n",
        "9:devices:/slurm/uid_1000/job_43/step_batch\n1:name=systemd:/system.slice/slurmd.service\n",
        pods=False,
    ),
}


def build(directory: Path, host: Host) -> tuple[str, ...]:
    """The trees of a host, and the flags that point to them."""
    proc = FakeProcfs(directory / "proc")
    proc.start(REQUESTED, host.train)
    proc.start(SHADOW, host.notebook)
    proc.start(OTHER, host.other, name="ollama")
    logs, containers = directory / "pods", directory / "containers"
    if host.pods:
        containers.mkdir()
        for namespace, pod, pod_uid, container, cid in (
            ("team-a", "train-0", TRAIN, "main", TRAIN_ID),
            ("team-b", "notebook-7", NOTEBOOK, "jupyter", NOTEBOOK_ID),
        ):
            (logs / f"{namespace}_{pod}_{pod_uid}" / container).mkdir(parents=True)
            (containers / f"{pod}_{namespace}_{container}-{cid}.log").touch()
    return (
        *("--procfs", str(proc.root), "--pod-logs", str(logs), "--container-logs", str(containers)),
        *("--pod-resources-socket", str(directory / "kubelet.sock")),
    )


def pod_resources(host: Host) -> bytes:
    devices = [message("v1.ContainerDevices", resource_name=host.resource, device_ids=list(host.gives))]
    containers = [message("v1.ContainerResources", name="main", devices=devices)]
    pods = [
        message("v1.PodResources", name="train-0", namespace="team-a", containers=containers),
        message("v1.PodResources", name="notebook-7", namespace="team-b"),
    ]
    return bytes(message("v1.ListPodResourcesResponse", pod_resources=pods).SerializeToString())
