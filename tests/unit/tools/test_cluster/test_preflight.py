"""tools/cluster says what is missing before it starts anything."""

import ipaddress
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from tools import Missing
from tools.test_cluster import cluster, layout, preflight
from tools.test_cluster.command import main
from tools.test_cluster.layout import Layout


def test_the_clusters_addresses_are_in_the_checked_block() -> None:
    for network in (layout.POD_ADDRESSES, layout.SERVICE_ADDRESSES):
        assert ipaddress.ip_network(network).subnet_of(layout.ADDRESSES)  # type: ignore[arg-type]
    assert ipaddress.ip_address(layout.API_SERVICE_ADDRESS) in ipaddress.ip_network(layout.SERVICE_ADDRESSES)
    assert ipaddress.ip_address(layout.BRIDGE_ADDRESS) in ipaddress.ip_network(layout.POD_ADDRESSES)
    link = ipaddress.ip_network(f"{layout.HOST_ADDRESS}/{layout.LINK_LENGTH}", strict=False)
    assert ipaddress.ip_address(layout.NODE_ADDRESS) in link
    assert not link.overlaps(ipaddress.ip_network(layout.POD_ADDRESSES))


def test_a_route_into_its_addresses_is_found() -> None:
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
def test_a_directory_invisible_to_the_cluster_is_refused(directory: str) -> None:
    (lack,) = preflight.directory_lacks(Layout(Path(directory)))
    assert directory in lack
    assert "--directory" in lack


def test_a_cache_unusable_for_the_cluster_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUTALLY_CACHE", "/var/cache/gputally")
    (lack,) = preflight.directory_lacks(Layout(Path("/srv/cluster")))
    assert "set GPUTALLY_CACHE" in lack


def test_a_directory_with_too_long_socket_paths_is_refused() -> None:
    assert list(preflight.directory_lacks(Layout(Path("/srv") / ("x" * 60)))) == []
    (lack,) = preflight.directory_lacks(Layout(Path("/srv") / ("x" * 90)))
    assert "too long" in lack


def test_a_directory_with_other_files_is_refused() -> None:
    # A short path, so that it is not refused for its length.
    with tempfile.TemporaryDirectory() as directory:
        place = Layout(Path(directory))
        assert list(preflight.directory_lacks(place)) == []
        (place.directory / "letters").touch()

        (lack,) = preflight.directory_lacks(place)

        assert "choose another --directory" in lack
        place.plan.touch()
        assert list(preflight.directory_lacks(place)) == []


def test_missing_cgroup_hierarchies_are_named(tmp_path: Path) -> None:
    for controller in ("cpu", "cpuacct", "cpuset", "devices", "freezer", "pids"):
        (tmp_path / controller).mkdir()

    (lack,) = preflight.cgroup_lacks(tmp_path)

    assert "for memory:" in lack
    (tmp_path / "memory").mkdir()
    assert list(preflight.cgroup_lacks(tmp_path)) == []


class Unified:
    """A /sys/fs/cgroup of cgroup v2."""

    def __init__(self, directory: Path, available: str, enabled: str) -> None:
        self.directory = directory
        (directory / "cgroup.controllers").write_text(f"{available}\n")
        self.enabled = directory / "cgroup.subtree_control"
        self.enabled.write_text(f"{enabled}\n")

    def of_a_container(self) -> Self:
        """Every cgroup but the root of the hierarchy has a type."""
        (self.directory / "cgroup.type").write_text("domain\n")
        return self


EVERYTHING = "cpuset cpu io memory hugetlb pids rdma misc"


def test_missing_controllers_are_named_in_a_unified_hierarchy(tmp_path: Path) -> None:
    (lack,) = preflight.cgroup_lacks(Unified(tmp_path, "cpuset cpu io memory", "cpu memory").directory)

    assert "for pids:" in lack
    assert list(preflight.cgroup_lacks(Unified(tmp_path, "cpuset cpu io memory pids", "").directory)) == []


def test_in_a_container_every_controller_must_be_enabled(tmp_path: Path) -> None:
    part = Unified(tmp_path, EVERYTHING, "cpu memory").of_a_container()

    (lack,) = preflight.cgroup_lacks(part.directory)

    assert lack.endswith("start it with --cgroupns=host")
    part.enabled.write_text(EVERYTHING)
    assert list(preflight.cgroup_lacks(part.directory)) == []


@pytest.mark.parametrize("kind", ["unified", "legacy"])
def test_cgroups_that_cannot_be_written_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    if kind == "unified":
        Unified(tmp_path, EVERYTHING, EVERYTHING)
    else:
        for controller in preflight._CONTROLLERS:
            (tmp_path / controller).mkdir()
            (tmp_path / controller / "cgroup.procs").touch()
    # As access(2) answers on a file system that is mounted read-only.
    monkeypatch.setattr("os.access", lambda *_: False)

    (lack,) = preflight.cgroup_lacks(tmp_path)

    assert lack.startswith(f"cgroups cannot be made in {tmp_path}")


