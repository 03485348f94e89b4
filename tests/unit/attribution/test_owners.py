"""Owners of processes: a reused pid is another process."""

import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from gputally.attribution import FoundOwner, PodReport
from gputally.attribution.owners import ProcessOwners
from gputally.attribution.resolve import PodIndex, index_pods
from gputally.model import Owner, PodInfo, Unknown
from tools.standin.procfs import FakeProcfs, container_id, pod_cgroup, uid

PODS = tuple(
    PodInfo(f"ns-{n}", f"pod-{n}", uid(n), containers={container_id(n): "main"}, container_names=("main",))
    for n in range(1, 9)
)
KNOWN = index_pods({"pod_logs": PodReport(PODS)})
NOTHING = index_pods({})


@pytest.fixture
def proc(tmp_path: Path) -> FakeProcfs:
    return FakeProcfs(tmp_path / "proc")


def pod_of(found: FoundOwner) -> str:
    assert isinstance(found.owner, Owner)
    return found.owner.pod


def cgroup(number: int) -> str:
    return pod_cgroup(uid(number), container_id(number))


def test_a_process_is_attributed_to_its_pod(proc: FakeProcfs) -> None:
    proc.start(41, cgroup(1))
    (found,) = ProcessOwners(proc.root).find([41], KNOWN).values()
    assert found.owner == Owner("pod", "", "ns-1", "pod-1", "main", uid(1), container_id(1))


def test_a_reused_pid_is_not_attributed_to_the_previous_owner(proc: FakeProcfs) -> None:
    owners = ProcessOwners(proc.root)
    proc.start(41, cgroup(1), ticks=100)
    assert pod_of(owners.find([41], KNOWN)[41]) == "pod-1"
    proc.start(41, cgroup(2), ticks=900)
    assert pod_of(owners.find([41], KNOWN)[41]) == "pod-2"


def test_a_reused_pid_reports_its_previous_owner_once(proc: FakeProcfs) -> None:
    owners = ProcessOwners(proc.root)
    proc.start(41, cgroup(1), ticks=100)
    first = owners.find([41], KNOWN)[41]
    assert (first.new, first.former) == (True, None)
    assert owners.find([41], KNOWN)[41] == replace(first, new=False)
    proc.start(41, cgroup(2), ticks=900)
    given_away = owners.find([41], KNOWN)[41]
    assert (given_away.new, given_away.former) == (True, first.owner)
    assert given_away.started_at_seconds is not None
    assert first.started_at_seconds is not None
    ticks = os.sysconf("SC_CLK_TCK")
    assert given_away.started_at_seconds - first.started_at_seconds == pytest.approx(800 / ticks, abs=0.5)
    assert owners.find([41], KNOWN)[41].former is None


def test_an_exited_process_keeps_its_owner(proc: FakeProcfs) -> None:
    owners = ProcessOwners(proc.root)
    proc.start(41, cgroup(1))
    owners.find([41], KNOWN)
    proc.end(41)
    assert pod_of(owners.find([41], KNOWN)[41]) == "pod-1"


def test_a_process_that_exited_before_the_first_sample_is_unknown(proc: FakeProcfs) -> None:
    proc.start(1, cgroup(1))
    assert ProcessOwners(proc.root).find([1, 41], KNOWN)[41].owner == Unknown("exited")


def test_if_no_pid_is_found_the_reason_is_the_pid_namespace(proc: FakeProcfs) -> None:
    found = ProcessOwners(proc.root).find([41, 42, 43], KNOWN)
    assert {one.owner for one in found.values()} == {Unknown("pid_namespace")}


def test_short_jobs_alone_do_not_indicate_another_pid_namespace(proc: FakeProcfs) -> None:
    found = ProcessOwners(proc.root).find([], KNOWN, ended=[41, 42])
    assert {one.owner for one in found.values()} == {Unknown("exited")}


def test_a_name_is_kept_after_the_kubelet_has_removed_the_pod(proc: FakeProcfs) -> None:
    owners = ProcessOwners(proc.root)
    proc.start(41, cgroup(1))
    assert pod_of(owners.find([41], KNOWN)[41]) == "pod-1"
    assert pod_of(owners.find([41], NOTHING)[41]) == "pod-1"


def test_a_name_that_becomes_known_later_is_used(proc: FakeProcfs) -> None:
    owners = ProcessOwners(proc.root)
    proc.start(41, cgroup(1))
    assert owners.find([41], NOTHING)[41].owner == Unknown("unknown_pod", uid(1), container_id(1))
    assert pod_of(owners.find([41], KNOWN)[41]) == "pod-1"


def test_processes_that_are_no_longer_listed_are_forgotten(proc: FakeProcfs) -> None:
    owners = ProcessOwners(proc.root)
    for pid in range(1, 200):
        proc.start(pid, cgroup(1))
    owners.find(range(1, 200), KNOWN)
    owners.find([5], KNOWN)
    assert len(owners._known) == 1


@pytest.mark.parametrize("seed", range(20))
def test_random_histories_attribute_every_process_to_its_owner(proc: FakeProcfs, seed: int) -> None:
    """Processes come, go and take each other's pids between looks; a model says whose each one is."""
    luck = random.Random(seed)
    owners = ProcessOwners(proc.root)
    running: dict[int, int] = {}
    last_seen: dict[int, int] = {}
    ticks = 0
    directory: PodIndex = KNOWN
    proc.start(999, cgroup(8))  # one process is always there
    for _ in range(60):
        for _ in range(luck.randrange(6)):
            ticks += 1
            pid = luck.randrange(1, 12)
            if pid in running and luck.random() < 0.5:
                proc.end(pid)
                del running[pid]
            else:
                running[pid] = luck.randrange(1, 9)
                proc.start(pid, cgroup(running[pid]), ticks=ticks)
        directory = KNOWN if luck.random() < 0.8 else NOTHING
        asked = luck.sample(range(1, 12), luck.randrange(1, 11))
        found = owners.find([999, *asked], directory)
        for pid in asked:
            owner = found[pid].owner
            if isinstance(owner, Owner):
                truth = running.get(pid, last_seen.get(pid))
                assert owner.pod == f"pod-{truth}", (pid, owner)
        last_seen = {pid: running.get(pid, last_seen.get(pid, 0)) for pid in asked}


def test_a_thousand_processes_are_attributed(proc: FakeProcfs) -> None:
    for pid in range(1, 1001):
        proc.start(pid, cgroup(pid % 8 + 1))
    owners = ProcessOwners(proc.root)
    first = owners.find(range(1, 1001), KNOWN)
    assert all(pod_of(first[pid]) == f"pod-{pid % 8 + 1}" for pid in first)
    again = owners.find(range(1, 1001), KNOWN)
    assert {pid: found.owner for pid, found in again.items()} == {pid: f.owner for pid, f in first.items()}
