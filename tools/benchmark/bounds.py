"""Memory at the bounds: the exporter with as much of each input as it accepts, and with more.

A bound is a constant of the exporter, named here. An input whose constant does not exist has no stated bound,
and the report says so.
"""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from gputally.attribution.limits import LABELS_OF_POD
from gputally.devices.host import read_boot_id
from gputally.ledger import MOST_OWNERS, Ledger
from gputally.ledger.clock import since_boot_us
from gputally.ledger.state_file import Saved, encode
from gputally.model import Gpu, Owner, Reading
from tools import ROOT
from tools.benchmark.contenders import OURS
from tools.benchmark.running import Stage, running, set_stage
from tools.benchmark.scrape import Scraper
from tools.standin.kubelet import kubelet, message
from tools.standin.procfs import FakeProcfs, container_id, pod_cgroup, uid

SAMPLES = 4
_INTERVAL_SECONDS = 2
_GPUS = 8
_OVER = 2
"""The measurement above a bound has this many times as much."""
_LABEL_LENGTH = 63
_VALID_US = 3_600_000_000

Arguments = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Input:
    """Something that others determine, and the constant that bounds it."""

    name: str
    module: str
    constant: str
    unit: str
    arrange: Callable[[Path, Stage, int], Iterator[tuple[Stage, Arguments]]]
    """Produces so much of it; yields the stage and the arguments of an exporter that reads it."""

    @property
    def bound(self) -> int | None:
        """None while none is stated."""
        try:
            return int(getattr(import_module(self.module), self.constant))
        except (ImportError, AttributeError):
            return None


@dataclass(frozen=True, slots=True)
class BoundCost:
    """The memory at one bound."""

    name: str
    constant: str
    unit: str
    bound: int | None
    peak_bytes: int = 0
    """At the bound; the highest since the start."""
    over_peak_bytes: int = 0


def _pods(directory: Path, stage: Stage, count: int) -> Iterator[tuple[Stage, Arguments]]:
    """Directories of the kubelet's logs."""
    logs = directory / "pods"
    for number in range(count):
        (logs / f"ml_train-{number}_{uid(number)}" / "main").mkdir(parents=True)
    yield stage, ("--pod-logs", str(logs))


def _processes(directory: Path, stage: Stage, count: int) -> Iterator[tuple[Stage, Arguments]]:
    """Processes on the GPUs, each in a pod of its own."""
    played, procfs = _busy_pods(directory, stage, count)
    logs = directory / "pods"
    for number in range(count):
        (logs / f"ml_train-{number}_{uid(number)}" / "main").mkdir(parents=True)
    yield played, ("--procfs", str(procfs), "--pod-logs", str(logs))


def _process_series(directory: Path, stage: Stage, count: int) -> Iterator[tuple[Stage, Arguments]]:
    """The same, with series for each process."""
    for played, arguments in _processes(directory, stage, count):
        yield played, (*arguments, "--process-metrics")


def _labels(directory: Path, stage: Stage, count: int) -> Iterator[tuple[Stage, Arguments]]:
    """Labels of pods on the GPUs, as long as Kubernetes allows; `count` is their characters."""
    names = [f"team/{number:02}" for number in range(LABELS_OF_POD)]
    pods = count // sum(len(name) + _LABEL_LENGTH for name in names)
    played, procfs = _busy_pods(directory, stage, pods)
    answer = message(
        "v1alpha1.ListPodsResponse",
        pods=[
            message(
                "k8s.io.api.core.v1.Pod",
                metadata=message(
                    "k8s.io.api.core.v1.ObjectMeta",
                    **{"name": f"train-{number}", "namespace": "ml", "uid": uid(number)},
                    labels=dict.fromkeys(names, f"{number:0{_LABEL_LENGTH}}"),
                ),
            ).SerializeToString()
            for number in range(pods)
        ],
    ).SerializeToString()
    socket = directory / "kubelet.sock"
    with kubelet(socket, {"/v1alpha1.Pods/ListPods": answer}):
        sources = ("--procfs", str(procfs), "--kubelet-pods-socket", str(socket))
        yield played, (*sources, "--pod-labels", "team/*")


def _busy_pods(directory: Path, stage: Stage, count: int) -> tuple[Stage, Path]:
    """A stage with so many processes on its GPUs, and a /proc in which each is of a pod of its own."""
    played = set_stage(directory, stage.library, gpus=_GPUS, processes=count)
    procfs = FakeProcfs(directory / "proc")
    scenario = next(directory.glob(f"{_GPUS}-gpus-{count}-*"))
    pids = {int(pid) for pid in re.findall(r"^process (\d+) ", scenario.read_text(), re.MULTILINE)}
    for number, pid in enumerate(sorted(pids)):
        procfs.start(pid, pod_cgroup(uid(number), container_id(number)))
    return played, procfs.root


def _relayed(directory: Path, stage: Stage, count: int) -> Iterator[tuple[Stage, Arguments]]:
    """Text of another exporter."""
    path = directory / "relayed.prom"
    with path.open("w") as file:
        number = 0
        while file.tell() < count:
            file.write(f'relayed_value{{gpu="{number % _GPUS}",number="{number}"}} {number}\n')
            number += 1
    yield stage, ("--relay", str(path), "--relay-metrics")


