"""Starts and ends a cluster."""

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools import ROOT, Failed
from tools.servers.control_plane import ControlPlane
from tools.servers.waiting import wait_until
from tools.test_cluster import components, images, layout, libraries, preflight, record, store
from tools.test_cluster.layout import Layout

_SECONDS_TO_START = 120
_MOST_STARTS = 5
_DEFAULT_ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"

Say = Callable[[str], None]
_DNS_PORT = 53
_SECONDS_TO_RESOLVE = 1.0
_RECURSION_DESIRED = 0x0100
_ADDRESS, _INTERNET = 1, 1


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster."""

    place: Layout

    @property
    def plane(self) -> ControlPlane:
        return self.place.plane

    def programs(self) -> list[dict[str, Any]]:
        """Name, pid (in the cluster's namespace) and number of starts of each program."""
        try:
            state: list[dict[str, Any]] = json.loads(self.place.state.read_text())
        except FileNotFoundError:
            return []
        return state

    def node_is_ready(self) -> bool:
        try:
            node = self.plane.api(f"/api/v1/nodes/{layout.NODE_NAME}")
        except (Failed, OSError):
            return False
        return any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for condition in node["status"]["conditions"]
        )

    def node_pid(self, name: str) -> int:
        """The pid of one of its programs, as pods with `hostPID` see it. Raises Failed."""
        for program in self.programs():
            if program["name"] == name and program["pid"]:
                return int(program["pid"])
        raise Failed(f"{name} does not run")

    def host_pid(self, name: str) -> int:
        """The same process by its pid on this machine. Raises Failed."""
        wanted = self.node_pid(name)
        for node in record.holders():
            for child in record.children(node):
                if _namespace_pids(child)[-1:] == [wanted]:
                    return child
        raise Failed(f"{name} does not run")


def up(directory: Path, say: Say, *, with_images: bool = True) -> Cluster:
    """Starts a cluster. Raises Failed, and removes everything then."""
    place = Layout(directory)
    if other := record.running():
        raise Failed(record.refusal(other))
    preflight.check(place)
    archives = images.build_all(say) if with_images else []
    former = record.recorded() or directory
    lock = record.take(directory)
    try:
        try:
            for each in {directory, former}:
                _remove_leftovers(Layout(each))
            images_root = store.filled(archives, say).root if with_images else directory / "containerd"
            begin = time.monotonic()
            _launch(place, images_root, lock)
        finally:
            # Now the cluster's own processes hold the lock.
            os.close(lock)
        cluster = Cluster(place)
        _link(cluster)
        say(f"started in {directory} ({time.monotonic() - begin:.1f} s)")
        _wait_for(cluster, "the API server", lambda: cluster.plane.responds(_DEFAULT_ACCOUNT))
        say(f"API server is ready ({time.monotonic() - begin:.1f} s)")
        _wait_for(cluster, "the node to be ready", cluster.node_is_ready)
        _wait_for(cluster, "names of Services", lambda: resolves("kubernetes.default.svc.cluster.local"))
        say(f"node {layout.NODE_NAME} is ready ({time.monotonic() - begin:.1f} s)")
    except BaseException:
        try:
            if place.logs.exists():
                say(f"logs are in {_keep_logs(place)}")
        finally:
            down(directory, lambda _: None)
        raise
    return cluster


def down(directory: Path, say: Say) -> None:
    """Ends the running cluster, or removes what is left of one. Raises Failed."""
    begin = time.monotonic()
    directories = {directory, *filter(None, [record.recorded()])}
    record.end()
    for each in directories:
        _remove_leftovers(Layout(each))
    record.forget()
    say(f"everything is removed ({time.monotonic() - begin:.1f} s)")


def _launch(place: Layout, images_root: Path, lock: int) -> None:
    place.make()
    components.prepare(place, images_root)
    make_cgroup(preflight.CGROUPS)
    namespaces = ["--mount", "--net", "--pid", "--mount-proc", "--fork", "--kill-child"]
    with_libraries = libraries.linker_cache(place.directory / "ld.so.cache", "node-tools")
    node = [sys.executable, "-P", "-m", record.NODE_MODULE, str(place.directory)]
    with (place.logs / "node.log").open("wb") as log:
        # A new session: it continues after this process.
        subprocess.run(
            ["setsid", "--fork", "unshare", *namespaces, "--propagation=private", *with_libraries, *node],
            cwd=place.directory,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=[lock],
            check=True,
        )


