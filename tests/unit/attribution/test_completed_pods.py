"""A completed pod does not hold a GPU, though kubelets before 1.34 go on listing it with its devices.

https://github.com/kubernetes/kubernetes/issues/119423, /issues/132020; mended by /pull/132028 (1.34).
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gputally.attribution import Allocation, PodReport, PodSource
from gputally.attribution.owners import Attributor, ProcessOwners
from gputally.attribution.pod_logs import PodLogs
from gputally.attribution.pod_processes import PodProcesses
from gputally.attribution.pod_resources import PodResources
from gputally.attribution.resolve import find_holders, idle_pods, index_pods, list_pods
from gputally.model import DeviceKey, Gpu, Owner, PodInfo, Process, Reading, Resident, Use
from tools.standin.kubelet import kubelet, message
from tools.standin.procfs import FakeProcfs, container_id, pod_cgroup, uid

LIST = "/v1.PodResourcesLister/List"
READINGS = tuple(
    Reading(gpu=Gpu(f"GPU-{number}", number, "nvidia", "H100"), processes=(), process_samples=())
    for number in (0, 1)
)
FIRST, SECOND = (
    Allocation("ml", "first", "main", "nvidia.com/gpu", "GPU-0"),
    Allocation("ml", "second", "main", "nvidia.com/gpu", "GPU-0"),
)


def known(name: str, number: int = 1, **more: object) -> PodInfo:
    return replace(PodInfo("ml", name, uid(number), container_names=("main",)), **more)  # type: ignore[arg-type]


def holders(
    allocations: tuple[Allocation, ...],
    *pods: PodInfo,
    ended: frozenset[str] = frozenset(),
    stale: tuple[str, str] | None = None,
) -> list[str]:
    index = index_pods(
        {"kubernetes": PodReport(pods, stale=stale), "pod_resources": PodReport(allocations=allocations)}
    )
    return [holder.pod for _, holder in find_holders(READINGS, index, ended)]


@pytest.mark.parametrize(
    ("phase", "holds"),
    [
        ("Pending", True),
        ("Running", True),
        ("Unknown", True),
        ("", True),
        ("Succeeded", False),
        ("Failed", False),
    ],
)
def test_a_pod_in_a_terminal_phase_holds_nothing(phase: str, holds: bool) -> None:
    assert holders((FIRST,), known("first", phase=phase)) == ["first"] * holds


@pytest.mark.parametrize(("phase", "holds"), [("", False), ("Pending", True), ("Running", True)])
def test_a_pod_without_processes_holds_nothing_unless_its_phase_says_that_it_does(
    phase: str, holds: bool
) -> None:
    assert holders((FIRST,), known("first", phase=phase), ended=frozenset({uid(1)})) == ["first"] * holds


def test_the_phase_of_a_report_that_is_no_longer_updated_may_have_changed() -> None:
    pod = known("first", phase="Running")
    stale = ("the API server cannot be reached", "")
    assert holders((FIRST,), pod, stale=stale) == ["first"]
    assert holders((FIRST,), pod, stale=stale, ended=frozenset({uid(1)})) == []
    assert holders((FIRST,), replace(pod, phase="Succeeded"), stale=stale) == [], "that is final"


def test_a_pod_made_again_under_the_name_of_a_completed_one_holds_its_gpu() -> None:
    old, new = known("first", 1, phase="Failed"), known("first", 2, phase="Running")
    assert holders((FIRST,), old, new) == holders((FIRST,), new, old) == ["first"]
    starting = replace(new, phase="")
    assert holders((FIRST,), old, starting) == ["first"]


def test_a_pod_that_no_source_names_holds_its_gpu() -> None:
    assert holders((FIRST,), ended=frozenset({uid(1)})) == ["first"]


def test_of_two_pods_with_one_device_the_one_that_was_listed_first_holds_nothing() -> None:
    later = replace(SECOND, first_listed=7)
    assert holders((FIRST, later)) == holders((later, FIRST)) == ["second"]
    assert holders((FIRST, SECOND)) == ["first", "second"], "which is older is not known"


def test_of_two_pods_with_one_device_the_one_that_was_accepted_first_holds_nothing() -> None:
    pods = known("first", 1, started_at_seconds=10.0), known("second", 2, started_at_seconds=20.0)
    assert holders((FIRST, SECOND), *pods) == holders((SECOND, FIRST), *pods) == ["second"]
    assert holders((FIRST, SECOND), pods[0]) == ["first", "second"], "of one the time is not known"
    listed = replace(FIRST, first_listed=3)
    assert holders((listed, SECOND), *pods) == ["first"], "what was seen decides"


@pytest.mark.parametrize(
    "shared",
    [{"device_id": "GPU-0::1"}, {"claim": "one-gpu", "resource": "gpu.nvidia.com", "device_id": "gpu-0"}],
    ids=["replicas", "a claim"],
)
def test_pods_that_share_a_device_all_hold_it(shared: dict[str, str]) -> None:
    readings = tuple(replace(one, gpu=replace(one.gpu, minor_number=one.gpu.index)) for one in READINGS)
    first, second = (replace(one, **shared) for one in (FIRST, SECOND))  # type: ignore[arg-type]
    allocations = (first, replace(second, first_listed=7))
    index = index_pods({"pod_resources": PodReport(allocations=allocations)})
    assert [holder.pod for _, holder in find_holders(readings, index)] == ["first", "second"]


def test_two_containers_of_one_pod_may_have_one_device() -> None:
    helper = replace(FIRST, container="helper", first_listed=2)
    assert holders((FIRST, helper)) == ["first", "first"]


def test_only_pods_that_may_have_ended_are_looked_for() -> None:
    pods = (
        known("first", 1),
        known("second", 2, phase="Running"),
        known("starting", 3, container_names=()),
        known("busy", 4),
        known("other", 5),
    )
    names = ("first", "second", "starting", "busy")
    allocations = tuple(replace(FIRST, pod=name) for name in names)
    index = index_pods({"pod_logs": PodReport(pods), "pod_resources": PodReport(allocations=allocations)})
    busy = Owner("pod", namespace="ml", pod="busy", container="main", pod_uid=uid(4))
    assert idle_pods(index, [Resident(0, "GPU-0", Process(1, "compute"), busy, ())]) == {uid(1)}


def test_a_completed_pod_has_requested_its_gpu_all_the_same() -> None:
    done = known("first", phase="Succeeded")
    index = index_pods({"kubernetes": PodReport((done,)), "pod_resources": PodReport(allocations=(FIRST,))})
    use = Use(0, "GPU-0", Owner("pod", namespace="ml", pod="first", container="main", pod_uid=uid(1)), 1)
    assert [pod.requested for pod in list_pods([use], index)] == [True]


class Node:
    """A kubelet before 1.34 with its log directories, and the processes of its pods."""

    def __init__(self, root: Path, socket: Path) -> None:
        self.proc = FakeProcfs(root / "proc")
        self.proc.start(1, "0::/init.scope\n", name="systemd")
        self.socket = socket
        self.now = 0.0
        self._logs = root / "pods"
        (root / "containers").mkdir()
        self._devices: dict[str, str] = {}
        self._sources: list[PodSource] = [PodLogs(self._logs, root / "containers"), PodResources(socket)]
        owners = ProcessOwners(self.proc.root)
        owners._pod_processes = PodProcesses(self.proc.root, lambda: self.now)
        self._attributor = Attributor(owners)

    def admit(self, name: str, device: str = "") -> None:
        """The kubelet allocates the devices before it creates the pod's sandbox and log directory."""
        self._devices[name] = device

    def run(self, name: str, number: int) -> None:
        (self._logs / f"ml_{name}_{uid(number)}" / "main").mkdir(parents=True)
        self.proc.start(100 + number, pod_cgroup(uid(number), container_id(number)), name="pause")

    def complete(self, number: int) -> None:
        """Its processes end. The log directory stays, and so does its entry in the kubelet's list."""
        self.proc.end(100 + number)

    def answer(self, _: object) -> bytes:
        pods = [
            message(
                "v1.PodResources",
                name=name,
                namespace="ml",
                containers=[
                    message(
                        "v1.ContainerResources",
                        name="main",
                        devices=[
                            message(
                                "v1.ContainerDevices", resource_name="nvidia.com/gpu", device_ids=[device]
                            )
                        ]
                        if device
                        else [],
                    )
                ],
            )
            for name, device in self._devices.items()
        ]
        encoded: bytes = message("v1.ListPodResourcesResponse", pod_resources=pods).SerializeToString()
        return encoded

    def holders(self, seconds: float = 60) -> list[tuple[DeviceKey, str]]:
        """After a sample every 5 seconds for so long."""
        for _ in range(max(1, round(seconds / 5))):
            self.now += 5
            index = index_pods({source.name: source.read() for source in self._sources})
            found = self._attributor.attribute(READINGS, index).holders
        return [(device, owner.pod) for device, owner in found]


