"""tools/cluster says what is missing before it starts anything."""

import ipaddress
import tempfile
from pathlib import Path

import pytest

from tools.progress import Failed
from tools.test_cluster import layout, preflight
from tools.test_cluster.layout import Layout


def test_its_addresses_lie_in_the_block_that_is_checked() -> None:
    for network in (layout.POD_ADDRESSES, layout.SERVICE_ADDRESSES):
        assert ipaddress.ip_network(network).subnet_of(layout.ADDRESSES)  # type: ignore[arg-type]
    assert ipaddress.ip_address(layout.API_SERVICE_ADDRESS) in ipaddress.ip_network(layout.SERVICE_ADDRESSES)
    assert ipaddress.ip_address(layout.BRIDGE_ADDRESS) in ipaddress.ip_network(layout.POD_ADDRESSES)
    link = ipaddress.ip_network(f"{layout.HOST_ADDRESS}/{layout.LINK_LENGTH}", strict=False)
    assert ipaddress.ip_address(layout.NODE_ADDRESS) in link
    assert not link.overlaps(ipaddress.ip_network(layout.POD_ADDRESSES))


def test_a_route_into_its_addresses_is_seen_and_others_are_not() -> None:
    routes = [
        "default",
        "10.0.0.0/8",
        "192.168.1.7",
        "198.18.0.0/16",
        "198.19.255.255",
        "fd00::/64",
        "0.0.0.0/1",
    ]

    assert preflight.overlapping(routes) == ["198.18.0.0/16", "198.19.255.255"]


@pytest.mark.parametrize("folder", ["/var/tmp/cluster", "/run/cluster"])
def test_a_folder_that_the_cluster_could_not_see_is_refused(folder: str) -> None:
    (lack,) = preflight.folder_lacks(Layout(Path(folder)))
    assert folder in lack
    assert "--folder" in lack


def test_a_cache_that_the_cluster_could_not_use_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUTALLY_CACHE", "/var/cache/gputally")
    (lack,) = preflight.folder_lacks(Layout(Path("/srv/cluster")))
    assert "set GPUTALLY_CACHE" in lack


def test_a_folder_whose_sockets_would_have_too_long_a_path_is_refused() -> None:
    assert list(preflight.folder_lacks(Layout(Path("/srv") / ("x" * 60)))) == []
    (lack,) = preflight.folder_lacks(Layout(Path("/srv") / ("x" * 90)))
    assert "too long" in lack


def test_a_folder_with_files_of_somebody_else_is_refused() -> None:
    # A short path, so that it is not refused for its length.
    with tempfile.TemporaryDirectory() as folder:
        place = Layout(Path(folder))
        assert list(preflight.folder_lacks(place)) == []
        (place.folder / "letters").touch()

        (lack,) = preflight.folder_lacks(place)

        assert "not a cluster's" in lack
        place.plan.touch()
        assert list(preflight.folder_lacks(place)) == []


def test_missing_cgroups_are_named_one_hierarchy_each(tmp_path: Path) -> None:
    for controller in ("cpu", "cpuacct", "cpuset", "devices", "freezer", "pids"):
        (tmp_path / controller).mkdir()

    (lack,) = preflight.cgroup_lacks(tmp_path)

    assert "for memory:" in lack
    (tmp_path / "memory").mkdir()
    assert list(preflight.cgroup_lacks(tmp_path)) == []


def test_missing_controllers_are_named_in_a_unified_hierarchy(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory\n")

    (lack,) = preflight.cgroup_lacks(tmp_path)

    assert "for pids:" in lack
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    assert list(preflight.cgroup_lacks(tmp_path)) == []


def test_the_first_lack_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)

    with pytest.raises(Failed) as failure:
        preflight.check(Layout(Path("/srv/cluster")))

    assert str(failure.value) == "tools/cluster: it needs root, for namespaces and mounts: run it as root"


def test_a_tool_that_is_not_there_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setenv("PATH", "/nowhere")

    with pytest.raises(Failed, match="there is no `ip`: install iproute2"):
        preflight.check(Layout(Path("/srv/cluster")))
