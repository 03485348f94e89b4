"""Pod source `pod_logs`: names of pods and containers from the kubelet's log directories.

Only the names of files are read, never a log:

- /var/log/pods/<namespace>_<pod>_<uid>/<container>/ are directories, created before the pod starts and
  removed after it is deleted. The UID is the one in the cgroup path, for static pods too.
- /var/log/containers/<pod>_<namespace>_<container>-<container id>.log are links into the above, which
  exist as long as the container. The kubelet cuts these names at 251 characters, and the id with them.

Either directory alone is enough for namespace and pod.
"""

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Generic, TypeVar

from gputally.attribution import PodReport, is_container, is_namespace, is_pod, parse_pod_uid
from gputally.attribution.limits import CONTAINERS, CONTAINERS_OF_POD, PODS, take_pods
from gputally.model import Owner, PodInfo, Unavailable

_CONTAINER_LOG = re.compile(r"([^_]+)_([^_]+)_([^_]+)-([0-9a-f]{64})\.log")

# A directory that changed this recently may change again within the same tick of its file system's clock,
# without a new modification time. The coarsest clocks in use tick once a second.
_SETTLED_AFTER_NS = 2_000_000_000

# One new container changes a directory, and nearly all names in it are old: they are not parsed again.
_CACHED_NAMES = 2048

T = TypeVar("T")
ContainerNames = tuple[str, ...] | None  # None: not known


@lru_cache(_CACHED_NAMES)
def parse_pod_directory(name: str) -> Owner | None:
    """The pod of <namespace>_<pod>_<uid>. Kubelets before 1.14 wrote the UID alone: None."""
    parts = name.split("_")
    if len(parts) != 3 or not is_namespace(parts[0]) or not is_pod(parts[1]):
        return None
    uid = parse_pod_uid(parts[2])
    return Owner("pod", namespace=parts[0], pod=parts[1], pod_uid=uid) if uid else None


@lru_cache(_CACHED_NAMES)
def parse_container_log(name: str) -> Owner | None:
    """The container of <pod>_<namespace>_<container>-<64 hex digits>.log; None if the id has been cut off.

    A container's name has at most 63 characters, so the 64 digits cannot be a part of it.
    """
    match = _CONTAINER_LOG.fullmatch(name)
    if not match:
        return None
    pod, namespace, container, container_id = match.groups()
    if not is_pod(pod) or not is_namespace(namespace) or not is_container(container):
        return None
    return Owner("pod", namespace=namespace, pod=pod, container=container, container_id=container_id)


def parse_link_target(target: str) -> tuple[Owner, str] | None:
    """The pod and the container's name from .../<namespace>_<pod>_<uid>/<container>/<n>.log."""
    parts = target.rsplit("/", 3)
    directory = parse_pod_directory(parts[1]) if len(parts) == 4 else None
    return (directory, parts[2]) if directory and is_container(parts[2]) else None


class PodLogs:
    """The pod source `pod_logs`. While nothing changes on disk, `read` returns the same PodReport."""

    name = "pod_logs"

    def __init__(
        self, pods_dir: Path = Path("/var/log/pods"), containers_dir: Path = Path("/var/log/containers")
    ) -> None:
        self._pods = _PodsDirectory(pods_dir)
        self._links = _LinksDirectory(containers_dir)
        self._seen: tuple[object, object] | None = None
        self._report = PodReport()

    def read(self) -> PodReport:
        failures: list[tuple[Path, OSError]] = []
        pods: Mapping[Owner, ContainerNames] = {}
        links: Mapping[Owner, str] = {}
        try:
            pods = self._pods.read()
        except OSError as error:
            failures.append((self._pods.path, error))
        try:
            links = self._links.read()
        except OSError as error:
            failures.append((self._links.path, error))
        if len(failures) == 2:
            raise _unavailable(failures)
        if self._seen != (pods, links):
            taken, left_out = take_pods(_join(pods, links))
            # Directories and links name the same pods and containers.
            left_out["pods"] = max(left_out["pods"], self._pods.left_out)
            left_out["containers"] = max(left_out["containers"], self._links.left_out)
            self._report = PodReport(pods=taken, left_out=left_out)
            self._seen = (pods, links)
        return self._report

    def close(self) -> None:
        """Nothing is kept open between two reads."""


@dataclass(frozen=True, slots=True)
class _Listing(Generic[T]):
    """The content of a directory, and the stamp that shows without another listing that it is unchanged."""

    stamp: tuple[int, int, int]
    settled: bool
    content: T

    def holds_for(self, status: os.stat_result) -> bool:
        return self.settled and self.stamp == _stamp(status)


