"""The chart in a real cluster, workloads on its GPUs, and what Prometheus answers about them.

GPUs are the driver's stand-in; the processes that it lists are real ones of real pods.
"""

import json
import math
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pytest

from gputally.model import Reading
from tests.e2e.conftest import Keeper
from tests.e2e.driver import Driver, on_a_gpu
from tests.e2e.kubernetes import TIMEOUT, Namespace, Object, node_pids, pod, until
from tests.support.ledger_series import (
    COUNTERS,
    GPU,
    POD,
    UNATTRIBUTED,
    History,
    decreases,
    millijoules,
    missing,
)
from tests.support.worlds import world
from tools import Failed
from tools.dependencies import programs
from tools.servers.prometheus import Prometheus
from tools.standin.scenario import Frame, replace_scenario, scenario_text
from tools.test_cluster import device_plugin, layout
from tools.test_cluster.cluster import Cluster

pytestmark = pytest.mark.timeout(900)

RELEASE = "gputally"
SCRAPE_SECONDS = 2
RETENTION_SECONDS = 3 * SCRAPE_SECONDS
SECONDS_TO_PLAY = 900

# Process 1 of a container receives only signals that it handles.
STAND_BY = "import os, signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]); "
TELL = "print(os.environ.get('NVIDIA_VISIBLE_DEVICES', 'none'), flush=True); "
WAIT = "signal.sigwait([signal.SIGTERM])"
PROGRAM = STAND_BY + TELL + WAIT
TWO_PROCESSES = STAND_BY + "os.fork() and " + TELL + WAIT
END = "import os, signal; os.kill(1, signal.SIGTERM)"


class StackPrometheus(Prometheus):
    """The stack's own."""

    def values(self, query: str, *labels: str) -> dict[tuple[str, ...], float]:
        """The labels of each series -> its value."""
        return {
            tuple(series["metric"].get(label, "") for label in labels): float(series["value"][1])
            for series in self.query(query)
        }

    def comes_to_show(
        self, expected: Mapping[tuple[str, ...], float], query: str, *labels: str, seconds: float = 60
    ) -> None:
        with_what = f"{query} is {expected}"
        try:
            until(with_what, lambda: self.values(query, *labels) == expected, seconds)
        except Failed:
            assert self.values(query, *labels) == expected

    def scraped_after(self, moment: float) -> None:
        """Until there is a scrape that began after that moment, and went well."""
        until("Prometheus has scraped the exporter", lambda: self.scrapes(moment))

    def scrapes(self, since: float, *, up: int = 1) -> list[float]:
        """When it scraped the exporter and got an answer or, with `up` 0, none."""
        seconds = math.ceil(time.time() - since)
        return sorted(
            float(at)
            for series in self.query(f'up{{job="gputally"}}[{seconds}s]')
            for at, value in series["values"]
            if value == str(up) and float(at) > since
        )

    def told(self, since: float, metric: str, *labels: str) -> set[frozenset[tuple[str, ...]]]:
        """The labels of all series that one scrape since then had, for each of them that had others.

        A scrape before the first sample of a new exporter has no GPUs and does not count.
        """
        seconds = math.ceil(time.time() - since)
        sampled = {at for series in self.query(f"gputally_gpu_up[{seconds}s]") for at, _ in series["values"]}
        scrapes: dict[float, set[tuple[str, ...]]] = {
            at: set() for at in self.scrapes(since) if at in sampled
        }
        for series in self.query(f"{metric}[{seconds}s]"):
            for at, _ in series["values"]:
                if at in scrapes:
                    scrapes[at].add(tuple(series["metric"].get(label, "") for label in labels))
        return set(map(frozenset, scrapes.values()))

    def history(self, since: float) -> History:
        seconds = math.ceil(time.time() - since)
        return History(self.query(f'{{__name__=~"{COUNTERS}"}}[{seconds}s]'))


