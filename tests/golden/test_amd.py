"""Hosts with AMD GPUs: the whole scrape, on the trees that tests/fixtures/amdgpu describes."""

from pathlib import Path

import pytest

from tests.golden.test_golden import check_scrape
from tests.support.amd_trees import HOSTS, plant
from tests.support.exporter import Exporter
from tests.support.fake_procfs import uid


def log_pods(folder: Path) -> Path:
    """The kubelet's folders of the pods whose processes are in the trees."""
    for namespace, pod, container, number in (
        ("team-a", "vllm-0", "server", 0xA1),
        ("team-b", "train-0", "main", 0xB2),
        ("team-c", "notebook-7", "jupyter", 0xC3),
    ):
        (folder / f"{namespace}_{pod}_{uid(number)}" / container).mkdir(parents=True)
    return folder


@pytest.mark.parametrize("name", HOSTS)
def test_a_host_with_amd_gpus(name: str, tmp_path: Path, update_golden: bool) -> None:
    host = plant(name, tmp_path)
    arguments = (
        *("serve", "--reader", "amdgpu", "--interval", "200ms", "--hostname-override", "golden"),
        *("--sysfs", str(host / "sys"), "--procfs", str(host / "proc")),
        *("--pod-logs", str(log_pods(tmp_path / "pods"))),
    )
    with Exporter(tmp_path / "log", *arguments) as exporter:
        check_scrape(exporter, f"amd-{name}", update_golden)
