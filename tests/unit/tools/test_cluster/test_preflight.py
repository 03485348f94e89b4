"""tools/cluster says what is missing before it starts anything."""

import ipaddress
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import Failed
from tools.test_cluster import layout, preflight
from tools.test_cluster.command import main
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
        # As a VPN has it that takes everything.
        "128.0.0.0/1",
    ]

    assert preflight.overlapping(routes) == ["198.18.0.0/16", "198.19.255.255"]


@pytest.mark.parametrize("directory", ["/var/tmp/cluster", "/run/cluster"])
def test_a_directory_that_the_cluster_could_not_see_is_refused(directory: str) -> None:
    (lack,) = preflight.directory_lacks(Layout(Path(directory)))
    assert directory in lack
    assert "--directory" in lack


def test_a_cache_that_the_cluster_could_not_use_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUTALLY_CACHE", "/var/cache/gputally")
    (lack,) = preflight.directory_lacks(Layout(Path("/srv/cluster")))
    assert "set GPUTALLY_CACHE" in lack


def test_a_directory_whose_sockets_would_have_too_long_a_path_is_refused() -> None:
    assert list(preflight.directory_lacks(Layout(Path("/srv") / ("x" * 60)))) == []
    (lack,) = preflight.directory_lacks(Layout(Path("/srv") / ("x" * 90)))
    assert "too long" in lack


def test_a_directory_with_files_of_somebody_else_is_refused() -> None:
    # A short path, so that it is not refused for its length.
    with tempfile.TemporaryDirectory() as directory:
        place = Layout(Path(directory))
        assert list(preflight.directory_lacks(place)) == []
        (place.directory / "letters").touch()

        (lack,) = preflight.directory_lacks(place)

        assert "choose another --directory" in lack
        place.plan.touch()
        assert list(preflight.directory_lacks(place)) == []


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


def test_a_disk_on_which_the_kubelet_would_run_no_pod_is_refused() -> None:
    directory, total = Path("/srv/cluster"), 1000 << 30

    (lack,) = preflight.room_lacks(directory, total, 0, 19 << 30)

    assert "only 20.4 GB are free where /srv/cluster is" in lack
    assert lack.endswith(": free 21.5 GB")
    assert list(preflight.room_lacks(directory, total, 0, 20 << 30)) == []
    assert len(list(preflight.room_lacks(directory, 3 << 30, 0, 1 << 30))) == 1


@pytest.mark.parametrize("command", ["up", "down", "status"])
def test_whoever_is_not_root_is_told_so_in_one_line(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr("signal.signal", lambda *_: None)

    assert main([command]) == 1

    said = "tools/cluster needs root for namespaces and mounts: run it as root\n"
    assert capsys.readouterr() == ("", said)


class Machine:
    """What preflight finds: the commands of this directory, which do and print what they are told."""

    def __init__(self, directory: Path) -> None:
        self.commands = directory / "bin"
        self.commands.mkdir()
        self.place = Layout(directory / "cluster")
        for name in (*preflight._PACKAGES, "nft"):
            self.give(name, "exit 0")

    def give(self, name: str, script: str) -> None:
        file = self.commands / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    def refusal(self) -> str:
        with pytest.raises(Failed) as failure:
            preflight.check(self.place)
        return str(failure.value)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    # A short path, so that it is not refused for its length.
    with tempfile.TemporaryDirectory() as directory:
        found = Machine(Path(directory))
        monkeypatch.setenv("PATH", str(found.commands))
        monkeypatch.setattr("os.geteuid", lambda: 0)
        monkeypatch.setattr(preflight, "cgroup_lacks", lambda _: iter(()))
        monkeypatch.setattr(preflight, "room_lacks", lambda *_: iter(()))
        monkeypatch.setattr("tools.dependencies.programs.path", found.commands.joinpath)
        yield found


def test_a_machine_that_has_all_is_not_refused(machine: Machine) -> None:
    preflight.check(machine.place)

    assert not machine.place.directory.exists()
    assert [file.name for file in machine.place.directory.parent.iterdir()] == ["bin"]


@pytest.mark.parametrize(
    ("program", "package"),
    [("ip", "iproute2"), ("mount", "mount"), ("unshare", "util-linux"), ("setpriv", "util-linux")],
)
def test_a_tool_that_is_not_there_is_named_with_its_package(
    machine: Machine, program: str, package: str
) -> None:
    (machine.commands / program).unlink()

    assert machine.refusal() == f"tools/cluster: there is no `{program}`: install {package}"


@pytest.mark.parametrize(
    ("trial", "words"),
    [
        ("*true", "no namespaces of its own (a container needs --privileged)"),
        ("*mount*overlay*", "no overlay file system in {parent} (CONFIG_OVERLAY_FS)"),
        ("*veth*", "no virtual links (CONFIG_VETH)"),
        ("*bridge*", "no bridges (CONFIG_BRIDGE)"),
        ("*nft*", "no packet filter (CONFIG_NF_TABLES)"),
    ],
)
def test_what_the_kernel_lacks_is_one_line_with_its_own_words(
    machine: Machine, trial: str, words: str
) -> None:
    machine.give(
        "unshare", f'case "$*" in {trial}) printf "it does\\n not work\\n" >&2; exit 1;; esac; exit 0'
    )

    wanted = words.format(parent=machine.place.directory.parent)
    assert machine.refusal() == f"tools/cluster: the kernel gives {wanted}: it does not work"


def test_addresses_that_are_taken_are_named(machine: Machine) -> None:
    routes = [{"dst": "198.18.0.0/24", "dev": layout.INTERFACE}, {"dst": "198.19.3.0/24", "dev": "tun0"}]
    machine.give("ip", f"echo '{json.dumps(routes)}'")

    taken = "the cluster's addresses 198.18.0.0/15 are taken, by a route to 198.19.3.0/24 (tun0)"
    assert machine.refusal() == f"tools/cluster: {taken}: remove that route"
