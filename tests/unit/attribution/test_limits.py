"""More than fits: the rest is taken in, and what is left out is counted."""

from collections import Counter
from pathlib import Path

import pytest

from gputally.attribution import PodReport, limits, pod_logs
from gputally.attribution.kubernetes_pod import AllowedLabels, pod_info
from gputally.attribution.limits import LABEL_NAMES, PODS, limit_label_names, take_pods
from gputally.attribution.owners import Attributor, ProcessOwners
from gputally.attribution.pod_logs import PodLogs
from gputally.attribution.pod_resources import parse_pods
from gputally.attribution.resolve import index_pods, list_pods
from gputally.model import Gpu, Owner, PodInfo, Process, Reading, Unknown, Use
from gputally.sampling.guard import Record
from tools.standin.kubelet import message
from tools.standin.procfs import FakeProcfs, container_id, uid


def pod(number: int, namespace: str = "team", **more: object) -> PodInfo:
    return PodInfo(namespace, f"pod-{number}", uid(number), **more)  # type: ignore[arg-type]


def test_pods_beyond_the_limit_are_counted() -> None:
    taken, left_out = take_pods(pod(n) for n in range(PODS + 3))
    assert (len(taken), left_out) == (PODS, {"pods": 3})
    assert take_pods(taken) == (taken, {})


def test_a_pod_with_too_many_containers_keeps_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = {container_id(n): f"c{n}" for n in range(257)}
    (big, small), left_out = take_pods([pod(1, containers=ids), pod(2, containers={container_id(1): "main"})])
    assert (big.pod, big.containers, small.containers) == ("pod-1", {}, {container_id(1): "main"})
    assert left_out == {"containers": 257}
    monkeypatch.setattr(limits, "CONTAINERS", 3)
    taken, left_out = take_pods(pod(n, container_names=("a", "b")) for n in range(3))
    assert [one.container_names for one in taken] == [("a", "b"), (), ()]
    assert left_out == {"containers": 4}


def test_labels_beyond_the_limit_are_left_out_and_the_pods_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LABEL_CHARACTERS", 10)
    taken, left_out = take_pods(pod(n, labels=(("team", "red"),)) for n in range(3))
    assert [one.labels for one in taken] == [(("team", "red"),), (), ()]
    assert left_out == {"pod_labels": 2}


def test_a_namespace_with_many_label_names_does_not_displace_those_of_others() -> None:
    bomb = [pod(n, "bomb", labels=tuple((f"a{n:02}-{m:02}", "x" * 63) for m in range(32))) for n in range(60)]
    others = [
        pod(100, "red", labels=(("team", "red"), ("zone", "z1"))),
        pod(101, "blue", labels=(("team", "blue"), ("z-only-here", "1"))),
    ]
    taken, left_out = limit_label_names([*bomb, *others])
    assert taken[-2:] == tuple(others)
    assert len({name for one in taken for name, _ in one.labels}) == LABEL_NAMES
    assert left_out == 60 * 32 + 3 - LABEL_NAMES
    assert limit_label_names(taken) == (taken, 0)
    assert limit_label_names(list(reversed([*bomb, *others])))[0] == tuple(reversed(taken))


def test_no_number_of_namespaces_displaces_a_label_that_is_allowed_by_its_full_name() -> None:
    bomb = [
        pod(n, f"bomb-{n % 3}", labels=tuple((f"a{n // 3}-{m:02}", "x") for m in range(32))) for n in range(6)
    ]
    labels = {"a": "x", "cost-center": "7", "zone": "z1"}
    metadata = {"name": "pod-9", "namespace": "billing", "uid": uid(9), "labels": labels}
    billed = pod_info({"metadata": metadata}, AllowedLabels(("*", "cost-center")))
    assert billed is not None
    index = index_pods({"pod_logs": PodReport((pod(9, "billing"),)), "kubernetes": PodReport((billed,))})
    known = list_pods([Use(0, "GPU-a", Owner("pod", namespace="billing", pod="pod-9"), 1)], index)
    taken, _ = limit_label_names([*bomb, *known])
    assert taken[-1].labels == (("cost-center", "7"),)


def test_directories_and_links_beyond_the_limit_are_counted_by_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_logs, "PODS", 4)
    monkeypatch.setattr(pod_logs, "CONTAINERS", 2)
    pods, containers = tmp_path / "pods", tmp_path / "containers"
    containers.mkdir()
    for n in range(7):
        (pods / f"team_pod-{n}_{uid(n)}" / "main").mkdir(parents=True)
        (containers / f"pod-{n}_team_main-{container_id(n)}.log").symlink_to(
            pods / f"team_pod-{n}_{uid(n)}" / "main" / "0.log"
        )
    source = PodLogs(pods, containers)
    for _ in range(2):
        report = source.read()
        assert 4 <= len(report.pods) <= 6  # links name pods too
        assert sum(len(one.containers) for one in report.pods) == 2
        assert report.left_out == {"pods": 3, "containers": 5}


def test_what_the_kubelet_lists_beyond_the_limit_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputally.attribution.pod_resources.PODS", 2)
    monkeypatch.setattr("gputally.attribution.pod_resources.ALLOCATIONS", 3)
    devices = message("v1.ContainerDevices", resource_name="nvidia.com/gpu", device_ids=["GPU-1", "GPU-2"])
    pods = [
        message(
            "v1.PodResources",
            name=f"pod-{n}",
            namespace="team",
            containers=[message("v1.ContainerResources", name="main", devices=[devices])],
        )
        for n in range(3)
    ]
    reply = bytes(message("v1.ListPodResourcesResponse", pod_resources=pods).SerializeToString())
    left_out = Counter[str]()
    found = parse_pods(reply, left_out)
    assert {name: len(allocated) for (_, name), allocated in found.items()} == {"pod-0": 2, "pod-1": 1}
    assert left_out == {"pods": 1, "devices": 1}


def test_processes_beyond_the_limit_have_this_reason_and_the_others_their_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gputally.attribution.owners.PROCESSES", 2)
    procfs = FakeProcfs(tmp_path)
    for pid in (1, 2, 3):
        procfs.start(pid, "0::/system.slice/ollama.service\n")
    listed = tuple(Process(pid, "compute") for pid in (1, 2, 3))
    reading = Reading(gpu=Gpu("GPU-a", 0, "nvidia", "H100"), processes=listed)
    found = Attributor(ProcessOwners(tmp_path)).attribute([reading], index_pods({}))
    owners = {one.process.pid: one.owner for one in found.residents}
    assert owners[1] == owners[2] != Unknown("limit") == owners[3]
    assert found.left_out == 1


def test_a_limit_is_logged_once_and_counted_each_time(caplog: pytest.LogCaptureFixture) -> None:
    record = Record("kubelet_pods")
    for _ in range(3):
        record.leave_out({"pods": 2, "containers": 0})
    assert record.state().errors == {("pods", "limit"): 6}
    assert [one.getMessage() for one in caplog.records] == [
        "source kubelet_pods: 2 pods are beyond the limit and left out"
    ]
