r"""From the text of /proc/<pid>/cgroup to the owner of the process. Pure.

The format is that of cgroups(7): one line `hierarchy:controllers:path` for each hierarchy; hierarchy 0 is
cgroup v2. The kubelet, the container runtime and systemd define the form of the paths:

    /kubepods/burstable/pod<uid>/<id>                                          kubelet's cgroupfs driver
    /kubepods.slice/kubepods-pod<uid>.slice/cri-containerd-<id>.scope          its systemd driver
    /system.slice/containerd.service/kubepods-pod<uid>.slice:cri-containerd:<id>   one each

A path may start anywhere (`/../..` from within another cgroup namespace), so none is anchored. The outermost
owner counts: root made its cgroup. Deeper ones may be made by what runs in it: a user below
`user@<uid>.service`, a container with a cgroup namespace of its own. `Trust` has the exceptions. The
container is the level below the pod. A wrong pod is worse than none, so a path that is not exactly a pod's is
rejected.

`/` is the reader's own cgroup, or the host's root for a reader that shares the host's cgroup namespace. The
text does not distinguish them, so `/` is a process of the host and never of the reader's own pod.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from gputally.attribution import CgroupOwner
from gputally.model import Unknown

_LINE = re.compile(r"^([0-9]+:[^:\n]*):(.+)$", re.MULTILINE)  # the path may hold colons
_UUID = (
    r"[0-9a-f]{8}(?P<dash>[-_]|\\x2d)[0-9a-f]{4}(?P=dash)[0-9a-f]{4}(?P=dash)[0-9a-f]{4}(?P=dash)[0-9a-f]{12}"
)
_STATIC_POD = r"[0-9a-f]{32}"  # the hash of its configuration, in place of a UID
_ID = r"[0-9a-f]{64}(?=[/.:]|\Z)"
# Each form starts a level of the path. At the same level the first one wins.
_OWNER = re.compile(
    "|".join(
        (
            r"(?P<pod>/(?:(?:[^/:]*-)?kubepods(?:-(?:besteffort|burstable|guaranteed))?-)?"
            rf"pod(?P<uid>{_UUID}|{_STATIC_POD})(?:\.slice)?(?=[/:]|\Z)"
            rf"(?:[/:](?:[^/]*[:-])?(?P<container>{_ID}))?)",
            rf"(?P<sibling>\A/\.\./(?:crio-(?:conmon-)?|cri-containerd-)?(?P<sibling_id>{_ID}))",
            r"(?P<slurm>(?:/slurm(?:_[^/]+)?/uid_(?P<user>[0-9]+)|/(?:[^/]+_)?slurmstepd\.scope)"
            r"/job_(?P<job>[0-9]+)(?:/step_(?P<step>[^/]+))?(?=/|\Z))",
            rf"(?P<runtime>/(?:[^/]*[:-])?(?P<id>{_ID}))",
            r"(?P<build>/docker/(?P<buildkit>buildkit)(?=/))",
            r"(?P<fargate>/ecs/[0-9a-f]{32}/(?P<task>[0-9a-f]{32}-[0-9]+)(?=/|\Z))",
            r"(?P<lxc>/lxc(?:\.(?:payload|monitor)[./]|/)(?P<guest>[^/]+))",
            # systemd's slices of users, and /user/<login>/<session>, which pam_cgfs hands to the user
            r"(?P<session>/user(?:-(?P<slice>[0-9]+)\.slice|@(?P<manager>[0-9]+)\.service"
            r"|/(?P<login>[^/]+?)(?:\.user)?/[0-9]+(?:\.session)?)(?=/|\Z))",
            r"(?P<service>/(?!init\.scope(?:/|\Z))(?P<unit>[^/]+\.(?:service|scope))(?=/|\Z))",
        )
    )
)
_IN_KUBEPODS = re.compile(r"[/-]kubepods(?=[/.:-]|\Z)")
# Services of the node that run pods, containers and jobs, which are the owners then.
_NODE_SERVICE = re.compile(
    r"(?:.*[-_.@])?(?:containerd|cri-?o|cri-docker|docker|k0s|k3s|k8s|kube|podman|rke2|slurm)"
)

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
# form -> kind of the owner, and the group with its name
_NAMED = {
    "build": ("docker", "buildkit"),
    "fargate": ("container", "task"),
    "lxc": ("lxc", "guest"),
    "service": ("service", "unit"),
}
_CONTAINERS = ("docker", "podman", "containerd", "container")
_BY_PRECEDENCE = ("pod", "slurm", *_CONTAINERS, "lxc", "", "service", "session")


@dataclass(frozen=True, slots=True)
class Trust:
    """Where a pod or container counts that is not the outermost owner."""

    nodes: tuple[str, ...] = ()
    """Paths of containers that are nodes of Kubernetes: the pods in them count."""
    nested: bool = False
    """Pods and containers count inside of every other owner."""


def trust_of(own_text: str, *, nested: bool = False) -> Trust:
    """A container in which the reader itself runs, in a pod or service of it, is the reader's node."""
    nodes: dict[str, None] = {}
    for _, path in _LINE.findall(own_text):
        around = [
            end for end, owner in _owners(_rooted(path))[:-1] if owner.kind in ("pod", "lxc", *_CONTAINERS)
        ]
        nodes.update(dict.fromkeys(_rooted(path)[:end] for end in around[-1:]))
    return Trust(tuple(nodes), nested)


