r"""From the text of /proc/<pid>/cgroup to the owner of the process. Pure.

The format is that of cgroups(7): one line `hierarchy:controllers:path` for each hierarchy; hierarchy 0 is
cgroup v2. The kubelet, the container runtime and systemd define the form of the paths:

    /kubepods/burstable/pod<uid>/<id>                                          kubelet's cgroupfs driver
    /kubepods.slice/kubepods-pod<uid>.slice/cri-containerd-<id>.scope          its systemd driver
    /system.slice/containerd.service/kubepods-pod<uid>.slice:cri-containerd:<id>   one each

A path may start anywhere (`/../..` from within another cgroup namespace, below a node that is itself a
container), so none is anchored. The outermost pod is the owner, and of its path the first container: it
started the processes in deeper cgroups. A wrong pod is worse than none, so a path that is not exactly a pod's
is rejected.

`/` is the reader's own cgroup, or the host's root for a reader that shares the host's cgroup namespace. The
text does not distinguish them, so `/` is a process of the host and never of the reader's own pod.
"""

import re
from collections.abc import Iterable

from gputally.attribution import CgroupOwner
from gputally.model import Unknown

_LINE = re.compile(r"^([0-9]+:[^:\n]*):(.+)$", re.MULTILINE)  # the path may hold colons
_UUID = (
    r"[0-9a-f]{8}(?P<dash>[-_]|\\x2d)[0-9a-f]{4}(?P=dash)[0-9a-f]{4}(?P=dash)[0-9a-f]{4}(?P=dash)[0-9a-f]{12}"
)
_STATIC_POD = r"[0-9a-f]{32}"  # the hash of its configuration, in owner of a UID
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

# The text before a container's id, in its own segment or the one above, identifies the runtime. The CRI
# runtimes run only pods: the container's id identifies the pod, even if the path does not.
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
_BY_PRECEDENCE = (
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


def parse_cgroup(text: str) -> CgroupOwner | Unknown:
    """The owner of the process with this /proc/<pid>/cgroup."""
    hierarchies: list[tuple[str, str]] = _LINE.findall(text)
    if len(hierarchies) != text.removesuffix("\n").count("\n") + 1:
        return Unknown("unreadable")
    # Hierarchies mostly agree: each path is parsed once. The dict keeps their order.
    legacy = dict.fromkeys([path for number, path in hierarchies if number != "0:"])
    unified = dict.fromkeys([path for number, path in hierarchies if number == "0:"])
    if not legacy and len(unified) == 1:
        return _parse_path(next(iter(unified)))
    return _agree([_parse_path(path) for path in legacy], [_parse_path(path) for path in unified])


def _agree(
    legacy: list[CgroupOwner | Unknown], unified: list[CgroupOwner | Unknown]
) -> CgroupOwner | Unknown:
    """The owner by all hierarchies; on hybrid hosts the unified one may identify only a service."""
    pods = [owner for owner in legacy + unified if isinstance(owner, CgroupOwner) and owner.pod_uid]
    if pods:
        if len({owner.pod_uid for owner in pods}) > 1:
            return Unknown("ambiguous_pod")
        containers = {owner.container_id for owner in pods if owner.container_id}
        return CgroupOwner("pod", pods[0].pod_uid, containers.pop() if len(containers) == 1 else "")
    for owners in (legacy, unified):
        owner = _most_specific(owners)
        if owner is not None:
            return owner
    return CgroupOwner("process")


def _most_specific(owners: Iterable[CgroupOwner | Unknown]) -> CgroupOwner | Unknown | None:
    kinds: dict[str, CgroupOwner | Unknown] = {}
    for owner in owners:
        kind = owner.kind if isinstance(owner, CgroupOwner) else ""
        if kind == "pod" and kinds.setdefault(kind, owner) != owner:
            return Unknown("ambiguous_pod")
        kinds.setdefault(kind, owner)
    return next((kinds[kind] for kind in _BY_PRECEDENCE if kind in kinds), None)


def _parse_path(path: str) -> CgroupOwner | Unknown:
    path = path.removesuffix(" (deleted)")  # the cgroup was removed below the process
    if not path.startswith("/"):
        path = f"/{path}"
    pod = _POD.search(path) if "pod" in path else None
    if pod:
        container = _CONTAINER.search(path, pod.end())
        uid = pod["uid"].replace(pod["dash"], "-") if pod["dash"] else pod["uid"]
        return CgroupOwner("pod", uid, container[0] if container else "")
    sibling = _SIBLING.match(path)
    if sibling:
        return CgroupOwner("pod", container_id=sibling["id"], own_pod=True)
    slurm = _SLURM.search(path) if "/job_" in path else None
    if slurm and not _USER.search(path, 0, slurm.start() + 1):  # a user chose this name: it is not a job
        job, step, user = slurm["job"], slurm["step"] or "", slurm["user"] or ""
        return CgroupOwner("slurm", name=job, slurm_job=job, slurm_step=step, user=user)
    return _parse_container(path) or _parse_host(path)


def _parse_container(path: str) -> CgroupOwner | None:
    kind = container_id = ""
    if len(path) < 64:  # most paths on a host: no need to search
        return None
    for container in _CONTAINER.finditer(path):
        kind, container_id = _runtime(path, container.start()), container[0]
        if kind == "pod":
            return CgroupOwner("pod", container_id=container_id)
    if not container_id:
        return None
    if kind == "container" and _IN_KUBEPODS.search(path):
        return CgroupOwner("pod", container_id=container_id)
    return CgroupOwner(kind, container_id=container_id, name=container_id[:12])


def _runtime(path: str, start: int) -> str:
    *_, parent, prefix = ["", *path[:start].replace(":", "/").split("/")]
    if prefix:
        return _RUNTIME_BY_PREFIX.get(prefix, "container")
    return _RUNTIME_BY_PARENT.get(parent, "container")


def _parse_host(path: str) -> CgroupOwner | Unknown:
    if _IN_KUBEPODS.search(path):
        return Unknown("unreadable")  # a cgroup of the kubelet in an unknown form
    lxc = _LXC.search(path)
    if lxc:
        return CgroupOwner("lxc", name=lxc["name"])
    if "/docker/buildkit/" in path:
        return CgroupOwner("docker", name="buildkit")
    fargate = _FARGATE.search(path)
    if fargate:
        return CgroupOwner("container", name=fargate["name"])
    user = _USER.search(path)
    if user:
        uid = user["slice"] or user["manager"]
        return CgroupOwner("session", name=uid, user=uid)
    return _parse_unit(path)


def _parse_unit(path: str) -> CgroupOwner:
    segments = path.split("/")
    for suffix in (".service", ".scope"):
        for segment in reversed(segments):
            if segment.endswith(suffix) and segment != "init.scope":
                return CgroupOwner("service", name=segment)
    return CgroupOwner("process")
