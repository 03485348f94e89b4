r"""From the text of /proc/<pid>/cgroup to the place where the process lives. Pure.

The format is that of cgroups(7): one line `hierarchy:controllers:path` for each hierarchy; hierarchy 0 is
cgroup v2. What paths look like is up to the kubelet, the container runtime and systemd:

    /kubepods/burstable/pod<uid>/<id>                                          kubelet's cgroupfs driver
    /kubepods.slice/kubepods-pod<uid>.slice/cri-containerd-<id>.scope          its systemd driver
    /system.slice/containerd.service/kubepods-pod<uid>.slice:cri-containerd:<id>   one each

A path may start anywhere (`/../..` from within another cgroup namespace, below a node that is itself a
container), so none is anchored. The outermost pod pays, and of its path the first container: what runs
deeper was started by that container. A wrong pod is worse than none, so that what only looks like a pod is
refused.

`/` is the reader's own cgroup, or the host's root for a reader that shares the host's cgroup namespace. The
text does not tell which, so that it is a bare process and never the reader's own pod.
"""

import re
from collections.abc import Iterable

from gputally.attribution import Place
from gputally.model import Unknown

_LINE = re.compile(r"^([0-9]+:[^:\n]*):(.+)$", re.MULTILINE)  # the path may hold colons
_UUID = (
    r"[0-9a-f]{8}(?P<dash>[-_]|\\x2d)[0-9a-f]{4}(?P=dash)[0-9a-f]{4}(?P=dash)[0-9a-f]{4}(?P=dash)[0-9a-f]{12}"
)
_STATIC_POD = r"[0-9a-f]{32}"  # the hash of its configuration stands in for its UID
_POD = re.compile(
    r"/(?:(?:[^/:]*-)?kubepods(?:-(?:besteffort|burstable|guaranteed))?-)?"
    rf"pod(?P<uid>{_UUID}|{_STATIC_POD})(?:\.slice)?(?=[/:]|\Z)"
)
_CONTAINER = re.compile(r"(?<=[/:-])[0-9a-f]{64}(?=[/.:]|\Z)")
_SIBLING = re.compile(r"/\.\./(?:crio-(?:conmon-)?|cri-containerd-)?(?P<id>[0-9a-f]{64})(?=[/.:]|\Z)")
_IN_KUBEPODS = re.compile(r"[/-]kubepods(?=[/.:-]|\Z)")
_SLURM = re.compile(
    r"(?:/slurm(?:_[^/]+)?/uid_(?P<user>[0-9]+)|/(?:[^/]+_)?slurmstepd\.scope)"
    r"/job_(?P<job>[0-9]+)(?:/step_(?P<step>[^/]+))?(?=/|\Z)"
)
_LXC = re.compile(r"/lxc(?:\.(?:payload|monitor)[./]|/)(?P<name>[^/]+)")
_FARGATE = re.compile(r"/ecs/[0-9a-f]{32}/(?P<name>[0-9a-f]{32}-[0-9]+)(?=/|\Z)")
_USER = re.compile(r"/user(?:-(?P<slice>[0-9]+)\.slice|@(?P<manager>[0-9]+)\.service)(?=/|\Z)")

# What stands before a container's id, in its own segment or as the segment above, says who runs it. The CRI
# runtimes run nothing but pods: whose container it is, its id tells, even where the path has no pod.
_RUNTIME_BY_PREFIX = {
    "cri-containerd-": "pod",
    "crio-": "pod",
    "crio-conmon-": "pod",
    "docker-": "docker",
    "libpod-": "podman",
    "libpod-conmon-": "podman",
    "nerdctl-": "containerd",
}
_RUNTIME_BY_PARENT = {
    "cri-containerd": "pod",
    "k8s.io": "pod",  # containerd's namespace for the kubelet
    "docker": "docker",
    "moby": "docker",  # containerd's namespace for Docker
    "containerd": "containerd",
    "default": "containerd",  # containerd's namespace for ctr and nerdctl
}
_MOST_TELLING = (
    "pod",
    "slurm",
    "docker",
    "podman",
    "containerd",
    "container",
    "lxc",
    "",
    "service",
    "session",
)


