"""Which sources of names are used on which host."""

from pathlib import Path
from typing import cast

import pytest

from gputally.config import Config
from gputally.devices import Reader
from gputally.flags import ConfigError
from gputally.informants import choose_informants, choose_owners
from tests.support.fake_procfs import FakeProcfs


def config(folder: Path, **changes: object) -> Config:
    paths = {
        "pod_logs": folder / "pods",
        "container_logs": folder / "containers",
        "pod_resources_socket": folder / "kubelet.sock",
        "kubelet_pods_socket": folder / "pods-api.sock",
    }
    return Config(**{**paths, **changes})  # type: ignore[arg-type]


def chosen(settings: Config, folder: Path, **environment: str) -> list[str]:
    return [source.name for source in choose_informants(settings, environment, folder / "kubelet")]


def test_a_host_without_kubernetes_misses_nothing(tmp_path: Path) -> None:
    assert chosen(config(tmp_path), tmp_path) == []


def test_a_node_is_known_by_its_kubelet_and_what_is_missing_there_is_missed(tmp_path: Path) -> None:
    (tmp_path / "kubelet").mkdir()
    assert chosen(config(tmp_path), tmp_path) == ["pod_logs", "pod_resources"]


def test_a_pod_is_known_by_its_environment(tmp_path: Path) -> None:
    names = chosen(config(tmp_path), tmp_path, KUBERNETES_SERVICE_HOST="10.0.0.1", POD_NAME="gputally-x")
    assert names == ["pod_logs", "pod_resources", "own_pod"]


def test_what_is_there_is_used(tmp_path: Path) -> None:
    (tmp_path / "containers").mkdir()
    (tmp_path / "pods-api.sock").touch()
    assert chosen(config(tmp_path), tmp_path) == ["kubelet_pods", "pod_logs"]


def test_the_api_server_is_asked_only_when_asked_for_and_needs_the_nodes_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--kubernetes needs --node-name"):
        chosen(config(tmp_path, kubernetes=True), tmp_path)


def test_a_source_that_was_left_out_on_purpose_is_not_missed(tmp_path: Path) -> None:
    (tmp_path / "kubelet").mkdir()
    (tmp_path / "containers").mkdir()
    assert chosen(config(tmp_path, pod_resources_socket=None), tmp_path) == ["pod_logs"]
    assert chosen(config(tmp_path, pod_logs=None), tmp_path) == ["pod_resources"]


def test_without_pods_nobody_is_asked(tmp_path: Path) -> None:
    (tmp_path / "kubelet").mkdir()
    assert chosen(config(tmp_path, pods=False), tmp_path, POD_NAME="x") == []


def test_a_sidecar_knows_its_own_pod_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "kubelet").mkdir()
    assert chosen(config(tmp_path, sidecar=True), tmp_path) == ["own_pod"]


def test_a_sidecar_that_sees_the_host_is_refused(tmp_path: Path) -> None:
    host = FakeProcfs(tmp_path)
    reader = cast(Reader, object())
    choose_owners(config(tmp_path, sidecar=True, procfs=host.root), [reader])
    host.start(2, "0::/\n", name="kthreadd")
    with pytest.raises(ConfigError, match=r"has the host's \(hostPID\)"):
        choose_owners(config(tmp_path, sidecar=True, procfs=host.root), [reader])