@dataclass(slots=True)
class Gpus:
    """Two that draw a constant power, and the processes on them, as the driver shows them."""

    driver: Driver
    readings: tuple[Reading, ...] = field(default_factory=lambda: world("h100", gpus=2))
    processes: dict[str, Mapping[str, Sequence[int]]] = field(default_factory=dict)
    """Who -> the GPU's UUID -> processes."""
    began: float = field(default_factory=time.time)

    @property
    def uuids(self) -> tuple[str, ...]:
        return tuple(reading.gpu.uuid for reading in self.readings)

    def lists(self, processes: Mapping[str, Mapping[str, Sequence[int]]]) -> None:
        """From now on, these are the processes of those who are named."""
        self.processes |= processes
        self.play()

    def play(self) -> None:
        second = int(time.time() - self.began)
        now = Frame(float(second), tuple(self._reading(gpu, second) for gpu in self.readings))
        lines = [scenario_text([now], start=self.began).strip()]
        for later in range(second + 1, second + SECONDS_TO_PLAY):
            lines.append(f"frame {later}")
            for place, gpu in enumerate(self.readings):
                lines += [f"gpu {place}", f"energy {counter(gpu, later)}"]
        replace_scenario(self.driver.scenario, "\n".join(lines) + "\n")

    def _reading(self, gpu: Reading, second: int) -> Reading:
        listed = tuple(
            on_a_gpu(pid) for places in self.processes.values() for pid in places.get(gpu.gpu.uuid, ())
        )
        energy = counter(gpu, second)
        return replace(gpu, processes=listed, process_samples=None, energy_millijoules=energy)


def counter(gpu: Reading, second: int) -> int:
    """The millijoules that its meter shows."""
    assert gpu.energy_millijoules is not None
    return gpu.energy_millijoules + second * each_second(gpu)


def each_second(gpu: Reading) -> int:
    """The millijoules that it uses."""
    assert gpu.power_watts is not None
    return round(gpu.power_watts * 1000)


@dataclass(frozen=True, slots=True)
class Bench:
    """A release of the chart with its Prometheus, and GPUs for pods that request one."""

    cluster: Cluster
    release: Namespace
    prometheus: StackPrometheus
    gpus: Gpus
    team: Namespace
    devices: Sequence[str]

    def values(self, interval: str = "1s") -> Mapping[str, Any]:
        return values(self.gpus.driver, self.cluster, interval)

    def processes(self) -> str:
        """The query for where the team's processes are."""
        return f'gputally_pod_processes{{namespace="{self.team.name}"}} > 0'

    def pods(self) -> str:
        """The query for what is told of the team's pods."""
        return f'gputally_pod_info{{namespace="{self.team.name}"}}'

    def exporters(self) -> list[Object]:
        """Its pods, without those that are about to end."""
        return [
            found
            for found in self.release.pods_of(RELEASE)
            if found["metadata"]["labels"]["app.kubernetes.io/component"] == "exporter"
            and "deletionTimestamp" not in found["metadata"]
        ]

    def exporter(self) -> Object:
        (found,) = self.exporters()
        return found


def values(driver: Driver, cluster: Cluster, interval: str = "1s") -> Mapping[str, Any]:
    off = {"enabled": False}
    return {
        **driver.values(interval=interval, retention=f"{RETENTION_SECONDS}s"),
        "state": {"hostPath": str(cluster.place.directory / "ledger-of-workloads")},
        "rules": {
            "settings": {
                "scrapeInterval": f"{SCRAPE_SECONDS}s",
                "scrapeTimeout": f"{SCRAPE_SECONDS}s",
            }
        },
        "stack": {
            "enabled": True,
            "alertmanager": off,
            "grafana": off,
            "prometheus": {"persistence": off},
        },
    }


@pytest.fixture(scope="module")
def bench(keeper: Keeper) -> Iterator[Bench]:
    cluster = keeper.cluster()
    gpus = Gpus(Driver.installed(cluster, "of-workloads"))
    gpus.play()
    whole, sliced = gpus.uuids
    devices = [whole, *device_plugin.time_sliced([sliced], 3)]
    with (
        device_plugin.offering(cluster.place.device_plugins, devices),
        Namespace.made(cluster.plane, "workloads") as release,
        Namespace.made(cluster.plane, "workloads of a team") as team,
    ):
        release.install(RELEASE, values(gpus.driver, cluster))
        release.wait_for_exporter(RELEASE)
        release.kubectl("rollout", "status", f"statefulset/{RELEASE}-prometheus", TIMEOUT)
        prometheus = StackPrometheus("http://" + release.address(f"{RELEASE}-prometheus"))
        prometheus.scraped_after(gpus.began)
        yield Bench(cluster, release, prometheus, gpus, team, devices)
        release.uninstall(RELEASE)


# Which pods of the fleet are told to have asked for a GPU.
REQUESTED = frozenset({("train", "true"), ("serve", "true"), ("pair", "true"), ("shadow", "false")})


@dataclass(frozen=True, slots=True)
class Fleet:
    """Pods that run all the time: three that were given a GPU, one of them with two containers, and a shadow.

    Of the three, at least two are on the GPU that is shared; the shadow is on the other one.
    """

    pods: Mapping[str, Object]
    gpus: Mapping[str, str]
    """Pod -> the UUID of its GPU."""

    places: Mapping[tuple[str, ...], float]
    """UUID, pod and container -> how many processes."""


