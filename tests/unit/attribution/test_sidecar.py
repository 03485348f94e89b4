"""What a sidecar sees is its own pod's; what it cannot see, it does not claim."""

from pathlib import Path

from gputally.attribution import PodReport
from gputally.attribution.resolve import PodIndex, index_pods
from gputally.attribution.sidecar import SidecarOwners
from gputally.model import Owner, PodInfo, Unknown
from tools.standin.procfs import FakeProcfs, container_id, pod_cgroup, uid

POD = PodInfo("team-a", "train-0", pod_uid=uid(7), container_names=("main",))
OWNER = Owner("pod", namespace="team-a", pod="train-0", container="main", pod_uid=uid(7))


def told(*pods: PodInfo) -> PodIndex:
    return index_pods({"own_pod": PodReport(pods=pods)})


def test_every_visible_process_belongs_to_its_pod(tmp_path: Path) -> None:
    procfs = FakeProcfs(tmp_path)
    procfs.start(20, "0::/\n")  # of its own container
    procfs.start(30, f"0::/../cri-containerd-{container_id(2)}.scope\n")
    procfs.start(40, pod_cgroup(uid(9), container_id(4)))  # an unknown UID
    found = SidecarOwners(procfs.root).find([20, 30, 40], told(POD))
    assert {
        (one.owner.namespace, one.owner.pod) for one in found.values() if isinstance(one.owner, Owner)
    } == {("team-a", "train-0")}
    assert len(found) == 3
    assert found[20].owner == OWNER


def test_an_invisible_process_is_not_attributed_to_its_pod(tmp_path: Path) -> None:
    procfs = FakeProcfs(tmp_path)
    procfs.start(20, "0::/\n")
    found = SidecarOwners(procfs.root).find([20, 4711], told(POD))
    assert found[4711].owner == Unknown("exited")
    assert SidecarOwners(procfs.root).find([4711], told(POD))[4711].owner == Unknown("pid_namespace")


def test_without_the_name_of_its_pod_it_names_none(tmp_path: Path) -> None:
    procfs = FakeProcfs(tmp_path)
    procfs.start(40, pod_cgroup(uid(9), container_id(4)))
    found = SidecarOwners(procfs.root).find([40], told())
    assert isinstance(found[40].owner, Unknown)
