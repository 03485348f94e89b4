"""What each --compat profile adds to a scrape: two GPUs, one of them shared by two pods."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from gputally.metrics.compat import PROFILES
from tests.golden.container_hosts import HOSTS, build, gpus, pod_resources
from tests.golden.meters import play_running
from tests.golden.scrapes import GOLDEN, wait_for_meters
from tests.support.exporter import Exporter
from tools.standin.kubelet import kubelet
from tools.standin.scenario import environment

OURS = re.compile(r"^(?:# (?:HELP|TYPE) )?(?:gputally|process)_.*\n", re.MULTILINE)
SERIES = re.compile(r"^(?!#)\S.*(?= )", re.MULTILINE)
FAMILY = re.compile(r"^# TYPE (\S+)", re.MULTILINE)
# Their values depend on the moment; that they are there does not.
VOLATILE = re.compile(
    r"^(\w*(?:energy|ENERGY|start_time|_timestamp_|_duration_)\w*(?:\{.*\})?) \S+$", re.MULTILINE
)


@contextmanager
def exporter_of_pods(directory: Path, *arguments: str) -> Iterator[Exporter]:
    host = HOSTS["k3s"]
    flags = (*build(directory, host), *arguments)
    scenario = play_running(directory / "world", gpus())
    common = ("serve", "--reader", "nvml", "--interval", "200ms", "--hostname-override", "golden")
    with (
        kubelet(directory / "kubelet.sock", {"/v1.PodResourcesLister/List": pod_resources(host)}),
        Exporter(directory / "log", *common, *flags, environment=environment(scenario)) as exporter,
    ):
        wait_for_meters(exporter)
        yield exporter


def scrape(exporter: Exporter) -> str:
    """The text format; OpenMetrics must have the same series and satisfy the strict parser."""
    text = exporter.scrape()
    openmetrics = exporter.scrape(Accept="application/openmetrics-text; version=1.0.0")
    assert sum(len(family.samples) for family in parse_openmetrics(openmetrics)) == len(SERIES.findall(text))
    assert SERIES.findall(openmetrics) == SERIES.findall(text)
    return text


def steady(text: str) -> str:
    """What is not ours, without what changes from one moment to the next."""
    return VOLATILE.sub(r"\1 -", OURS.sub("", text))


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_adds_its_names(name: str, tmp_path: Path, update_golden: bool) -> None:
    with exporter_of_pods(tmp_path, "--compat", name) as exporter:
        exporter.next_snapshots(3)  # activity is measured between two readings
        text = scrape(exporter)
    golden = GOLDEN / f"compat-{name}.prom"
    if update_golden:
        golden.write_text(steady(text))
    assert steady(text) == golden.read_text()
    assert "gputally_gpu_power_watts{" in text
    assert "gputally_process_" not in text


def test_all_profiles_together_give_each_name_once(tmp_path: Path) -> None:
    with exporter_of_pods(tmp_path, "--compat", ",".join(PROFILES)) as exporter:
        exporter.next_snapshots(3)
        text = scrape(exporter)
    names = FAMILY.findall(text)
    assert len(names) == len(set(names))
    for profile in PROFILES:
        alone = set(FAMILY.findall((GOLDEN / f"compat-{profile}.prom").read_text()))
        assert alone
        assert alone <= set(names)


def test_pod_gpu_has_its_own_page(tmp_path: Path) -> None:
    with exporter_of_pods(tmp_path, "--compat", "pod-gpu") as exporter:
        exporter.next_snapshots(3)
        status, body = exporter.get("/gpu/metrics")
    assert status == 200
    assert steady(body.decode()) == (GOLDEN / "compat-pod-gpu.prom").read_text()


def test_without_profiles_that_page_does_not_exist(tmp_path: Path) -> None:
    with exporter_of_pods(tmp_path) as exporter:
        assert exporter.get("/gpu/metrics")[0] == 404
