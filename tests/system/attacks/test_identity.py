"""Tenants that name their processes and cgroups to be charged less, or to have another tenant charged.

The real exporter on the driver stand-in: one attacker on each GPU, and the victim alone on the first.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gputally.model import Process, ProcessSample
from tests.golden.meters import play_running
from tests.support.exporter import Exporter
from tests.support.worlds import world
from tools.standin.kubelet import kubelet, message
from tools.standin.procfs import FakeProcfs, container_id, pod_cgroup, uid
from tools.standin.scenario import environment

GIB = 2**30
VICTIM, MALLORY = 4001, 4002
CGROUP_OF_VICTIM = f"kubepods/burstable/pod{uid(VICTIM)}/{container_id(VICTIM)}"
SCOPE_OF_VICTIM = f"kubepods.slice/kubepods-pod{uid(VICTIM).replace('-', '_')}.slice"
USER = "/user.slice/user-1000.slice/user@1000.service"
DOCKER = container_id(77)
NAMES = ("nvidia-cuda-mps", "nvidia-cuda-mps-server", "nvidia-cuda-mps-control", "gputally")

# The cgroup of the attacker's process, and the owner that the kernel vouches for.
ATTACKS = {
    "a pod that acts as an MPS server": (pod_cgroup(uid(MALLORY), container_id(MALLORY)), "mallory"),
    "a pod with a cgroup of another pod below its own": (
        pod_cgroup(uid(MALLORY), f"{container_id(MALLORY)}/{CGROUP_OF_VICTIM}"),
        "mallory",
    ),
    "a user with a cgroup of a pod": (f"0::{USER}/{CGROUP_OF_VICTIM}\n", "session/1000"),
    "a user with a systemd slice of a pod": (f"0::{USER}/{SCOPE_OF_VICTIM}\n", "session/1000"),
    "a user with the container of a pod": (
        f"0::{USER}/docker-{container_id(VICTIM)}.scope\n",
        "session/1000",
    ),
    "a user with a job of Slurm": (f"0::{USER}/slurmstepd.scope/job_42/step_0\n", "session/1000"),
    "a user with a service": (f"0::{USER}/nvidia-mps.service\n", "session/1000"),
    "a user without systemd": ("0::/\n", "session/1000"),
    "a user of cgroup v1": (f"1:name=systemd:{USER}/{CGROUP_OF_VICTIM}\n2:memory:/\n", "session/1000"),
    "a job of Slurm": (
        f"0::/system.slice/slurmstepd.scope/job_7/step_0/user/{CGROUP_OF_VICTIM}\n",
        "slurm/7",
    ),
    "a Docker container": (
        f"0::/system.slice/docker-{DOCKER}.scope/{CGROUP_OF_VICTIM}\n",
        f"docker/{DOCKER[:12]}",
    ),
    "an LXC container": (f"0::/lxc.payload.guest/{CGROUP_OF_VICTIM}\n", "lxc/guest"),
    "a virtual machine": (
        f"0::/machine.slice/machine-{container_id(VICTIM)}.scope/{CGROUP_OF_VICTIM}\n",
        f"container/{container_id(VICTIM)[:12]}",
    ),
    "a service of a user": (
        f"0::/system.slice/jupyter-bob.service/{CGROUP_OF_VICTIM}\n",
        "service/jupyter-bob.service",
    ),
}


@pytest.mark.parametrize("exclusive", [False, True])
def test_every_attacker_pays_for_its_own_gpu_and_the_victim_only_for_its_own(
    tmp_path: Path, exclusive: bool
) -> None:
    proc = FakeProcfs(tmp_path / "proc")
    proc.start(VICTIM, pod_cgroup(uid(VICTIM), container_id(VICTIM)))
    pids = [VICTIM, *range(5000, 5000 + len(ATTACKS))]
    for number, (pid, (cgroup, _)) in enumerate(zip(pids[1:], ATTACKS.values(), strict=True)):
        proc.start(pid, cgroup, name=NAMES[number % len(NAMES)])
    logs, links = tmp_path / "pods", tmp_path / "containers"
    links.mkdir()
    for pid, name in ((VICTIM, "victim"), (MALLORY, "mallory")):
        (logs / f"team-{name}_{name}_{uid(pid)}" / "main").mkdir(parents=True)
        (links / f"{name}_team-{name}_main-{container_id(pid)}.log").touch()
    gpus = tuple(
        replace(
            reading,
            processes=(Process(pid, "compute", "python3", GIB),),
            process_samples=(ProcessSample(pid, 1_760_000_000_000_000, 0.5, 0.2, 0.0, 0.0, 200_000),),
            compute_mode={
                (mode,): float(mode == ("exclusive_process" if exclusive else "default"))
                for mode in ("default", "exclusive_thread", "prohibited", "exclusive_process")
            },
        )
        for pid, reading in zip(pids, world("h100", len(pids), workloads=(), faults=()), strict=True)
    )
    scenario = play_running(tmp_path / "world", gpus)
    arguments = (
        *("serve", "--reader", "nvml", "--interval", "300ms", "--procfs", str(proc.root)),
        *("--pod-logs", str(logs), "--container-logs", str(links)),
        *("--pod-resources-socket", str(tmp_path / "kubelet.sock")),
    )
    expected = {"0": {"victim"}} | {
        str(number): {owner} for number, (_, owner) in enumerate(ATTACKS.values(), 1)
    }
    answers = {"/v1.PodResourcesLister/List": _allocations(gpus[1].gpu.uuid)}
    with (
        kubelet(tmp_path / "kubelet.sock", answers),
        Exporter(tmp_path / "log", *arguments, environment=environment(scenario)) as exporter,
    ):
        charged = exporter.wait_until(
            lambda: found if len(found := _charged(exporter.scrape())) == len(pids) else None,
            "every GPU has an owner with energy",
        )
        exporter.next_snapshots(2)
        charged = _charged(exporter.scrape())
        unattributed = exporter.samples().get("gputally_gpu_unattributed_processes", {})
    assert charged == expected
    assert sum(unattributed.values()) == 0


def _allocations(uuid: str) -> bytes:
    """The kubelet says that mallory holds the GPU on which it acts as an MPS server."""
    devices = [message("v1.ContainerDevices", resource_name="nvidia.com/gpu", device_ids=[uuid])]
    containers = [message("v1.ContainerResources", name="main", devices=devices)]
    pods = [message("v1.PodResources", name="mallory", namespace="team-mallory", containers=containers)]
    return bytes(message("v1.ListPodResourcesResponse", pod_resources=pods).SerializeToString())


def _charged(scrape: str) -> dict[str, set[str]]:
    """GPU -> the owners that are charged energy."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(scrape):
        if family.name in ("gputally_pod_energy_joules", "gputally_host_energy_joules"):
            for sample in family.samples:
                if sample.value > 0:
                    owner = sample.labels.get("pod") or sample.labels["owner"]
                    found.setdefault(sample.labels["gpu"], set()).add(owner)
    return found
