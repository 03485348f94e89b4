"""Hosts with AMD GPUs: the whole scrape, on the trees that tests/fixtures/amdgpu describes."""

from pathlib import Path

import pytest

from tests.golden.meters import running_amd
from tests.golden.scrapes import check_scrape, wait_for_meters
from tests.support.amd_trees import HOSTS, log_pods, plant
from tests.support.exporter import Exporter


@pytest.mark.parametrize("name", HOSTS)
def test_a_host_with_amd_gpus(name: str, tmp_path: Path, update_golden: bool) -> None:
    host = plant(name, tmp_path)
    arguments = (
        *("serve", "--reader", "amdgpu", "--interval", "200ms", "--hostname-override", "golden"),
        *("--metrics", "full"),  # the file shows every value that the reader fills
        *("--sysfs", str(host / "sys"), "--procfs", str(host / "proc")),
        *("--pod-logs", str(log_pods(tmp_path / "pods"))),
    )
    with running_amd(host), Exporter(tmp_path / "log", *arguments) as exporter:
        wait_for_meters(exporter)
        check_scrape(exporter, f"amd-{name}", update_golden)