OUTERMOST = Trust()


def parse_cgroup(text: str, trust: Trust = OUTERMOST) -> CgroupOwner | Unknown:
    """The owner of the process with this /proc/<pid>/cgroup."""
    hierarchies: list[tuple[str, str]] = _LINE.findall(text)
    if len(hierarchies) != text.removesuffix("\n").count("\n") + 1:
        return Unknown("unreadable")
    # Hierarchies mostly agree: each path is parsed once. The dict keeps their order.
    legacy = dict.fromkeys([path for number, path in hierarchies if number != "0:"])
    unified = dict.fromkeys([path for number, path in hierarchies if number == "0:"])
    if not legacy and len(unified) == 1:
        return _parse_path(next(iter(unified)), trust)
    return _agree(
        [_parse_path(path, trust) for path in legacy], [_parse_path(path, trust) for path in unified]
    )


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


def _parse_path(path: str, trust: Trust) -> CgroupOwner | Unknown:
    path = _rooted(path)
    for node in trust.nodes:
        inside = _owners(path.removeprefix(node))[:1] if path.startswith(f"{node}/") else ()
        for _, owner in inside:
            if owner.kind == "pod":
                return owner
    owners = [owner for _, owner in _owners(path)]
    if trust.nested:
        owners.sort(key=lambda owner: (owner.kind != "pod", owner.kind not in _CONTAINERS))
    if owners:
        return owners[0]
    if _IN_KUBEPODS.search(path):
        return Unknown("unreadable")  # a cgroup of the kubelet in an unknown form
    return CgroupOwner("process")


def _rooted(path: str) -> str:
    path = path.removesuffix(" (deleted)")  # the cgroup was removed below the process
    return path if path.startswith("/") else f"/{path}"


def _owners(path: str) -> list[tuple[int, CgroupOwner]]:
    """The owners along the path, the outermost first, and where their part of the path ends."""
    found: list[tuple[int, CgroupOwner]] = []
    node_services: list[tuple[int, CgroupOwner]] = []
    for match in _OWNER.finditer(path):
        owner = _owner(match)
        # Below the kubelet's cgroup there are only pods.
        if owner.kind != "pod" and _IN_KUBEPODS.search(path, 0, match.end()):
            if owner.kind not in _CONTAINERS:
                continue
            owner = CgroupOwner("pod", container_id=owner.container_id)
        is_node = owner.kind == "service" and _NODE_SERVICE.match(owner.name)
        end = path.find("/", match.end())
        (node_services if is_node else found).append((len(path) if end < 0 else end, owner))
    return found or node_services


def _owner(match: re.Match[str]) -> CgroupOwner:
    form = match.lastgroup
    if form == "pod":
        uid = match["uid"].replace(match["dash"], "-") if match["dash"] else match["uid"]
        owner = CgroupOwner("pod", uid, match["container"] or "")
    elif form == "sibling":
        owner = CgroupOwner("pod", container_id=match["sibling_id"], own_pod=True)
    elif form == "slurm":
        job, step, user = match["job"], match["step"] or "", match["user"] or ""
        owner = CgroupOwner("slurm", name=job, slurm_job=job, slurm_step=step, user=user)
    elif form == "runtime":
        kind, container_id = _runtime(match.string, match.start("id")), match["id"]
        owner = CgroupOwner(kind, container_id=container_id, name="" if kind == "pod" else container_id[:12])
    elif form == "session":
        user = match["slice"] or match["manager"] or match["login"]
        owner = CgroupOwner("session", name=user, user=user)
    else:
        kind, name = _NAMED[form or ""]
        owner = CgroupOwner(kind, name=match[name])
    return owner


def _runtime(path: str, start: int) -> str:
    *_, parent, prefix = ["", *path[:start].replace(":", "/").split("/")]
    if prefix:
        return _RUNTIME_BY_PREFIX.get(prefix, "container")
    return _RUNTIME_BY_PARENT.get(parent, "container")