def make_cgroup(cgroups: Path) -> None:
    if preflight.is_unified(cgroups) and (missing := preflight.controllers_to_enable(cgroups)):
        # cgroup v2 gives a cgroup only the controllers that its parent enables for it.
        (cgroups / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in missing))
    for hierarchy in preflight.hierarchies(cgroups):
        (hierarchy / layout.CGROUP).mkdir(exist_ok=True)


def _link(cluster: Cluster) -> None:
    """Connects the cluster's network to the machine's. The routes are removed with the link."""
    _wait_for(cluster, "namespaces", lambda: _outermost_elsewhere() is not None)
    for command in (
        f"link add {layout.INTERFACE} type veth peer name eth0 netns {_outermost_elsewhere()}",
        f"address add {layout.HOST_ADDRESS}/{layout.LINK_LENGTH} dev {layout.INTERFACE}",
        f"link set {layout.INTERFACE} up",
        f"route add {layout.ADDRESSES} via {layout.NODE_ADDRESS}",
    ):
        subprocess.run(["ip", *command.split()], check=True)


def _outermost_elsewhere() -> int | None:
    """The cluster's first process, as soon as it has its own network namespace."""
    here = Path("/proc/self/ns/net").readlink()
    return next((pid for pid in record.holders() if Path(f"/proc/{pid}/ns/net").readlink() != here), None)


def _wait_for(cluster: Cluster, what: str, condition: Callable[[], bool]) -> None:
    wait_until(condition, what, _SECONDS_TO_START, check=lambda: _check(cluster))


def _check(cluster: Cluster) -> None:
    """Raises Failed when the cluster has ended or one of its programs ends repeatedly."""
    if not record.running():
        raise Failed(f"the cluster ended. Last lines of its log:\n{_last_lines(cluster, 'node')}")
    for program in cluster.programs():
        if program["starts"] >= _MOST_STARTS:
            last = _last_lines(cluster, program["name"])
            raise Failed(f"{program['name']} ends repeatedly. Last lines of its log:\n{last}")


def _last_lines(cluster: Cluster, name: str) -> str:
    text = (cluster.place.logs / f"{name}.log").read_text(errors="replace")
    return "\n".join(f"    {line}" for line in text.splitlines()[-15:])


def _keep_logs(place: Layout) -> Path:
    """The last lines of the log of a cluster that did not start."""
    kept = place.directory.with_name(f"{place.directory.name}-failed-logs")
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(place.logs, kept)
    return kept


def _remove_leftovers(place: Layout) -> None:
    """Removes the link, cgroups, layers, and the cluster's directory. The rest ended with the processes."""
    # A closed connection keeps the network, and with it the link, for a minute or two.
    link = Path("/sys/class/net", layout.INTERFACE)
    if link.exists():
        deleted = subprocess.run(
            ["ip", "link", "delete", layout.INTERFACE], capture_output=True, text=True, check=False
        )
        # It may just have been removed with the network.
        if link.exists():
            raise Failed(f"the link {layout.INTERFACE} cannot be removed: {deleted.stderr.strip()}")
    for hierarchy in preflight.hierarchies(preflight.CGROUPS):
        _remove_cgroup(hierarchy / layout.CGROUP)
    for used in store.stores():
        used.reset()
    if place.plan.exists():
        store.remove(place.directory)


def _remove_cgroup(top: Path) -> None:
    def removed() -> bool:
        # From the leaves up. The cgroup of a process that has just ended is busy for a moment.
        for inner, _, _ in os.walk(top, topdown=False):
            with suppress(OSError):
                Path(inner).rmdir()
        return not top.exists()

    wait_until(removed, f"the processes of the cgroup {top} end", 5)


def _namespace_pids(pid: int) -> list[int]:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return [int(number) for number in line.split()[1:]]
    return []


def resolves(name: str) -> bool:
    """Whether the server has an address for this name."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        connection.settimeout(_SECONDS_TO_RESOLVE)
        try:
            connection.sendto(dns_query(name), (layout.NODE_ADDRESS, _DNS_PORT))
            return has_address(connection.recv(512))
        except OSError:
            return False


def dns_query(name: str) -> bytes:
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    header = struct.pack("!6H", 1, _RECURSION_DESIRED, 1, 0, 0, 0)
    return header + labels + b"\0" + struct.pack("!2H", _ADDRESS, _INTERNET)


def has_address(answer: bytes) -> bool:
    if len(answer) < 12:
        return False
    fields: tuple[int, ...] = struct.unpack("!6H", answer[:12])
    _, flags, _, answers, _, _ = fields
    return flags & 0xF == 0 and answers > 0
