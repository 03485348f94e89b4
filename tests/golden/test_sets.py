"""How many series each set has: eight H100 with NVLink, and four pods."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from gputally.metrics.sets import SETS
from gputally.model import Labelled, Process, Reading
from tests.golden.meters import play_running
from tests.golden.scrapes import GOLDEN, check_scrape, wait_for_meters
from tests.support.exporter import Exporter, Samples, parse_samples
from tests.support.worlds import world
from tools.standin.procfs import FakeProcfs, container_id, uid
from tools.standin.scenario import environment

GPU_OF = {"train-0": 0, "train-1": 1, "infer-0": 2, "notebook-7": 2}
"""The GPU on which each pod has a process."""
ERROR_TYPES = ("replay", "recovery", "crc_flit", "crc_data", "ecc_data")
"""All that an H100 has."""
LIMITS = {"core": (26, 12), "standard": (64, 12)}
"""The most series of a GPU, and of a pod on a GPU."""
MOST_OF_A_NODE = 600
_GIB = 2**30


def node() -> tuple[Reading, ...]:
    readings = []
    for reading in world("h100", 8, faults=()):
        processes = [
            Process(5000 + number, "compute", "python3", 4 * _GIB)
            for number, gpu in enumerate(GPU_OF.values())
            if gpu == reading.gpu.index
        ]
        errors: Labelled = {(str(link), kind): 0.0 for link in range(18) for kind in ERROR_TYPES}
        readings.append(
            replace(reading, processes=tuple(processes), process_samples=(), nvlink_errors=errors)
        )
    return tuple(readings)


def build(directory: Path) -> tuple[str, ...]:
    """The trees of the node, and the flags that point to them."""
    proc = FakeProcfs(directory / "proc")
    for number, pod in enumerate(GPU_OF):
        pod_uid, container = uid(0xA0 + number), container_id(0xA0 + number)
        slice_name = f"kubepods-pod{pod_uid.replace('-', '_')}.slice"
        proc.start(5000 + number, f"0::/kubepods.slice/{slice_name}/cri-containerd-{container}.scope\n")
        (directory / "pods" / f"team-a_{pod}_{pod_uid}" / "main").mkdir(parents=True)
        (directory / "containers").mkdir(exist_ok=True)
        (directory / "containers" / f"{pod}_team-a_main-{container}.log").touch()
    return (
        *("--procfs", str(proc.root), "--pod-logs", str(directory / "pods")),
        *("--container-logs", str(directory / "containers"), "--pod-resources-socket", "none"),
    )


@pytest.fixture(params=SETS)
def scraped(request: pytest.FixtureRequest, tmp_path: Path, update_golden: bool) -> tuple[str, Samples]:
    """The set, and a scrape of it, which is compared with a file."""
    name = request.param
    scenario = play_running(tmp_path / "world", node())
    arguments = (
        *("serve", "--reader", "nvml", "--interval", "200ms", "--hostname-override", "golden"),
        *("--metrics", name, *build(tmp_path)),
    )
    with Exporter(tmp_path / "log", *arguments, environment=environment(scenario)) as exporter:
        if name != "core":
            wait_for_meters(exporter)
        exporter.wait_until(
            lambda: len(exporter.samples().get("gputally_pod_active", {})) == 4, "all pods are found"
        )
        check_scrape(exporter, f"set-{name}", update_golden, whole_ledger=name != "core")
    return name, parse_samples((GOLDEN / f"set-{name}.prom").read_text().replace(" -\n", " 0\n"))


def test_a_set_keeps_to_its_number_of_series(scraped: tuple[str, Samples]) -> None:
    name, samples = scraped
    of_gpu: Counter[str] = Counter()
    of_pod: Counter[tuple[str, ...]] = Counter()
    for metric, values in samples.items():
        for labels in values:
            if metric.startswith("gputally_gpu_"):
                of_gpu[labels[0]] += 1
            elif metric.startswith("gputally_pod_") and metric != "gputally_pod_info":
                of_pod[labels[:5]] += 1
    assert (len(of_gpu), len(of_pod)) == (8, 4)
    if name in LIMITS:
        most_of_gpu, most_of_pod = LIMITS[name]
        assert max(of_gpu.values()) <= most_of_gpu
        assert max(of_pod.values()) <= most_of_pod
        assert sum(map(len, samples.values())) < MOST_OF_A_NODE


def test_each_set_has_the_series_of_the_smaller_one() -> None:
    names = [
        set(parse_samples((GOLDEN / f"set-{name}.prom").read_text().replace(" -\n", " 0\n"))) for name in SETS
    ]
    assert names[0] < names[1] < names[2]