def fleet_pods() -> list[Object]:
    pair = pod("pair", TWO_PROCESSES, gpus=1)
    (worker,) = pair["spec"]["containers"]
    worker["name"] = "worker"
    loader = {"name": "loader", "image": worker["image"], "args": ["-c", PROGRAM]}
    pair["spec"]["containers"] = [worker, loader]
    return [pod("train", PROGRAM, gpus=1), pod("serve", PROGRAM, gpus=1), pair, pod("shadow", PROGRAM)]


@pytest.fixture(scope="module")
def fleet(bench: Bench) -> Fleet:
    return running_fleet(bench)


def running_fleet(bench: Bench) -> Fleet:
    wanted = fleet_pods()
    names = [each["metadata"]["name"] for each in wanted]
    bench.team.apply(*wanted)
    bench.team.kubectl("wait", "--for=condition=Ready", *(f"pod/{name}" for name in names), TIMEOUT)
    listed = json.loads(bench.team.kubectl("get", "pods", *names, "--output=json"))["items"]
    pods = {found["metadata"]["name"]: found for found in listed}
    whole, _ = bench.gpus.uuids
    gpus = {name: whole if name == "shadow" else given_gpu(bench.team, found) for name, found in pods.items()}
    pids = {name: pids_by_container(found) for name, found in pods.items()}
    bench.gpus.lists({name: {gpus[name]: list(chain(*pids[name].values()))} for name in pods})
    places: dict[tuple[str, ...], float] = {
        (gpus[name], name, container): float(len(some))
        for name in pods
        for container, some in pids[name].items()
    }
    bench.prometheus.comes_to_show(places, bench.processes(), "uuid", "pod", "container")
    return Fleet(pods, gpus, places)


def given_gpu(namespace: Namespace, found: Object) -> str:
    """Which one the pod's first container may see: it says so itself."""
    container = f"--container={found['spec']['containers'][0]['name']}"
    name = found["metadata"]["name"]
    return until("it has printed", lambda: namespace.kubectl("logs", name, container)).strip()


def pids_by_container(found: Object) -> dict[str, list[int]]:
    return {
        status["name"]: node_pids({"status": {"containerStatuses": [status]}})
        for status in found["status"]["containerStatuses"]
    }


@contextmanager
def survived(bench: Bench, *, replaced: bool) -> Iterator[float]:
    """In the block no counter decreases and no energy is lost; no scrape fails unless `replaced`.

    Yields the time at which the block began. How long a replacement takes depends on the machine: it is
    printed.
    """
    began = time.time()
    yield began
    bench.prometheus.scraped_after(time.time())
    times = bench.prometheus.scrapes(began - 10 * SCRAPE_SECONDS)
    # From the last one before the block on, so that a gap at its beginning is seen too.
    since = max(at for at in times if at < began)
    longest = max(later - earlier for earlier, later in pairwise(times) if earlier >= since)
    print(f"longest time between two scrapes: {longest:.1f} s")
    if not replaced:
        assert bench.prometheus.scrapes(since, up=0) == []
    kept = bench.prometheus.history(since - SCRAPE_SECONDS / 2).scrapes
    assert decreases(kept) == []
    assert [astray for scrape in kept if (astray := missing(scrape))] == []


def test_every_process_is_attributed_to_its_container(bench: Bench, fleet: Fleet) -> None:
    whole, sliced = bench.gpus.uuids
    on_the_shared_one = [name for name in ("train", "serve", "pair") if fleet.gpus[name] == sliced]

    shown = bench.prometheus.values(bench.processes(), "uuid", "pod", "container")

    assert shown == fleet.places
    assert len(on_the_shared_one) >= 2
    assert shown[whole, "shadow", "main"] == 1
    assert shown[fleet.gpus["pair"], "pair", "worker"] == 2
    assert shown[fleet.gpus["pair"], "pair", "loader"] == 1
    assert bench.prometheus.values("sum(gputally_gpu_unattributed_processes) > 0") == {}


def test_a_pod_that_uses_a_gpu_without_a_request_is_shadow_use(bench: Bench, fleet: Fleet) -> None:
    shown = bench.prometheus.values(bench.pods(), "pod", "pod_uid", "requested")

    uids = {name: found["metadata"]["uid"] for name, found in fleet.pods.items()}
    assert shown == {(name, uids[name], told): 1.0 for name, told in REQUESTED}


