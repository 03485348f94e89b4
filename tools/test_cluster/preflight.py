"""Checks the machine before a cluster is started: each missing requirement is one line with a remedy.

CONTRIBUTING.md lists the requirements ("Tests in a real cluster").
"""

import itertools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Network
from pathlib import Path

from tools import Missing
from tools.dependencies import programs
from tools.test_cluster import layout
from tools.test_cluster.layout import Layout

CGROUPS = Path("/sys/fs/cgroup")
UID_MAP = Path("/proc/self/uid_map")
_ALL_USERS = ["0", "0", "4294967295"]
_PACKAGES = {
    "ip": "iproute2",
    "mount": "mount",
    "setpriv": "util-linux",
    "setsid": "util-linux",
    "unshare": "util-linux",
}
_CONTROLLERS = ("cpu", "cpuacct", "cpuset", "devices", "freezer", "memory", "pids")
_UNIFIED_CONTROLLERS = ("cpu", "cpuset", "memory", "pids")
# The kubelet does not start if its cgroup lacks one of these that the root has.
_KUBELET_CONTROLLERS = (*_UNIFIED_CONTROLLERS, "hugetlb")
# The longest path of a socket that the kernel accepts.
_LONGEST_SOCKET = 107
# Pods are evicted below half of this share (components.py).
_LEAST_FREE_SHARE = 0.02
_LEAST_FREE_BYTES = 2 << 30


def lacking() -> str | None:
    """The first requirement of a cluster that this machine lacks. It takes a moment and builds nothing."""
    return next(lacks(Layout(layout.default_directory())), None)


def check(place: Layout) -> None:
    """Raises Missing with the first missing requirement."""
    for lack in itertools.chain(lacks(place), _packet_filter_lacks()):
        raise Missing(f"tools/cluster: {lack}")


def check_user() -> None:
    """Checks the requirements for showing and ending a cluster. Raises Missing."""
    for lack in user_lacks(os.geteuid(), UID_MAP.read_text()):
        raise Missing(f"tools/cluster: {lack}")


def lacks(place: Layout) -> Iterator[str]:
    yield from user_lacks(os.geteuid(), UID_MAP.read_text())
    for program, package in _PACKAGES.items():
        if shutil.which(program) is None:
            yield f"there is no `{program}`: install {package}"
    yield from directory_lacks(place)
    yield from room_lacks(place.directory, *shutil.disk_usage(_existing(place.directory)))
    yield from cgroup_lacks(CGROUPS)
    yield from _address_lacks()
    yield from _kernel_lacks(place)


def user_lacks(user: int, uid_map: str) -> Iterator[str]:
    if user != 0:
        yield "a cluster needs root for namespaces and mounts: run it as root"
    elif uid_map.split() != _ALL_USERS:
        yield (
            "a cluster needs the machine's root, and this is the root of a user namespace: "
            "run it outside, or in a container without one (docker run --userns=host --privileged)"
        )


def directory_lacks(place: Layout) -> Iterator[str]:
    directory = place.directory
    for hidden in ("/run", "/var"):
        if directory.is_relative_to(hidden):
            yield f"the cluster has its own {hidden} and cannot read {directory}: choose another --directory"
        elif programs.cache().is_relative_to(hidden):
            yield f"the cluster has its own {hidden} and cannot read the cached images: set GPUTALLY_CACHE"
    if len(str(place.device_plugins / "kubelet.sock")) > _LONGEST_SOCKET:
        yield f"sockets in {directory} would have a path that is too long: choose a shorter --directory"
    if directory.exists() and any(directory.iterdir()) and not place.plan.exists():
        yield f"{directory} has files of something else than a cluster: choose another --directory"


def room_lacks(directory: Path, total: int, _used: int, free: int) -> Iterator[str]:
    wanted = max(_LEAST_FREE_BYTES, round(total * _LEAST_FREE_SHARE))
    if free < wanted:
        yield (
            f"only {free / 1e9:.1f} GB are free where {directory} is, and the kubelet would run no pod: "
            f"free {wanted / 1e9:.1f} GB"
        )


