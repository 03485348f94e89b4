"""Real control planes: on this machine alone, beside each other, and gone afterwards."""

import contextlib
import json
import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import Failed
from tools.dependencies import programs
from tools.servers import control_plane
from tools.servers.control_plane import ControlPlane
from tools.servers.waiting import wait_until

PROGRAMS = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane.running(tmp_path_factory.mktemp("plane")) as running:
        yield running


def processes_of(directory: Path) -> list[str]:
    """What runs on this directory."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            arguments = file.read_text().split("\0")
            if any(str(directory) in argument for argument in arguments[1:]):
                found.append(Path(arguments[0]).name)
    return found


def names(plane: ControlPlane, resource: str) -> list[str]:
    items = plane.api(f"/api/v1/namespaces/default/{resource}")["items"]
    return [item["metadata"]["name"] for item in items]


def test_kubectl_needs_only_its_environment(plane: ControlPlane) -> None:
    assert plane.kubectl("create", "configmap", "one", "--from-literal=a=b") == "configmap/one created\n"
    assert "one" in names(plane, "configmaps")


def test_a_refusal_of_the_server_is_reported(plane: ControlPlane) -> None:
    with pytest.raises(Failed, match="NotFound"):
        plane.api("/api/v1/namespaces/none")
    with pytest.raises(Failed, match=r"kubectl get nonesuch: .*the server doesn't have a resource type"):
        plane.kubectl("get", "nonesuch")


def test_an_account_has_only_the_permissions_of_its_role(plane: ControlPlane) -> None:
    plane.kubectl("create", "serviceaccount", "reader")
    token = plane.kubectl("create", "token", "reader").strip()
    request = urllib.request.Request(f"{plane.url}/api/v1/pods", headers={"Authorization": f"Bearer {token}"})
    tls = ssl.create_default_context(cafile=str(plane.authority))

    def status() -> int:
        try:
            with urllib.request.urlopen(request, context=tls) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    assert status() == 403
    plane.kubectl("create", "clusterrole", "reading", "--verb=list", "--resource=pods")
    plane.kubectl(
        "create", "clusterrolebinding", "reading", "--clusterrole=reading", "--serviceaccount=default:reader"
    )
    wait_until(lambda: status() == 200)


def test_objects_owned_by_a_deleted_object_are_deleted(plane: ControlPlane) -> None:
    plane.kubectl("create", "configmap", "owner")
    uid = plane.api("/api/v1/namespaces/default/configmaps/owner")["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}
    owned = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "owned", "ownerReferences": [owner]},
    }
    plane.kubectl("create", "--filename=-", given=json.dumps(owned))
    plane.kubectl("delete", "configmap", "owner")
    wait_until(lambda: "owned" not in names(plane, "configmaps"))


def test_a_second_control_plane_has_its_own_objects_and_stops_after_an_error(
    plane: ControlPlane, tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt), control_plane.running(tmp_path, scheduler=True) as second:  # noqa: PT012
        second.kubectl("create", "configmap", "second")
        assert "second" in names(second, "configmaps")
        assert "second" not in names(plane, "configmaps")
        assert sorted(processes_of(tmp_path)) == PROGRAMS
        raise KeyboardInterrupt
    assert processes_of(tmp_path) == []
    assert plane.responds("/readyz")


def test_a_failed_start_names_the_program_and_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs.path("kube-apiserver")  # raises Missing, which would be taken for the failure
    monkeypatch.setattr(control_plane, "_SERVICE_ADDRESSES", "nowhere")
    with (
        pytest.raises(Failed, match=r"kube-apiserver ended \(exit code 1\)"),
        control_plane.running(tmp_path),
    ):
        pass
    assert processes_of(tmp_path) == []