def _kubelet_answer(directory: Path, stage: Stage, count: int) -> Iterator[tuple[Stage, Arguments]]:
    """Pods in one answer of the kubelet."""
    answer = bytearray()
    number = 0
    while len(answer) < count:
        pods = [
            message("v1.PodResources", name=f"train-{one}", namespace="ml")
            for one in range(number, number + 1000)
        ]
        number += len(pods)
        # Messages one after the other are one message with all their pods.
        answer += message("v1.ListPodResourcesResponse", pod_resources=pods).SerializeToString()
    socket = directory / "kubelet.sock"
    with kubelet(socket, {"/v1.PodResourcesLister/List": bytes(answer[:count])}):
        yield stage, ("--pod-resources-socket", str(socket))


def _state_file(directory: Path, stage: Stage, count: int) -> Iterator[tuple[Stage, Arguments]]:
    """A state file that is none."""
    path = directory / "state.json"
    path.write_bytes(b'{"format":"gputally ledger","version":1,"crc32":"00000000","state":{' + b" " * count)
    yield stage, ("--state-file", str(path))


def _accounts(directory: Path, stage: Stage, count: int) -> Iterator[tuple[Stage, Arguments]]:
    """Accounts of owners that have left, in a valid state file of this boot."""
    boot_id = read_boot_id(Path("/proc"))
    ledgers = -(-count // MOST_OWNERS)  # none has more
    gpus: dict[str, Any] = {}
    for number in range(ledgers):
        ledger = Ledger(retention_seconds=3600, max_window_seconds=60, boot_id=boot_id)
        devices = list(enumerate(stage.uuids[number::ledgers]))
        ledger.settle(
            at_us=0,
            now_seconds=time.time(),
            readings=[
                Reading(gpu=Gpu(uuid, index, "nvidia", "H100"), energy_millijoules=0)
                for index, uuid in devices
            ],
            residents=(),
            holders=[
                (devices[one % len(devices)], Owner("pod", namespace="ml", pod=f"train-{one}"))
                for one in range(MOST_OWNERS)
            ],
        )
        gpus |= ledger.state()["gpus"]
    path = directory / "state.json"
    saved = Saved({"boot_id": boot_id, "gpus": gpus}, time.time(), since_boot_us() + _VALID_US)
    path.write_bytes(encode(saved))
    yield stage, ("--state-file", str(path), "--retention", "1h")


INPUTS = (
    Input("pods of the node", "gputally.attribution.limits", "PODS", "pods", _pods),
    Input("processes on GPUs", "gputally.attribution.limits", "PROCESSES", "processes", _processes),
    Input(
        *("processes with series of their own", "gputally.ledger.accounts", "MOST_PROCESSES"),
        *("processes", _process_series),
    ),
    Input("labels of pods", "gputally.attribution.limits", "LABEL_CHARACTERS", "characters", _labels),
    Input("a valid state file", "gputally.ledger", "MOST_OWNERS", "accounts", _accounts),
    Input("relayed text", "gputally.relay.text", "MAX_BYTES", "bytes", _relayed),
    Input(
        "an answer of the kubelet",
        "gputally.attribution.kubelet_grpc",
        "_REPLY_LIMIT_BYTES",
        "bytes",
        _kubelet_answer,
    ),
    Input("a state file that is none", "gputally.ledger.state_file", "MOST_BYTES", "bytes", _state_file),
)


def chart_limit_bytes() -> int:
    """The memory limit of the exporter's container in the chart."""
    values = (ROOT / "helm/gputally/values.yaml").read_text()
    found = re.search(r"^ +limits: \{memory: (\d+)Mi\}", values, re.MULTILINE)
    assert found is not None, "the chart's first memory limit is the exporter's"
    return int(found[1]) << 20


def measure_bounds(
    directory: Path, library: Path, say: Callable[[str], None], inputs: Sequence[Input] = INPUTS
) -> list[BoundCost]:
    costs: list[BoundCost] = []
    for one in inputs:
        bound = one.bound
        cost = BoundCost(one.name, f"{one.module}.{one.constant}", one.unit, bound)
        if bound is not None:
            say(f"memory with {bound:,} {one.unit}: {one.name}")
            place = directory / f"bound-{len(costs)}"
            cost = replace(
                cost,
                peak_bytes=_peak(one, place / "at", library, bound),
                over_peak_bytes=_peak(one, place / "over", library, _OVER * bound),
            )
        costs.append(cost)
    return costs


def _peak(one: Input, directory: Path, library: Path, count: int) -> int:
    """The most memory that the exporter had in its first samples and scrapes."""
    directory.mkdir(parents=True)
    stage = set_stage(directory, library, gpus=_GPUS, processes=0)
    with running(OURS, stage, _INTERVAL_SECONDS):
        pass  # compiles the modules, which takes more memory than to run them
    with contextmanager(one.arrange)(directory, stage, count) as (arranged, arguments):
        ours = replace(OURS, command=(*OURS.command, *arguments))
        with running(ours, arranged, _INTERVAL_SECONDS) as child:
            scraper = Scraper(child.port, like_prometheus=True)
            for _ in range(SAMPLES):
                scraper.scrape()
                time.sleep(_INTERVAL_SECONDS)
            scraper.close()
            return peak_bytes(Path(f"/proc/{child.pid}/status").read_text())


def peak_bytes(status: str) -> int:
    """VmHWM, the highest resident memory, of /proc/<pid>/status."""
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024
