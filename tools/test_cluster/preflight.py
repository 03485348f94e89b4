"""Checks the machine before a cluster is started: each missing requirement is one line with a remedy."""

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
# The longest path of a socket that the kernel accepts.
_LONGEST_SOCKET = 107
# Pods are evicted below half of this share (components.py).
_LEAST_FREE_SHARE = 0.02
_LEAST_FREE_BYTES = 2 << 30


def check(place: Layout) -> None:
    """Raises Failed with the first missing requirement."""
    check_user()
    for lack in lacks(place):
        raise Failed(f"tools/cluster: {lack}")


def check_user() -> None:
    """Checks the requirements for showing and ending a cluster. Raises Failed."""
    if os.geteuid() != 0:
        raise Failed("tools/cluster needs root for namespaces and mounts: run it as root")


def lacks(place: Layout) -> Iterator[str]:
    for program, package in _PACKAGES.items():
        if shutil.which(program) is None:
            yield f"there is no `{program}`: install {package}"
    yield from directory_lacks(place)
    yield from room_lacks(place.directory, *shutil.disk_usage(_existing(place.directory)))
    yield from cgroup_lacks(CGROUPS)
    yield from _address_lacks()
    yield from _kernel_lacks(place)


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
    unified = cgroups / "cgroup.controllers"
    if unified.exists():
        here = unified.read_text().split()
        missing = [name for name in _UNIFIED_CONTROLLERS if name not in here]
    else:
        missing = [name for name in _CONTROLLERS if not (cgroups / name).is_dir()]
    if missing:
        yield f"the kernel gives no cgroups for {', '.join(missing)}: mount them below {cgroups}"


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
        trials: dict[str, list[str | Path]] = {
            "no namespaces of its own (a container needs --privileged)": ["true"],
            f"no overlay file system in {place.directory.parent} (CONFIG_OVERLAY_FS)": [
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
