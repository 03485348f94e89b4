"""The parts that `serve` builds from the settings."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from dashboards.links import uid
from gputally import app
from gputally.app import build_endpoints, build_upstream
from gputally.attribution.sidecar import SidecarOwners
from gputally.config import POD_GPU_PATH, Config
from gputally.devices.host import VendorOnHost
from gputally.devices.vendors import AMD, NVIDIA
from gputally.flags import ConfigError
from gputally.metrics.compat import PROFILES
from gputally.model import Owner, PodInfo, ProcessCharge, Snapshot, SourceState, Unknown, Use
from gputally.pages import Endpoints
from tests.support.worlds import world
from tools.standin.procfs import FakeProcfs


def busy_node(gpus: int = 8, pods_on_each: int = 8) -> Snapshot:
    """Every GPU is shared by as many pods, each with one process."""
    readings = world("h100", gpus, faults=())
    placed = [
        (
            reading.gpu,
            Owner("pod", namespace="team", pod=f"job-{reading.gpu.index}-{number}", container="main"),
        )
        for reading in readings
        for number in range(pods_on_each)
    ]
    return Snapshot(
        taken_at_seconds=1000.0,
        age_seconds=0,
        readings=readings,
        sources=(SourceState(name="nvml", up=True),),
        uses=tuple(Use(gpu.index, gpu.uuid, owner, 1, 2**30, 0.1, 0.1, 0.0, 0.0) for gpu, owner in placed),
        processes=tuple(
            ProcessCharge(
                gpu_index=gpu.index,
                uuid=gpu.uuid,
                pid=pid,
                name="python3",
                owner=owner,
                active=True,
                energy_millijoules=pid,
            )
            for pid, (gpu, owner) in enumerate(placed, 1000)
        ),
        pods=tuple(PodInfo(owner.namespace, owner.pod) for _, owner in placed),
    )


def body(endpoints: Endpoints, path: str = "/metrics", *, openmetrics: bool = False) -> str:
    return endpoints.by_path[path].respond(openmetrics, False).body.decode()


def test_all_profiles_of_a_busy_node_are_one_valid_scrape() -> None:
    endpoints = build_endpoints(Config(compat=tuple(PROFILES)))
    endpoints.publish(busy_node())
    names = re.findall(r"^# TYPE (\S+)", body(endpoints), re.MULTILINE)
    assert len(names) == len(set(names))
    families = list(parse_openmetrics(body(endpoints, openmetrics=True)))
    assert len(families) == len(names)
    (energy,) = (family for family in families if family.name == "my_gpu_process_energy_joules")
    assert len(energy.samples) == 64


@pytest.mark.parametrize("process_metrics", [True, False])
def test_process_metrics_exist_only_on_request(process_metrics: bool) -> None:
    endpoints = build_endpoints(Config(metric_prefix="mine", process_metrics=process_metrics))
    endpoints.publish(busy_node(gpus=1))
    assert "\nmine_energy_joules{" in body(endpoints)
    assert ("\ngputally_process_energy_joules_total{" in body(endpoints)) == process_metrics


def test_by_default_there_is_one_page_with_our_names() -> None:
    endpoints = build_endpoints(Config(metrics_path="/m"))
    endpoints.publish(busy_node(gpus=1))
    live = [path for path in endpoints.by_path if path.startswith(("/live.", "/api/v1/"))]
    assert len(live) == 6
    assert [path for path in endpoints.by_path if path not in live] == ["/", "/m"]
    assert list(build_endpoints(Config(metrics_path="/m", live_page=False)).by_path) == ["/", "/m"]
    assert set(re.findall(r"^([a-z]+)_", body(endpoints, "/m"), re.MULTILINE)) == {"gputally", "process"}


def snapshot_document(config: Config) -> dict[str, Any]:
    snapshot = busy_node(gpus=1)
    (gpu,) = (reading.gpu for reading in snapshot.readings)
    others = (Owner("docker", "docker/c41d7be09a52"), Unknown("exited"))
    endpoints = build_endpoints(config)
    endpoints.publish(
        replace(snapshot, uses=(*snapshot.uses, *(Use(gpu.index, gpu.uuid, one, 1) for one in others)))
    )
    document: dict[str, Any] = json.loads(body(endpoints, "/api/v1/snapshot"))
    return document


def test_the_live_page_names_no_owner_and_process_that_the_metrics_do_not_name() -> None:
    def kinds(**settings: Any) -> set[str]:
        document = snapshot_document(Config(**settings))
        return {owner["kind"] for gpu in document["gpus"] for owner in gpu["owners"]}

    assert kinds() == {"pod", "docker", "unknown"}
    assert kinds(metrics_exclude=("pods",)) == {"docker", "unknown"}
    assert kinds(metrics_exclude=("host", "unattributed")) == {"pod"}
    for compat in ((), ("process-energy",)):
        assert "python" not in json.dumps(snapshot_document(Config(compat=compat)))
    assert "python" in json.dumps(snapshot_document(Config(process_metrics=True)))


def test_the_live_page_links_to_the_dashboards_in_grafana() -> None:
    assert snapshot_document(Config())["links"] == []
    config = Config(grafana_url="https://grafana.example/g", node_name="gpu node/7")
    assert [link["url"] for link in snapshot_document(config)["links"]] == [
        f"https://grafana.example/g/d/{uid('node')}?var-node=gpu%20node%2F7",
        f"https://grafana.example/g/d/{uid('fleet')}",
    ]


def test_the_pod_gpu_page_has_its_names_only() -> None:
    endpoints = build_endpoints(Config(compat=("pod-gpu", "purplepill")))
    endpoints.publish(busy_node(gpus=1))
    assert set(re.findall(r"^([a-zA-Z]+)_", body(endpoints, POD_GPU_PATH), re.MULTILINE)) == {"dcgm"}
    assert "\ndcgm_gpu_temp{" in body(endpoints)


def test_relayed_series_replace_the_pod_gpu_page(tmp_path: Path) -> None:
    config = Config(compat=("pod-gpu",), relay=str(tmp_path / "x.prom"))
    upstream = build_upstream(config)
    endpoints = build_endpoints(config, upstream)
    endpoints.publish(busy_node(gpus=1))
    assert endpoints.by_path[POD_GPU_PATH].respond(False, False).status == 503
    assert "\ndcgm_gpu_temp{" in body(endpoints)
    assert upstream.state().name == "relay"


def test_an_invalid_relay_is_refused_with_its_flag() -> None:
    with pytest.raises(ConfigError, match=r"^--relay: "):
        build_upstream(Config(relay="gopher://x"))


def test_the_name_of_the_node_is_the_hostname_of_other_tools() -> None:
    settings = Config(compat=("purplepill",), node_name="node-7")
    for config, name in ((settings, "node-7"), (replace(settings, hostname_override="mine"), "mine")):
        endpoints = build_endpoints(config)
        endpoints.publish(busy_node(gpus=1))
        assert f'Hostname="{name}"' in body(endpoints)


def test_a_sidecar_with_the_hosts_processes_is_refused(tmp_path: Path) -> None:
    host = FakeProcfs(tmp_path)
    settings = Config(sidecar=True, procfs=host.root)
    assert isinstance(app._owners(settings), SidecarOwners)
    host.start(2, "0::/\n", name="kthreadd")
    with pytest.raises(ConfigError, match="hostPID"):
        app._owners(settings)


@pytest.mark.parametrize(("seconds", "warnings"), [(5, 0), (12, 0), (30, 1)])
def test_an_interval_that_is_longer_than_the_drivers_samples_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, seconds: float, warnings: int
) -> None:
    host = (
        VendorOnHost(NVIDIA, ("0000:01:00.0",), "580.95.05"),
        VendorOnHost(AMD, ("0000:02:00.0",), "amdgpu"),
    )
    monkeypatch.setattr(app, "read_host", lambda *_: host)
    with caplog.at_level("WARNING"):
        app._log_start(Config(interval_seconds=seconds), [], "http://127.0.0.1:9400")
    found = [record.message for record in caplog.records]
    assert len(found) == warnings
    assert all("NVIDIA" in line for line in found)


def narrowed(endpoints: Endpoints, query: str) -> str:
    response = endpoints.by_path["/metrics"].narrowed(query).respond(False, False)
    return b"".join((response.body, *response.more)).decode()


def test_a_scrape_can_have_some_groups_and_profiles() -> None:
    endpoints = build_endpoints(Config(compat=("dcgm",), metrics="core"))
    endpoints.publish(busy_node(gpus=1))
    power = narrowed(endpoints, "collect[]=power")
    assert re.findall(r"^# TYPE (\S+)", power, re.MULTILINE) == ["gputally_gpu_power_watts"]
    assert "\nDCGM_FI_DEV_GPU_TEMP{" in narrowed(endpoints, "collect[]=dcgm")
    without = narrowed(endpoints, "exclude[]=dcgm&exclude[]=pods")
    assert "\ngputally_gpu_up{" in without
    assert not re.search("DCGM|gputally_pod", without)
    assert "modes" in narrowed(endpoints, "collect[]=modes"), "core does not have it"
