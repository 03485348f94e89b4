"""From the pid on a GPU to the names of its pod, on hosts of each cgroup version, driver and runtime.

The paths have the forms of tests/fixtures/cgroups.tsv. The whole attribution runs: a tree of /proc, the
kubelet's log directories, the join.
"""

import posixpath
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gputally.attribution import PodReport
from gputally.attribution.owners import Attributor, ProcessOwners
from gputally.attribution.pod_logs import PodLogs
from gputally.attribution.resolve import index_pods
from gputally.model import Owner, PodInfo, Process, Unknown
from tests.support.worlds import world
from tools.standin.procfs import FakeProcfs, container_id, uid

GUARANTEED, BURSTABLE, BEST_EFFORT, SERVICE, SIBLING = 4001, 4002, 4003, 4004, 4005
QOS = {GUARANTEED: "", BURSTABLE: "burstable", BEST_EFFORT: "besteffort"}
OLLAMA = Owner("service", "service/ollama.service")
EXPORTER, EXPORTER_ID = uid(0xE), container_id(0xE)
NODE = container_id(0xFF)

Driver = Callable[[str, str, str], str]
"""(QoS, UID of the pod, id of the container) -> path of the cgroup"""


def systemd(scope: str, parent: str = "", root: str = "") -> Driver:
    """Each slice repeats the names of those above it; `root` is that of a kubelet with a root of its own."""

    def path(qos: str, pod_uid: str, cid: str) -> str:
        top = f"{root}kubepods"
        inner = f"{top}-{qos}" if qos else top
        slices = [f"{top}.slice", *([f"{inner}.slice"] if qos else [])]
        return "/".join([parent, *slices, f"{inner}-pod{pod_uid.replace('-', '_')}.slice", scope.format(cid)])

    return path


def cgroupfs(container: str, parent: str = "") -> Driver:
    def path(qos: str, pod_uid: str, cid: str) -> str:
        levels = ["kubepods", *filter(None, [qos]), f"pod{pod_uid}", container.format(cid)]
        return "/".join([parent, *levels])

    return path


def mismatch(qos: str, pod_uid: str, cid: str) -> str:
    """The kubelet with the systemd driver, containerd with cgroupfs."""
    name = f"kubepods-{qos}-pod" if qos else "kubepods-pod"
    return f"/system.slice/containerd.service/{name}{pod_uid.replace('-', '_')}.slice:cri-containerd:{cid}"


def without_pod(_qos: str, _pod_uid: str, cid: str) -> str:
    """cgroupsPerQOS is off."""
    return f"/system.slice/crio-{cid}.scope"


DRIVERS = {
    "systemd, containerd": systemd("cri-containerd-{}.scope"),
    "systemd, CRI-O": systemd("crio-{}.scope"),
    "systemd, CRI-O with crun": systemd("crio-{}.scope/container"),
    "systemd, Docker": systemd("docker-{}.scope"),
    "systemd, Docker in the container": systemd(f"cri-containerd-{{}}.scope/docker/{NODE}"),
    "systemd, systemd in the container": systemd("cri-containerd-{}.scope/system.slice/ssh.service"),
    "systemd, kind": systemd(
        "cri-containerd-{}.scope", f"/system.slice/docker-{NODE}.scope/kubelet.slice", "kubelet-"
    ),
    "systemd, minikube": systemd("docker-{}.scope", f"/docker/{NODE}"),
    "cgroupfs, containerd": cgroupfs("{}"),
    "cgroupfs, CRI-O": cgroupfs("crio-{}"),
    "cgroupfs, K3s": cgroupfs("{}", "/system.slice/k3s.service"),
    "cgroupfs, K3s without root": cgroupfs("{}", "/user.slice/user-1000.slice/user@1000.service/k3s.service"),
    "cgroupfs, kind": cgroupfs("{}", f"/docker/{NODE}/kubelet"),
    "cgroupfs, a removed cgroup": cgroupfs("{} (deleted)"),
    "systemd and cgroupfs": mismatch,
    "no cgroups per pod": without_pod,
}


def unified(path: str) -> str:
    return f"0::{path}\n"


def legacy(path: str) -> str:
    controllers = ("name=systemd", "cpu,cpuacct", "cpuset", "memory", "devices")
    return "".join(f"{number}:{controller}:{path}\n" for number, controller in enumerate(controllers, 1))


def hybrid(path: str) -> str:
    """The container is in the legacy hierarchies only; some of these may not be the container's."""
    return f"12:rdma:/\n{legacy(path)}0::/system.slice/containerd.service\n"


@pytest.fixture
def proc(tmp_path: Path) -> FakeProcfs:
    return FakeProcfs(tmp_path / "proc")


def pod_source(root: Path, *, with_ids: bool) -> PodLogs:
    """The kubelet's log directories, with a pod for each pid; some kubelets make no links with ids."""
    pods, containers = root / "pods", root / "containers"
    containers.mkdir(exist_ok=True)
    for pid in QOS:
        log = pods / f"team-a_train-{pid}_{uid(pid)}" / "main" / "0.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        if with_ids:
            (containers / f"train-{pid}_team-a_main-{container_id(pid)}.log").symlink_to(log)
    return PodLogs(pods, containers)


