"""A pod without a process has ended, where all processes are visible and for long enough."""

from pathlib import Path

import pytest

from gputally.attribution.pod_processes import PodProcesses, visible_pods
from tools.standin.procfs import FakeProcfs, container_id, pod_cgroup, uid

ALL = frozenset({uid(1), uid(2), uid(3)})


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def proc(tmp_path: Path) -> FakeProcfs:
    proc = FakeProcfs(tmp_path / "proc")
    proc.start(1, "0::/init.scope\n", name="systemd")
    for number in (1, 2, 3):
        proc.start(100 + number, pod_cgroup(uid(number), container_id(number)), name="pause")
    return proc


def looked_for(seconds: float, clock: Clock, pods: PodProcesses) -> frozenset[str]:
    """The pods that have ended, after a sample every 5 seconds for so long."""
    ended = pods.ended(ALL)
    for _ in range(round(seconds / 5)):
        clock.now += 5
        ended = pods.ended(ALL)
    return ended


def test_a_pod_without_a_process_has_ended_after_a_while(proc: FakeProcfs) -> None:
    clock = Clock()
    pods = PodProcesses(proc.root, clock)
    assert looked_for(60, clock, pods) == frozenset()
    proc.end(101)
    assert looked_for(20, clock, pods) == frozenset(), "its sandbox may be replaced"
    assert looked_for(60, clock, pods) == {uid(1)}


def test_a_pod_that_has_a_process_again_has_not_ended(proc: FakeProcfs) -> None:
    clock = Clock()
    pods = PodProcesses(proc.root, clock)
    proc.end(101)
    assert looked_for(60, clock, pods) == {uid(1)}
    proc.start(201, pod_cgroup(uid(1), container_id(9)))
    assert looked_for(20, clock, pods) == frozenset()


def test_a_pod_that_is_no_longer_looked_for_is_forgotten(proc: FakeProcfs) -> None:
    clock = Clock()
    pods = PodProcesses(proc.root, clock)
    proc.end(101)
    assert looked_for(60, clock, pods) == {uid(1)}
    assert pods.ended(frozenset()) == frozenset()
    assert pods.ended(ALL) == frozenset()


@pytest.mark.parametrize("without", ["the host's processes", "permission", "pods in the cgroup paths"])
def test_where_processes_cannot_be_seen_no_pod_has_ended(proc: FakeProcfs, without: str) -> None:
    for number in (1, 2, 3):
        proc.end(100 + number)
    match without:
        case "the host's processes":  # a sidecar with shareProcessNamespace
            proc.start(100, pod_cgroup(uid(3), container_id(3)))
        case "permission":  # hidepid
            proc.end(1)
            proc.start(102, pod_cgroup(uid(2), container_id(2)))
            proc.start(103, pod_cgroup(uid(3), container_id(3)))
        case _:  # cgroupsPerQOS: false
            proc.start(102, f"0::/system.slice/crio-{container_id(2)}.scope\n")
    clock = Clock()
    assert visible_pods(proc.root) is None
    assert looked_for(120, clock, PodProcesses(proc.root, clock)) == frozenset()


def test_an_unreadable_proc_says_nothing(tmp_path: Path) -> None:
    assert visible_pods(tmp_path / "missing") is None


def test_pod_uids_are_found_in_every_spelling(proc: FakeProcfs) -> None:
    static = "0123456789abcdef0123456789abcdef"
    systemd = uid(4).replace("-", "_")
    proc.start(
        104, f"0::/kubepods.slice/kubepods-pod{systemd}.slice/cri-containerd-{container_id(4)}.scope\n"
    )
    escaped = uid(5).replace("-", "\\x2d")
    proc.start(105, f"1:name=systemd:/kubepods/burstable/pod{escaped}/x\n0::/system.slice\n")
    proc.start(106, f"0::/kubepods/burstable/pod{static}/{container_id(6)}\n")
    assert visible_pods(proc.root) == ALL | {uid(4), uid(5), static}
