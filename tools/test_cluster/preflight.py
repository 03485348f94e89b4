"""What this machine must offer before a cluster is started: each lack is one line, with what helps."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Network
from pathlib import Path

from tools import Failed
from tools.dependencies import programs
from tools.test_cluster import layout
from tools.test_cluster.layout import Layout

CGROUPS = Path("/sys/fs/cgroup")
_PACKAGES = {
    "ip": "iproute2",
    "mount": "mount",
    "setpriv": "util-linux",
    "setsid": "util-linux",
    "unshare": "util-linux",
}
_CONTROLLERS = ("cpu", "cpuacct", "cpuset", "devices", "freezer", "memory", "pids")
_UNIFIED_CONTROLLERS = ("cpu", "cpuset", "memory", "pids")
# The kernel takes no longer path of a socket.
_LONGEST_SOCKET = 107
# Below half of this share pods are evicted (components.py).
_LEAST_FREE_SHARE = 0.02
_LEAST_FREE_BYTES = 2 << 30


def check(place: Layout) -> None:
    """Raises Failed with the first thing that is missing."""
    check_user()
    for lack in lacks(place):
        raise Failed(f"tools/cluster: {lack}")


def check_user() -> None:
    """What is needed also to look at a cluster and to end it. Raises Failed."""
    if os.geteuid() != 0:
        raise Failed("tools/cluster: it needs root, for namespaces and mounts: run it as root")


def lacks(place: Layout) -> Iterator[str]:
    for program, package in _PACKAGES.items():
        if shutil.which(program) is None:
            yield f"there is no `{program}`: install {package}"
    yield from folder_lacks(place)
    yield from room_lacks(place.folder, *shutil.disk_usage(_existing(place.folder)))
    yield from cgroup_lacks(CGROUPS)
    yield from _address_lacks()
    yield from _kernel_lacks(place)


def folder_lacks(place: Layout) -> Iterator[str]:
    folder = place.folder
    for hidden in ("/run", "/var"):
        if folder.is_relative_to(hidden):
            yield f"the cluster has a {hidden} of its own and cannot see {folder}: choose another --folder"
        elif programs.cache().is_relative_to(hidden):
            yield f"the cluster has a {hidden} of its own, and images are below it: set GPUTALLY_CACHE"
    if len(str(place.device_plugins / "kubelet.sock")) > _LONGEST_SOCKET:
        yield f"sockets in {folder} would have too long a path: choose a shorter --folder"
    if folder.exists() and any(folder.iterdir()) and not place.plan.exists():
        yield f"{folder} has files that are not a cluster's: choose another --folder"


def room_lacks(folder: Path, total: int, _used: int, free: int) -> Iterator[str]:
    wanted = max(_LEAST_FREE_BYTES, round(total * _LEAST_FREE_SHARE))
    if free < wanted:
        yield (
            f"only {free / 1e9:.1f} GB are free where {folder} is, and the kubelet would run no pod: "
            f"free {wanted / 1e9:.1f} GB"
        )


def cgroup_lacks(cgroups: Path) -> Iterator[str]:
    unified = cgroups / "cgroup.controllers"
    if unified.exists():
        here = unified.read_text().split()
        missing = [name for name in _UNIFIED_CONTROLLERS if name not in here]
    else:
        missing = [name for name in _CONTROLLERS if not (cgroups / name).is_dir()]
    if missing:
        yield f"the kernel gives no cgroups for {', '.join(missing)}: mount them below {cgroups}"


def overlapping(routes: Sequence[str]) -> list[str]:
    """Which destinations of routes are among the cluster's addresses. Wider ones do not count: ours wins."""
    destinations = [route for route in routes if route != "default" and ":" not in route]
    return [route for route in destinations if IPv4Network(route).subnet_of(layout.ADDRESSES)]


def _existing(folder: Path) -> Path:
    return next(each for each in (folder, *folder.parents) if each.exists())


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
            f"({found[taken]}): end whatever has made it"
        )


def _kernel_lacks(place: Layout) -> Iterator[str]:
    """Tried in namespaces that are gone a moment later; so a module that can be loaded is loaded."""
    place.folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".cluster-", dir=place.folder.parent) as scratch:
        for name in ("lower", "upper", "work", "merged"):
            Path(scratch, name).mkdir()
        layers = f"lowerdir={scratch}/lower,upperdir={scratch}/upper,workdir={scratch}/work"
        trials: dict[str, list[str | Path]] = {
            "no namespaces of its own (a container needs --privileged)": ["true"],
            f"no overlay file system in {place.folder.parent} (CONFIG_OVERLAY_FS)": [
                *("mount", "-t", "overlay", "overlay", "-o", layers, f"{scratch}/merged")
            ],
            "no virtual links (CONFIG_VETH)": ["ip", "link", "add", "trial0", "type", "veth"],
            "no bridges (CONFIG_BRIDGE)": ["ip", "link", "add", "trial0", "type", "bridge"],
            "no packet filter (CONFIG_NF_TABLES)": [programs.path("nft"), "add", "table", "ip", "trial"],
        }
        for lack, trial in trials.items():
            ran = subprocess.run(
                ["unshare", "--mount", "--net", "--pid", "--fork", "--propagation=private", *trial],
                capture_output=True,
                text=True,
                check=False,
            )
            if ran.returncode:
                said = " ".join(ran.stderr.split())
                yield f"the kernel gives {lack}: {said}"