def owners(
    proc: FakeProcfs, *pids: int, with_ids: bool = False, nested: bool = False
) -> dict[int, Owner | Unknown]:
    """The owners of these processes, all on one GPU; the exporter knows its own pod by its name only."""
    (gpu,) = world("h100", 1, faults=())
    reading = replace(gpu, processes=tuple(Process(pid, "compute") for pid in pids), process_samples=())
    own = PodReport((PodInfo("gputally", "exporter", EXPORTER, container_names=("exporter", "helper")),))
    known = index_pods({"pod_logs": pod_source(proc.root.parent, with_ids=with_ids).read(), "own_pod": own})
    finder = ProcessOwners(proc.root, nested=nested)
    found = Attributor(finder).attribute([reading], known)
    return {resident.process.pid: resident.owner for resident in found.residents}


def pod(pid: int) -> Owner:
    return Owner("pod", "", "team-a", f"train-{pid}", "main", uid(pid), container_id(pid))


@pytest.mark.parametrize("hierarchies", [unified, legacy, hybrid])
@pytest.mark.parametrize("driver", DRIVERS.values(), ids=DRIVERS)
def test_every_pod_is_named_and_a_service_is_not_a_pod(
    proc: FakeProcfs, driver: Driver, hierarchies: Callable[[str], str]
) -> None:
    for pid, qos in QOS.items():
        proc.start(pid, hierarchies(driver(qos, uid(pid), container_id(pid))))
    proc.start(SERVICE, hierarchies("/system.slice/ollama.service"))
    # The node of kind and minikube is a container: the exporter runs in a pod of it.
    proc.start_self(hierarchies(driver("", EXPORTER, EXPORTER_ID)))

    nested = driver is DRIVERS["cgroupfs, K3s without root"]
    found = owners(proc, *QOS, SERVICE, with_ids=driver is without_pod, nested=nested)
    assert found == {**{pid: pod(pid) for pid in QOS}, SERVICE: OLLAMA}


@pytest.mark.parametrize("hierarchies", [unified, legacy, hybrid])
@pytest.mark.parametrize("name", ["systemd, kind", "systemd, minikube", "cgroupfs, kind"])
def test_outside_of_a_node_that_is_a_container_the_node_pays(
    proc: FakeProcfs, name: str, hierarchies: Callable[[str], str]
) -> None:
    proc.start(GUARANTEED, hierarchies(DRIVERS[name]("", uid(GUARANTEED), container_id(GUARANTEED))))
    proc.start_self(hierarchies("/system.slice/gputally.service"))

    assert owners(proc, GUARANTEED) == {GUARANTEED: Owner("docker", f"docker/{NODE[:12]}", container_id=NODE)}
    assert owners(proc, GUARANTEED, nested=True) == {GUARANTEED: pod(GUARANTEED)}


@pytest.mark.parametrize("qos", QOS.values())
@pytest.mark.parametrize("driver", DRIVERS.values(), ids=DRIVERS)
def test_an_exporter_in_its_own_cgroup_namespace_finds_the_same_owners(
    proc: FakeProcfs, driver: Driver, qos: str
) -> None:
    """A container of cgroup v2 has such a namespace by default, and sees paths relative to its own cgroup."""
    home = driver(qos, EXPORTER, EXPORTER_ID).removesuffix(" (deleted)")

    def seen(path: str) -> str:
        return unified(f"/{posixpath.relpath(path, home)}")

    for pid, other in QOS.items():
        proc.start(pid, seen(driver(other, uid(pid), container_id(pid))))
    proc.start(SERVICE, seen("/system.slice/ollama.service"))

    found = owners(proc, *QOS, SERVICE, with_ids=driver is without_pod)
    assert found == {**{pid: pod(pid) for pid in QOS}, SERVICE: OLLAMA}


@pytest.mark.parametrize("name", ["systemd, containerd", "systemd, CRI-O", "cgroupfs, containerd"])
def test_a_process_of_another_container_of_the_exporters_pod(proc: FakeProcfs, name: str) -> None:
    driver = DRIVERS[name]
    home = driver("burstable", EXPORTER, EXPORTER_ID)
    sibling = driver("burstable", EXPORTER, container_id(SIBLING))
    proc.start(SIBLING, unified(f"/{posixpath.relpath(sibling, home)}"))

    assert owners(proc, SIBLING) == {
        SIBLING: Owner("pod", "", "gputally", "exporter", "", EXPORTER, container_id(SIBLING))
    }


@pytest.mark.parametrize("hierarchies", [unified, legacy])
def test_a_virtual_machine_in_the_pod_slice_is_the_only_container_of_the_pod(
    proc: FakeProcfs, hierarchies: Callable[[str], str]
) -> None:
    scope = DRIVERS["systemd, containerd"]("burstable", uid(BURSTABLE), NODE)
    proc.start(BURSTABLE, hierarchies(posixpath.dirname(scope)))

    assert owners(proc, BURSTABLE) == {BURSTABLE: replace(pod(BURSTABLE), container_id="")}


def test_a_process_in_two_pods_of_two_hierarchies_has_no_owner(proc: FakeProcfs) -> None:
    driver = DRIVERS["systemd, containerd"]
    first, second = (driver("", uid(pid), container_id(pid)) for pid in (GUARANTEED, BURSTABLE))
    proc.start(GUARANTEED, f"{legacy(first)}0::{second}\n")

    assert owners(proc, GUARANTEED) == {GUARANTEED: Unknown("ambiguous_pod")}