def test_the_energy_of_all_owners_adds_up_to_the_counter(bench: Bench, fleet: Fleet) -> None:
    moment = time.time()
    bench.prometheus.scraped_after(moment)

    scrape = bench.prometheus.history(moment).scrapes[-1]

    assert missing(scrape) == {}
    for gpu in bench.gpus.readings:
        counted = millijoules(scrape, GPU, uuid=gpu.gpu.uuid)
        assert (counted - counter(gpu, 0)) % each_second(gpu) == 0
        before = millijoules(scrape, UNATTRIBUTED, uuid=gpu.gpu.uuid, reason="initial")
        assert counter(gpu, 0) <= before < counted
    for name, uuid in fleet.gpus.items():
        assert millijoules(scrape, POD, uuid=uuid, pod=name, namespace=bench.team.name) > 0


def test_the_series_of_a_job_end_after_the_retention_time(bench: Bench, fleet: Fleet) -> None:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "epoch"},
        "spec": {"backoffLimit": 0, "template": {"spec": pod("epoch", PROGRAM, gpus=1)["spec"]}},
    }
    bench.team.apply(job)
    until("the Job runs", lambda: bench.team.get("job", "epoch")["status"].get("ready"))
    selector = "--selector=batch.kubernetes.io/job-name=epoch"
    (found,) = json.loads(bench.team.kubectl("get", "pods", selector, "--output=json"))["items"]
    name = found["metadata"]["name"]
    uuid = given_gpu(bench.team, found)
    bench.gpus.lists({"epoch": {uuid: node_pids(found)}})
    active = f'gputally_pod_active{{pod="{name}"}}'
    bench.prometheus.comes_to_show({(uuid, "main"): 1}, active, "uuid", "container")

    ending = time.time()
    with suppress(Failed):  # who ends a container from inside ends with it
        bench.team.kubectl("exec", name, "--", "python", "-c", END)
    bench.team.kubectl("wait", "--for=condition=Complete", "job/epoch", TIMEOUT)
    bench.gpus.lists({"epoch": {}})

    everything = f'{{__name__=~"gputally_pod_.*",pod="{name}"}}'
    bench.prometheus.comes_to_show({}, everything, "__name__")
    gone = time.time()
    (past,) = bench.prometheus.query(f"{active}[{math.ceil(gone - ending)}s]")
    ended = min(at for at, value in past["values"] if value == "0")
    assert gone - ended >= RETENTION_SECONDS - SCRAPE_SECONDS
    assert past["values"][-1][1] == "0"
    # The pod itself is still there: it has completed, and does not hold its GPU.
    assert bench.team.get("pod", name)["status"]["phase"] == "Succeeded"
    # Its energy is in the ledger all the same.
    assert missing(bench.prometheus.history(gone - 2 * SCRAPE_SECONDS).scrapes[-1]) == {}
    bench.team.kubectl("delete", "job", "epoch")


def test_a_pod_recreated_with_the_same_name_is_another_pod(bench: Bench, namespace: Namespace) -> None:
    gpu, _ = bench.gpus.uuids
    query = f'gputally_pod_info{{namespace="{namespace.name}"}}'
    seen = []
    for _ in range(2):
        made = namespace.run(pod("notebook", PROGRAM))
        bench.gpus.lists({"notebook": {gpu: node_pids(made)}})
        uid = made["metadata"]["uid"]
        bench.prometheus.comes_to_show({("notebook", uid): 1}, query, "pod", "pod_uid")
        seen.append(uid)
        namespace.kubectl("delete", "pod", "notebook")
        bench.gpus.lists({"notebook": {}})

    assert len(set(seen)) == 2


def delete_exporter(bench: Bench) -> None:
    former = bench.exporter()["metadata"]
    bench.release.kubectl("delete", "pod", former["name"])
    until(
        "another exporter is there",
        lambda: [each for each in bench.exporters() if each["metadata"]["uid"] != former["uid"]],
    )
    bench.release.wait_for_exporter(RELEASE)


def kill_api_server(bench: Bench) -> None:
    killed = bench.cluster.host_pid("kube-apiserver")
    os.kill(killed, signal.SIGKILL)
    until("another one runs", lambda: bench.cluster.host_pid("kube-apiserver") != killed)
    until("it answers", lambda: bench.cluster.plane.responds("/readyz"))