def test_in_a_unified_hierarchy_the_kubelets_controllers_are_enabled_for_its_cgroup(tmp_path: Path) -> None:
    hierarchy = Unified(tmp_path, EVERYTHING, "memory pids")

    cluster.make_cgroup(tmp_path)

    assert hierarchy.enabled.read_text() == "+cpu +cpuset +hugetlb"
    assert (tmp_path / layout.CGROUP).is_dir()


def test_enabled_controllers_are_left_unchanged(tmp_path: Path) -> None:
    hierarchy = Unified(tmp_path, "cpuset cpu io memory pids", "cpuset cpu memory pids")

    cluster.make_cgroup(tmp_path)

    assert hierarchy.enabled.read_text() == "cpuset cpu memory pids\n"
    assert (tmp_path / layout.CGROUP).is_dir()


def test_a_cgroup_is_created_in_each_legacy_hierarchy(tmp_path: Path) -> None:
    for name in ("cpu", "memory", "unified"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup.procs").touch()
    # The unified hierarchy of a hybrid host has none of the controllers.
    (tmp_path / "unified" / "cgroup.controllers").write_text("\n")

    cluster.make_cgroup(tmp_path)

    made = {path.parent.name for path in tmp_path.glob(f"*/{layout.CGROUP}")}
    assert made == {"cpu", "memory", "unified"}


@pytest.mark.parametrize(
    ("user", "uid_map", "fix"),
    [
        (0, "         0          0 4294967295\n", None),
        (1000, "         0          0 4294967295\n", "run it as root"),
        # The root of a user namespace: of `unshare --map-root-user`, and of a container of rootless Podman.
        (0, "         0       1000          1\n", "--userns=host"),
        (0, "         0       1000          1\n         1     100000      65536\n", "--userns=host"),
    ],
)
def test_only_root_of_the_machine_can_start_a_cluster(user: int, uid_map: str, fix: str | None) -> None:
    lacks = list(preflight.user_lacks(user, uid_map))

    assert lacks == [] if fix is None else fix in lacks[0]


def test_a_disk_on_which_the_kubelet_would_evict_pods_is_refused() -> None:
    directory, total = Path("/srv/cluster"), 1000 << 30

    (lack,) = preflight.room_lacks(directory, total, 0, 19 << 30)

    assert "only 20.4 GB are free where /srv/cluster is" in lack
    assert lack.endswith(": free 21.5 GB")
    assert list(preflight.room_lacks(directory, total, 0, 20 << 30)) == []
    assert len(list(preflight.room_lacks(directory, 3 << 30, 0, 1 << 30))) == 1


@pytest.mark.parametrize("command", ["up", "down", "status"])
def test_without_root_the_error_is_one_line(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr("signal.signal", lambda *_: None)

    assert main([command]) == 1

    said = "tools/cluster: a cluster needs root for namespaces and mounts: run it as root\n"
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
        with pytest.raises(Missing) as failure:
            preflight.check(self.place)
        return str(failure.value)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    # A short path, so that it is not refused for its length.
    with tempfile.TemporaryDirectory() as directory:
        found = Machine(Path(directory))
        monkeypatch.setenv("PATH", str(found.commands))
        monkeypatch.setenv("GPUTALLY_CACHE", directory)
        for satisfied in ("user_lacks", "cgroup_lacks", "room_lacks"):
            monkeypatch.setattr(preflight, satisfied, lambda *_: iter(()))
        monkeypatch.setattr("tools.dependencies.programs.path", found.commands.joinpath)
        yield found


def test_a_complete_machine_is_accepted(machine: Machine) -> None:
    preflight.check(machine.place)

    assert not machine.place.directory.exists()
    assert [file.name for file in machine.place.directory.parent.iterdir()] == ["bin"]


@pytest.mark.parametrize(
    ("program", "package"),
    [("ip", "iproute2"), ("mount", "mount"), ("unshare", "util-linux"), ("setpriv", "util-linux")],
)
def test_a_missing_tool_is_named_with_its_package(machine: Machine, program: str, package: str) -> None:
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
def test_a_missing_kernel_feature_is_one_line_with_the_error_of_the_kernel(
    machine: Machine, trial: str, words: str
) -> None:
    machine.give(
        "unshare", f'case "$*" in {trial}) printf "it does\\n not work\\n" >&2; exit 1;; esac; exit 0'
    )

    wanted = words.format(parent=machine.place.directory.parent)
    assert machine.refusal() == f"tools/cluster: the kernel gives {wanted}: it does not work"


def test_the_first_missing_requirement_is_found_without_other_programs(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(name: str) -> Path:
        pytest.fail(f"{name} would be built")

    monkeypatch.setattr("tools.dependencies.programs.path", build)

    assert preflight.lacking() is None
    (machine.commands / "ip").unlink()
    (machine.commands / "mount").unlink()
    assert preflight.lacking() == "there is no `ip`: install iproute2"


def test_addresses_in_use_are_named(machine: Machine) -> None:
    routes = [{"dst": "198.18.0.0/24", "dev": layout.INTERFACE}, {"dst": "198.19.3.0/24", "dev": "tun0"}]
    machine.give("ip", f"echo '{json.dumps(routes)}'")

    taken = "the cluster's addresses 198.18.0.0/15 are taken, by a route to 198.19.3.0/24 (tun0)"
    assert machine.refusal() == f"tools/cluster: {taken}: remove that route"
