"""A GPU node that does not exist, and the truth about it: whose processes drew how many millijoules.

Driver, /proc, log directories and kubelet are stand-ins below the real exporter. The GPUs report no power: so
the ledger trusts their energy counter from the first sample, and every millijoule has a known owner.
"""

import os
import random
import shutil
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from gputally.model import Process
from gputally.simulator.engine import Engine
from gputally.simulator.scenario import Scenario
from tools.standin.kubelet import kubelet, message
from tools.standin.procfs import FakeProcfs, container_id, pod_cgroup, uid
from tools.standin.scenario import Fault, Frame, environment, write_scenario

Account = tuple[str, ...]
"""("pod", namespace, pod, container), ("host", owner) or ("unattributed", reason)."""
MODEL = "t4"
MOST_MILLIJOULES = 500_000
"""Of one step: what the ledger accepts from a GPU whose power is not known."""
AFTER_RELOAD_MILLIJOULES = 5_000
_NAMESPACES = ("ml", "vision", "search", "web")
_FIRST_PID = 10_000
_HOLDER = ("ml", "allocated-0")


@dataclass(frozen=True, slots=True)
class Tenant:
    """A process on a GPU, and the account that has to pay for it."""

    pid: int
    account: Account


class Node:
    """The node. All changes come from one thread; each is visible to the exporter at once."""

    def __init__(self, directory: Path, seed: int, gpus: int) -> None:
        self._random = random.Random(seed)
        self._directory = directory
        self._scenario = directory / "driver"
        engine = Engine(Scenario(gpus=gpus, model=MODEL, seed=seed))
        readings = engine.readings(600, since=595, epoch_seconds=1_700_000_000)
        self._readings = [replace(one, power_watts=None, process_samples=None) for one in readings]
        self.procfs = FakeProcfs(directory / "proc")
        boot_id = self.procfs.root / "sys/kernel/random/boot_id"
        boot_id.parent.mkdir(parents=True)
        boot_id.write_text("00000000-0000-4000-8000-000000000001\n")
        self.pod_logs, self.container_logs = directory / "pods", directory / "containers"
        self.pod_logs.mkdir()
        self.container_logs.mkdir()
        self.kubelet_socket = directory / "kubelet.sock"
        self.kubelet_answers = threading.Event()
        self.kubelet_answers.set()
        self.kubelet_garbage = False
        self.uuids = [reading.gpu.uuid for reading in readings]
        self.counters = [1_000_000_000 + number for number in range(gpus)]
        self.offsets = [0] * gpus
        """What the counters of the ledger have beyond those of the driver, which a reload sets to zero."""
        self.tenants: list[list[Tenant]] = [[] for _ in range(gpus)]
        self.names: Counter[str] = Counter()
        """How many owners there have been, by kind."""
        self._pids = 0
        self._faults: tuple[Fault, ...] = ()
        self._write()

    @property
    def gpus(self) -> range:
        """The last has no processes and is allocated to a pod; the one before it has several owners."""
        return range(len(self.counters))

    @property
    def shared_out(self) -> range:
        """The GPUs with processes."""
        return self.gpus[:-1]

    def environment(self) -> Mapping[str, str]:
        return environment(self._scenario)

    def arguments(self) -> tuple[str, ...]:
        return (
            *("serve", "--reader", "nvml", "--procfs", str(self.procfs.root)),
            *("--pod-logs", str(self.pod_logs), "--container-logs", str(self.container_logs)),
            *("--pod-resources-socket", str(self.kubelet_socket)),
        )

    @contextmanager
    def kubelet(self) -> Iterator[None]:
        """Its kubelet, which allocates the last GPU."""
        with kubelet(self.kubelet_socket, {"/v1.PodResourcesLister/List": lambda _: self._allocations()}):
            yield

    def _allocations(self) -> bytes:
        self.kubelet_answers.wait(30)
        if self.kubelet_garbage:
            return random.Random(self._pids).randbytes(2000)
        device = message(
            "v1.ContainerDevices",
            resource_name="nvidia.com/gpu",
            device_ids=[self._readings[-1].gpu.uuid],
        )
        given = message("v1.ContainerResources", name="main", devices=[device])
        namespace, name = _HOLDER
        pod = message("v1.PodResources", name=name, namespace=namespace, containers=[given])
        encoded: bytes = message("v1.ListPodResourcesResponse", pod_resources=[pod]).SerializeToString()
        return encoded

    def owners(self, gpu: int) -> set[Account]:
        """Who has to pay for this GPU now."""
        if gpu == self.gpus[-1]:
            return {("pod", *_HOLDER)}
        return {tenant.account for tenant in self.tenants[gpu]}

    def churn(self, gpus: Sequence[int] | None = None, *, blocked: bool = False) -> None:
        """The processes of these GPUs (of all) end, and others start, with new names.

        With `blocked`, the exporter's read of what /proc has about the new ones does not return.
        """
        chosen = self.shared_out if gpus is None else gpus
        before = [tenant for gpu in chosen for tenant in self.tenants[gpu]]
        for gpu in chosen:
            several = gpu == self.gpus[-2]
            count = self._random.randint(2, 3) if several else 1
            self.tenants[gpu] = [self._start(blocked=blocked) for _ in range(count)]
        self._write()
        for tenant in before:
            self._end(tenant)

    def _start(self, *, blocked: bool) -> Tenant:
        self._pids += 1
        number = self._pids
        pid = _FIRST_PID + number
        kind = "pod" if self._random.random() < 0.9 else self._random.choice(("slurm", "service"))
        self.names[kind] += 1
        account: Account
        if kind == "pod":
            account = ("pod", self._random.choice(_NAMESPACES), f"job-{number}")
            _, namespace, name = account
            (self.pod_logs / f"{namespace}_{name}_{uid(number)}" / "main").mkdir(parents=True)
            (self.container_logs / f"{name}_{namespace}_main-{container_id(number)}.log").touch()
            cgroup = pod_cgroup(uid(number), container_id(number))
        elif kind == "slurm":
            account = ("host", f"slurm/{number}")
            cgroup = f"0::/system.slice/slurmstepd.scope/job_{number}/step_0/user/task_0\n"
        else:
            account = ("host", f"service/train-{number}.service")
            cgroup = f"0::/system.slice/train-{number}.service\n"
        self.procfs.start(pid, cgroup, ticks=100 + number)
        if blocked:
            path = self._cgroup_file(pid)
            path.rename(path.with_name("cgroup.true"))
            os.mkfifo(path)
        return Tenant(pid, account)

    def _cgroup_file(self, pid: int) -> Path:
        return self.procfs.root / str(pid) / "cgroup"

    def unblock(self, gpu: int) -> None:
        """Ends the blocking reads of /proc: they return nothing, and later ones the truth."""
        for tenant in self.tenants[gpu]:
            fifo = self._cgroup_file(tenant.pid)
            writer = os.open(fifo, os.O_RDWR)
            fifo.with_name("cgroup.true").rename(fifo)
            os.close(writer)

    def _end(self, tenant: Tenant) -> None:
        self.procfs.end(tenant.pid)
        if tenant.account[0] == "pod":
            _, namespace, name = tenant.account
            number = tenant.pid - _FIRST_PID
            shutil.rmtree(self.pod_logs / f"{namespace}_{name}_{uid(number)}")
            (self.container_logs / f"{name}_{namespace}_main-{container_id(number)}.log").unlink()

    def draw(self, gpus: Iterable[int]) -> int:
        """Each of these GPUs draws some energy, from one moment to the next; returns how much altogether."""
        drawn = 0
        for gpu in gpus:
            millijoules = self._random.randint(1, MOST_MILLIJOULES)
            self.counters[gpu] += millijoules
            drawn += millijoules
        self._write()
        return drawn

    def break_driver(self, *faults: Fault) -> None:
        self._faults = faults
        self._write()

    def mend_driver(self, *, reloaded: bool = False) -> int:
        """Ends all faults; the energy that the GPUs drew since a reload, which sets their counters to 0."""
        drawn = 0
        if reloaded:
            for gpu in self.gpus:
                self.offsets[gpu] += self.counters[gpu]
                self.counters[gpu] = AFTER_RELOAD_MILLIJOULES
                drawn += AFTER_RELOAD_MILLIJOULES
        self.break_driver()
        return drawn

    def _write(self) -> None:
        readings = tuple(
            replace(
                reading,
                energy_millijoules=self.counters[gpu],
                processes=tuple(
                    Process(tenant.pid, "compute", "python3", 2**30 * (1 + tenant.pid % 7))
                    for tenant in self.tenants[gpu]
                ),
            )
            for gpu, reading in enumerate(self._readings)
        )
        write_scenario(self._scenario, [Frame(0.0, readings)], faults=self._faults)