def kill_kubelet(bench: Bench) -> None:
    """The API server is stopped for some scrapes: the next kubelet responds without its pods."""
    socket = bench.cluster.place.pod_resources
    api_server = bench.cluster.host_pid("kube-apiserver")
    os.kill(api_server, signal.SIGSTOP)
    try:
        former = socket.stat().st_mtime_ns
        os.kill(bench.cluster.host_pid("kubelet"), signal.SIGKILL)
        until("the next kubelet answers", lambda: socket.stat().st_mtime_ns != former)
        silent_since = time.time()
        until("some scrapes are done", lambda: len(bench.prometheus.scrapes(silent_since)) >= 3)
    finally:
        os.kill(api_server, signal.SIGCONT)
    until("the node has its GPUs", lambda: allocatable(bench) == str(len(bench.devices)))


def allocatable(bench: Bench) -> str:
    status = bench.cluster.plane.api(f"/api/v1/nodes/{layout.NODE_NAME}")["status"]
    return str(status["allocatable"][device_plugin.RESOURCE])


@pytest.mark.parametrize(
    ("end", "replaced"),
    [(delete_exporter, True), (kill_api_server, False), (kill_kubelet, False)],
)
def test_series_continue_after_a_restart(
    bench: Bench, fleet: Fleet, end: Callable[[Bench], None], replaced: bool
) -> None:
    with survived(bench, replaced=replaced) as began:
        end(bench)

    bench.prometheus.comes_to_show(fleet.places, bench.processes(), "uuid", "pod", "container")
    bench.prometheus.comes_to_show({}, "gputally_source_up == 0", "source")
    assert bench.prometheus.told(began, bench.pods(), "pod", "requested") == {REQUESTED}


def test_network_policies_protect_exporter_and_prometheus(bench: Bench) -> None:
    names = bench.release.kubectl("get", "networkpolicies", "--output=name").split()

    prefix = "networkpolicy.networking.k8s.io"
    assert sorted(names) == [f"{prefix}/{RELEASE}", f"{prefix}/{RELEASE}-prometheus"]


def test_prometheus_may_list_pods_and_not_change_them(bench: Bench) -> None:
    # A target that is found proves neither: new clients do with `watch` alone, and slowly with `list` alone.
    account = f"--as=system:serviceaccount:{bench.release.name}:{RELEASE}-prometheus"

    allowed = bench.release.kubectl("auth", "can-i", "--list", "--no-headers", account).splitlines()

    # Resource, URLs, names, verbs.
    (pods,) = (line.split(maxsplit=3) for line in allowed if line.startswith("pods "))
    assert pods[-1].strip() == "[list watch]"


def test_an_upgrade_and_its_rollback_lose_no_energy_and_no_owner(bench: Bench, fleet: Fleet) -> None:
    for interval, change in (("2s", upgrade), ("1s", roll_back)):
        with survived(bench, replaced=True) as began:
            change(bench)
            bench.release.wait_for_exporter(RELEASE)

        assert f"--interval={interval}" in bench.exporter()["spec"]["containers"][0]["args"]
        bench.prometheus.comes_to_show(fleet.places, bench.processes(), "uuid", "pod", "container")
        assert bench.prometheus.told(began, bench.pods(), "pod", "requested") == {REQUESTED}


def upgrade(bench: Bench) -> None:
    bench.release.install(RELEASE, bench.values(interval="2s"))


def roll_back(bench: Bench) -> None:
    command: list[str | Path] = [
        programs.path("helm"),
        "--namespace",
        bench.release.name,
        "rollback",
        RELEASE,
    ]
    subprocess.run(command, env=bench.cluster.plane.environment, capture_output=True, check=True)


# The last one, for it takes the fleet away.
def test_a_drained_node_keeps_its_exporter_and_its_workloads_return(bench: Bench, fleet: Fleet) -> None:
    node = layout.NODE_NAME
    exporter = bench.exporter()["metadata"]["uid"]
    with survived(bench, replaced=False):
        try:
            # Prometheus stays, as if it were on another node.
            others = "--pod-selector=app.kubernetes.io/component!=prometheus"
            bench.cluster.plane.kubectl("drain", node, "--ignore-daemonsets", "--force", others, TIMEOUT)
            bench.gpus.lists({name: {} for name in fleet.pods})
            bench.prometheus.comes_to_show({}, bench.processes(), "pod")
        finally:
            bench.cluster.plane.kubectl("uncordon", node)

    again = running_fleet(bench)

    assert bench.exporter()["metadata"]["uid"] == exporter
    assert {found["metadata"]["uid"] for found in again.pods.values()}.isdisjoint(
        found["metadata"]["uid"] for found in fleet.pods.values()
    )