def _stamp(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_dev, status.st_ino, status.st_mtime_ns


def _list(descriptor: int, read_content: Callable[[int], T]) -> _Listing[T]:
    # The stamp is taken before the content: a change in between is noticed next time.
    status = os.fstat(descriptor)
    settled = time.time_ns() - status.st_mtime_ns > _SETTLED_AFTER_NS
    return _Listing(_stamp(status), settled, read_content(descriptor))


@contextmanager
def _opened(name: str | Path, flags: int = 0, inside: int | None = None) -> Iterator[int]:
    descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | flags, dir_fd=inside)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class _PodsDirectory:
    """/var/log/pods: the pods' directories, and in each the containers'."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.left_out = 0
        self._pods: _Listing[dict[str, Owner]] | None = None
        self._containers: dict[str, _Listing[tuple[str, ...]]] = {}

    def read(self) -> dict[Owner, ContainerNames]:
        with _opened(self.path) as directory_fd:
            if self._pods is None or not self._pods.holds_for(os.fstat(directory_fd)):
                self._pods = _list(directory_fd, self._pod_directories)
            before, self._containers = self._containers, {}
            found: dict[Owner, ContainerNames] = {}
            for name, pod in self._pods.content.items():
                try:
                    found[pod] = self._container_names(directory_fd, name, before.get(name))
                except FileNotFoundError:
                    continue  # removed since it was listed
                except OSError:
                    found[pod] = None  # the name identifies the pod; its content may not be listed
        return found

    def _pod_directories(self, descriptor: int) -> dict[str, Owner]:
        found: dict[str, Owner] = {}
        self.left_out = 0
        for name in _directory_names(descriptor):
            if len(found) == PODS:
                self.left_out += 1
            elif (pod := parse_pod_directory(name)) is not None:
                found[name] = pod
        return found

    def _container_names(
        self, directory_fd: int, name: str, known: _Listing[tuple[str, ...]] | None
    ) -> tuple[str, ...]:
        status = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
        if known is None or not known.holds_for(status):
            with _opened(name, os.O_NOFOLLOW, inside=directory_fd) as directory:
                known = _list(directory, _container_directories)
        self._containers[name] = known
        return known.content


def _directory_names(descriptor: int) -> Iterator[str]:
    with os.scandir(descriptor) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield entry.name


def _container_directories(descriptor: int) -> tuple[str, ...]:
    # One more than a pod may have: `take_pods` counts them.
    names = filter(is_container, _directory_names(descriptor))
    return tuple(sorted(islice(names, CONTAINERS_OF_POD + 1)))


class _LinksDirectory:
    """/var/log/containers: a link for each container, with the pod's UID if the link's target has it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.left_out = 0
        self._links: _Listing[dict[Owner, str]] | None = None

    def read(self) -> dict[Owner, str]:
        with _opened(self.path) as directory_fd:
            if self._links is None or not self._links.holds_for(os.fstat(directory_fd)):
                self._links = _list(directory_fd, self._container_logs)
        return self._links.content

    def _container_logs(self, descriptor: int) -> dict[Owner, str]:
        found: dict[Owner, str] = {}
        self.left_out = 0
        with os.scandir(descriptor) as entries:
            for entry in entries:
                if len(found) == CONTAINERS:
                    self.left_out += 1
                    continue
                log = parse_container_log(entry.name)
                linked_uid = None if log is None else _linked_uid(entry.name, log, descriptor)
                if log is not None and linked_uid is not None:
                    found[log] = linked_uid
        return found


def _linked_uid(name: str, log: Owner, directory_fd: int) -> str | None:
    """The pod's UID, if the link's target has it; None if the link is gone, or contradicts its own name."""
    try:
        target = parse_link_target(os.readlink(name, dir_fd=directory_fd))
    except FileNotFoundError:
        return None
    except OSError:
        target = None  # not a link
    if target is None:
        return ""
    pod, container = target
    named_alike = (pod.namespace, pod.pod, container) == (log.namespace, log.pod, log.container)
    return pod.pod_uid if named_alike else None


def _join(directories: Mapping[Owner, ContainerNames], links: Mapping[Owner, str]) -> tuple[PodInfo, ...]:
    only_uid = _only_uids(directories)
    ids: dict[Owner, dict[str, str]] = {pod: {} for pod in directories}
    for log, linked_uid in links.items():
        # A running container's pod has its directory: if there is one of that name, it is this pod's.
        uid = linked_uid or only_uid.get((log.namespace, log.pod), "")
        pod = Owner("pod", namespace=log.namespace, pod=log.pod, pod_uid=uid)
        ids.setdefault(pod, {})[log.container_id] = log.container
    return tuple(
        _pod_info(pod, directories.get(pod), dict(sorted(ids[pod].items())))
        for pod in sorted(ids, key=lambda pod: (pod.namespace, pod.pod, pod.pod_uid))
    )


def _pod_info(pod: Owner, names: ContainerNames, ids: dict[str, str]) -> PodInfo:
    # A link may be missing (its name was cut), and then another container could be taken for the pod's only
    # one: only the directory lists all containers.
    listed = () if names is None else tuple(sorted({*names, *ids.values()}))
    return PodInfo(pod.namespace, pod.pod, pod.pod_uid, containers=ids, container_names=listed)


def _only_uids(pods: Iterable[Owner]) -> dict[tuple[str, str], str]:
    uids: dict[tuple[str, str], str] = {}
    for pod in pods:
        name = (pod.namespace, pod.pod)
        uids[name] = "" if name in uids else pod.pod_uid
    return uids


def _unavailable(failures: Sequence[tuple[Path, OSError]]) -> Unavailable:
    denied = [path for path, error in failures if isinstance(error, PermissionError)]
    if denied:
        return Unavailable(
            f"no permission to list {denied[0]}",
            "run as root or in the group that owns it; where SELinux is enforced (OpenShift, RHEL), set"
            " seLinuxOptions.type to container_logreader_t, or to spc_t where the policy does not have it",
        )
    if all(isinstance(error, FileNotFoundError) for _, error in failures):
        return Unavailable(
            f"neither {failures[0][0]} nor {failures[1][0]} exists",
            "on a Kubernetes node: mount the hostPath /var/log/containers (or /var/log/pods) read-only;"
            " on other hosts no action is needed",
        )
    reasons = "; ".join(f"{path}: {error.strerror}" for path, error in failures)
    return Unavailable(f"the kubelet's log directories cannot be listed: {reasons}")