def cgroup_lacks(cgroups: Path) -> Iterator[str]:
    unified = is_unified(cgroups)
    if unified:
        here = _words(cgroups / "cgroup.controllers")
        missing = [name for name in _UNIFIED_CONTROLLERS if name not in here]
    else:
        missing = [name for name in _CONTROLLERS if not (cgroups / name).is_dir()]
    if missing:
        yield f"the kernel gives no cgroups for {', '.join(missing)}: mount them below {cgroups}"
    elif not all(os.access(each, os.W_OK) for each in hierarchies(cgroups)):
        yield f"cgroups cannot be made in {cgroups}: mount it writable (a container needs --privileged)"
    # The root of a cgroup namespace has processes: then the kernel enables no more controllers below it.
    elif unified and (cgroups / "cgroup.type").exists() and controllers_to_enable(cgroups):
        yield f"{cgroups} is not the machine's, but a container's: start it with --cgroupns=host"


def is_unified(cgroups: Path) -> bool:
    """Whether this is cgroup v2; otherwise there is a hierarchy for each controller."""
    return (cgroups / "cgroup.controllers").exists()


def hierarchies(cgroups: Path) -> list[Path]:
    """The cgroup file systems of this machine: one, or one per controller."""
    if is_unified(cgroups):
        return [cgroups]
    return [path for path in cgroups.iterdir() if (path / "cgroup.procs").exists()]


def controllers_to_enable(cgroups: Path) -> list[str]:
    """The controllers that the kubelet would miss in a new cgroup of cgroup v2."""
    here, enabled = _words(cgroups / "cgroup.controllers"), _words(cgroups / "cgroup.subtree_control")
    return [name for name in _KUBELET_CONTROLLERS if name in here and name not in enabled]


def overlapping(routes: Sequence[str]) -> list[str]:
    """The destinations of routes within the cluster's addresses. Wider routes do not conflict."""
    destinations = [route for route in routes if route != "default" and ":" not in route]
    return [route for route in destinations if IPv4Network(route).subnet_of(layout.ADDRESSES)]


def _existing(directory: Path) -> Path:
    return next(each for each in (directory, *directory.parents) if each.exists())


def _address_lacks() -> Iterator[str]:
    shown = subprocess.run(
        ["ip", "-4", "-json", "route", "show", "table", "all"], capture_output=True, text=True, check=False
    )
    found = {
        route["dst"]: route.get("dev", "nowhere")
        for route in json.loads(shown.stdout or "[]")
        if route.get("dev") != layout.INTERFACE
    }
    for taken in overlapping(list(found)):
        yield (
            f"the cluster's addresses {layout.ADDRESSES} are taken, by a route to {taken} "
            f"({found[taken]}): remove that route"
        )


def _kernel_lacks(place: Layout) -> Iterator[str]:
    """Tests in temporary namespaces; this also loads kernel modules that can be loaded."""
    place.directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".cluster-", dir=place.directory.parent) as scratch:
        for name in ("lower", "upper", "work", "merged"):
            Path(scratch, name).mkdir()
        layers = f"lowerdir={scratch}/lower,upperdir={scratch}/upper,workdir={scratch}/work"
        yield from _trial("no namespaces of its own (a container needs --privileged)", "true")
        yield from _trial(
            f"no overlay file system in {place.directory.parent} (CONFIG_OVERLAY_FS)",
            *("mount", "-t", "overlay", "overlay", "-o", layers, f"{scratch}/merged"),
        )
        yield from _trial("no virtual links (CONFIG_VETH)", "ip", "link", "add", "trial0", "type", "veth")
        yield from _trial("no bridges (CONFIG_BRIDGE)", "ip", "link", "add", "trial0", "type", "bridge")


def _packet_filter_lacks() -> Iterator[str]:
    """Not one of `lacks`: the program for this trial may have to be fetched first."""
    nft = str(programs.path("nft"))
    yield from _trial("no packet filter (CONFIG_NF_TABLES)", nft, "add", "table", "ip", "trial")


def _trial(lack: str, *command: str) -> Iterator[str]:
    namespaces = ["--mount", "--net", "--pid", "--mount-proc", "--fork", "--propagation=private"]
    ran = subprocess.run(["unshare", *namespaces, *command], capture_output=True, text=True, check=False)
    if ran.returncode:
        yield f"the kernel gives {lack}: {' '.join(ran.stderr.split())}"


def _words(file: Path) -> list[str]:
    return file.read_text().split()
