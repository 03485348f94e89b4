"""Who is on the GPUs of every kind of host: the whole scrape, from fixture trees and a real gRPC socket."""

from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.golden.container_hosts import HOSTS, build, gpus, pod_resources
from tests.golden.meters import play_running
from tests.golden.scrapes import check_scrape, wait_for_meters
from tests.support.exporter import Exporter
from tools.standin.kubelet import kubelet
from tools.standin.scenario import environment


@pytest.mark.parametrize("name", HOSTS)
def test_every_process_has_its_owner(name: str, tmp_path: Path, update_golden: bool) -> None:
    host = HOSTS[name]
    flags = build(tmp_path, host)
    scenario = play_running(tmp_path / "world", gpus())
    answers = {"/v1.PodResourcesLister/List": pod_resources(host)} if host.gives else {}
    arguments = ("serve", "--reader", "nvml", "--interval", "200ms", "--hostname-override", "golden", *flags)
    with (
        kubelet(tmp_path / "kubelet.sock", answers) if answers else nullcontext(),
        Exporter(tmp_path / "log", *arguments, environment=environment(scenario)) as exporter,
    ):
        wait_for_meters(exporter)
        check_scrape(exporter, f"host-{name}", update_golden)