def parse_cgroup(text: str) -> Place | Unknown:
    """Where the process with this /proc/<pid>/cgroup lives."""
    hierarchies: list[tuple[str, str]] = _LINE.findall(text)
    if len(hierarchies) != text.removesuffix("\n").count("\n") + 1:
        return Unknown("unreadable")
    # Hierarchies mostly agree: each path is looked at once. The dict keeps their order.
    legacy = dict.fromkeys([path for number, path in hierarchies if number != "0:"])
    unified = dict.fromkeys([path for number, path in hierarchies if number == "0:"])
    if not legacy and len(unified) == 1:
        return _parse_path(next(iter(unified)))
    return _agree([_parse_path(path) for path in legacy], [_parse_path(path) for path in unified])


def _agree(legacy: list[Place | Unknown], unified: list[Place | Unknown]) -> Place | Unknown:
    """What several hierarchies say together; on hybrid hosts the unified one may know but a service."""
    pods = [place for place in legacy + unified if isinstance(place, Place) and place.pod_uid]
    if pods:
        if len({place.pod_uid for place in pods}) > 1:
            return Unknown("ambiguous_pod")
        containers = {place.container_id for place in pods if place.container_id}
        return Place("pod", pods[0].pod_uid, containers.pop() if len(containers) == 1 else "")
    for places in (legacy, unified):
        told = _most_telling(places)
        if told is not None:
            return told
    return Place("process")


def _most_telling(places: Iterable[Place | Unknown]) -> Place | Unknown | None:
    kinds: dict[str, Place | Unknown] = {}
    for place in places:
        kind = place.kind if isinstance(place, Place) else ""
        if kind == "pod" and kinds.setdefault(kind, place) != place:
            return Unknown("ambiguous_pod")
        kinds.setdefault(kind, place)
    return next((kinds[kind] for kind in _MOST_TELLING if kind in kinds), None)


def _parse_path(path: str) -> Place | Unknown:
    path = path.removesuffix(" (deleted)")  # the cgroup was removed below the process
    if not path.startswith("/"):
        path = f"/{path}"
    pod = _POD.search(path) if "pod" in path else None
    if pod:
        container = _CONTAINER.search(path, pod.end())
        uid = pod["uid"].replace(pod["dash"], "-") if pod["dash"] else pod["uid"]
        return Place("pod", uid, container[0] if container else "")
    sibling = _SIBLING.match(path)
    if sibling:
        return Place("pod", container_id=sibling["id"], own_pod=True)
    slurm = _SLURM.search(path) if "/job_" in path else None
    if slurm and not _USER.search(path, 0, slurm.start() + 1):  # what users name themselves is no job
        job, step, user = slurm["job"], slurm["step"] or "", slurm["user"] or ""
        return Place("slurm", name=job, slurm_job=job, slurm_step=step, user=user)
    return _parse_container(path) or _parse_host(path)


def _parse_container(path: str) -> Place | None:
    kind = container_id = ""
    if len(path) < 64:  # most paths of a host: no need to search
        return None
    for container in _CONTAINER.finditer(path):
        kind, container_id = _runtime(path, container.start()), container[0]
        if kind == "pod":
            return Place("pod", container_id=container_id)
    if not container_id:
        return None
    if kind == "container" and _IN_KUBEPODS.search(path):
        return Place("pod", container_id=container_id)
    return Place(kind, container_id=container_id, name=container_id[:12])


def _runtime(path: str, start: int) -> str:
    *_, parent, prefix = ["", *path[:start].replace(":", "/").split("/")]
    if prefix:
        return _RUNTIME_BY_PREFIX.get(prefix, "container")
    return _RUNTIME_BY_PARENT.get(parent, "container")


def _parse_host(path: str) -> Place | Unknown:
    if _IN_KUBEPODS.search(path):
        return Unknown("unreadable")  # something of the kubelet's, in a shape that nobody knows
    lxc = _LXC.search(path)
    if lxc:
        return Place("lxc", name=lxc["name"])
    if "/docker/buildkit/" in path:
        return Place("docker", name="buildkit")
    fargate = _FARGATE.search(path)
    if fargate:
        return Place("container", name=fargate["name"])
    user = _USER.search(path)
    if user:
        uid = user["slice"] or user["manager"]
        return Place("session", name=uid, user=uid)
    return _parse_unit(path)


def _parse_unit(path: str) -> Place:
    segments = path.split("/")
    for suffix in (".service", ".scope"):
        for segment in reversed(segments):
            if segment.endswith(suffix) and segment != "init.scope":
                return Place("service", name=segment)
    return Place("process")