@pytest.fixture
def node(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Node]:
    return lambda: Node(tmp_path, tmp_path_factory.mktemp("k") / "kubelet.sock")


def test_a_completed_job_that_the_kubelet_lists_holds_nothing(node: Callable[[], Node]) -> None:
    here = node()
    here.admit("kube-proxy")
    here.run("kube-proxy", 8)
    here.admit("device-plugin")
    here.run("device-plugin", 9)
    with kubelet(here.socket, {LIST: here.answer}):
        here.admit("epoch-1", "GPU-0")
        assert here.holders() == [((0, "GPU-0"), "epoch-1")], "its volumes are being mounted"
        here.run("epoch-1", 1)
        assert here.holders() == [((0, "GPU-0"), "epoch-1")], "it is idle"
        here.complete(1)
        assert here.holders() == []
        here.admit("epoch-2", "GPU-0")
        assert here.holders(5) == [((0, "GPU-0"), "epoch-2")]
        here.run("epoch-2", 2)
        assert here.holders() == [((0, "GPU-0"), "epoch-2")]


def test_the_device_of_a_completed_job_passes_to_the_next_at_once(node: Callable[[], Node]) -> None:
    here = node()
    with kubelet(here.socket, {LIST: here.answer}):
        here.admit("epoch-1", "GPU-0")
        here.run("epoch-1", 1)
        here.holders(5)
        here.complete(1)
        here.admit("epoch-2", "GPU-0")
        assert here.holders(5) == [((0, "GPU-0"), "epoch-2")], "without a look at processes"


def test_the_claims_of_a_pod_and_the_requests_in_them_are_known() -> None:
    claimed = tuple(
        replace(FIRST, resource="gpu.nvidia.com", device_id=f"gpu-{number}", claim=claim)
        for number, claim in enumerate(("two", "one", "two"))
    )
    requests = (("one", "large"), ("network", "rdma"), ("two", "small"), ("two", "large"))
    pods = (known("first", claim_requests=requests), known("second", 2))
    index = index_pods({"kubernetes": PodReport(pods), "pod_resources": PodReport(allocations=claimed)})
    uses = [Use(0, "GPU-0", Owner("pod", namespace="ml", pod=pod.pod), 1) for pod in pods]
    assert [(pod.claim, pod.claim_request) for pod in list_pods(uses, index)] == [
        ("one,two", "large,small"),
        ("", ""),
    ]
