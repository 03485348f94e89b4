"""The choice of pod sources on each kind of host, and their rows."""

from pathlib import Path

import pytest

from gputally.attribution import PodReport
from gputally.attribution.pod_sources import POD_SOURCES, PodSourceRow, choose_pod_sources
from gputally.commands.check import check_host
from gputally.config import Config
from gputally.model import Unavailable


def config(directory: Path, **changes: object) -> Config:
    paths = {
        "pod_logs": directory / "pods",
        "container_logs": directory / "containers",
        "pod_resources_socket": directory / "kubelet.sock",
        "kubelet_pods_socket": directory / "pods-api.sock",
    }
    return Config(**{**paths, **changes})  # type: ignore[arg-type]


def chosen(settings: Config, directory: Path, **environment: str) -> list[str]:
    return [source.name for source in choose_pod_sources(settings, environment, directory / "kubelet")]


def test_a_host_without_kubernetes_has_no_pod_source(tmp_path: Path) -> None:
    assert chosen(config(tmp_path), tmp_path) == []


def test_a_node_with_a_kubelet_uses_its_sources_even_if_they_are_missing(tmp_path: Path) -> None:
    (tmp_path / "kubelet").mkdir()
    assert chosen(config(tmp_path), tmp_path) == ["pod_logs", "pod_resources"]


def test_a_pod_is_recognised_by_its_environment(tmp_path: Path) -> None:
    names = chosen(config(tmp_path), tmp_path, KUBERNETES_SERVICE_HOST="10.0.0.1", POD_NAME="gputally-x")
    assert names == ["pod_logs", "pod_resources", "own_pod"]


def test_sources_that_exist_are_used_on_any_host(tmp_path: Path) -> None:
    (tmp_path / "containers").mkdir()
    (tmp_path / "pods-api.sock").touch()
    assert chosen(config(tmp_path), tmp_path) == ["kubelet_pods", "pod_logs"]


def test_the_api_server_is_used_only_with_its_flag(tmp_path: Path) -> None:
    assert chosen(config(tmp_path, kubernetes=True, node_name="node-1"), tmp_path) == ["kubernetes"]


def test_a_source_can_be_disabled(tmp_path: Path) -> None:
    (tmp_path / "kubelet").mkdir()
    (tmp_path / "containers").mkdir()
    assert chosen(config(tmp_path, pod_resources_socket=None), tmp_path) == ["pod_logs"]
    assert chosen(config(tmp_path, pod_logs=None), tmp_path) == ["pod_resources"]


def test_pods_false_disables_all_sources(tmp_path: Path) -> None:
    (tmp_path / "kubelet").mkdir()
    assert chosen(config(tmp_path, pods=False), tmp_path, POD_NAME="x") == []


def test_a_sidecar_uses_its_own_pod_only(tmp_path: Path) -> None:
    (tmp_path / "kubelet").mkdir()
    (tmp_path / "pods-api.sock").touch()
    assert chosen(config(tmp_path, sidecar=True), tmp_path) == ["own_pod"]


def test_each_row_builds_the_source_of_its_name_best_first(tmp_path: Path) -> None:
    (tmp_path / "kubelet").mkdir()
    (tmp_path / "pods-api.sock").touch()
    settings = config(tmp_path, kubernetes=True, node_name="node-1")
    assert chosen(settings, tmp_path, POD_NAME="gputally-x") == [row.name for row in POD_SOURCES]


class Unreadable:
    def __init__(self, name: str) -> None:
        self.name = name

    def read(self) -> PodReport:
        raise Unavailable("no such socket", "mount it")

    def close(self) -> None:
        pass


@pytest.mark.parametrize("row", POD_SOURCES, ids=lambda row: row.name)
def test_check_lists_each_row_with_what_it_provides(row: PodSourceRow, tmp_path: Path) -> None:
    findings = check_host(
        [],
        procfs=tmp_path,
        sysfs=tmp_path,
        timeout_seconds=60,
        pod_sources=[Unreadable(row.name)],
        dev=tmp_path,
    )
    (finding,) = (one for one in findings if one.subject == row.name)
    assert row.provides in finding.text
    assert finding.fix == "mount it"


@pytest.mark.parametrize("row", POD_SOURCES, ids=lambda row: row.name)
def test_each_row_is_in_the_table_of_privileges(row: PodSourceRow) -> None:
    table = (Path(__file__).parents[3] / "docs/privileges.md").read_text()
    assert f"| `{row.name}` |" in table
