"""Names of pods and containers from the kubelet's log folders, without the Kubernetes API.

Only names are read, never a log:

- /var/log/pods/<namespace>_<pod>_<uid>/<container>/ are directories, made before the pod starts and
  removed after it is deleted. The UID is the one in the cgroup path, for static pods too.
- /var/log/containers/<pod>_<namespace>_<container>-<container id>.log are links into the above, there
  while the container is. The kubelet cuts these names at 251 characters, and the id with them.

Either folder alone is enough for namespace and pod.
"""

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Generic, TypeVar

from gputally.attribution import Knowledge, PodFacts
from gputally.attribution.pod_names import is_container, is_namespace, is_pod, pod_uid
from gputally.model import Unavailable

_CONTAINER_LOG = re.compile(r"([^_]+)_([^_]+)_([^_]+)-([0-9a-f]{64})\.log")

# A directory that changed this lately may change again within the same tick of its file system's clock,
# and its time of change would not tell. The coarsest clocks in use tick once a second.
_SETTLED_AFTER_NS = 2_000_000_000

# One new container changes a folder, and nearly all names in it are old ones: they are not parsed again.
_NAMES_REMEMBERED = 2048

T = TypeVar("T")
ContainerNames = tuple[str, ...] | None  # None: not known


@dataclass(frozen=True, slots=True, order=True)
class PodDirectory:
    """What the name of a directory in /var/log/pods says."""

    namespace: str
    pod: str
    uid: str


@dataclass(frozen=True, slots=True)
class ContainerLog:
    """What the name of a link in /var/log/containers says."""

    namespace: str
    pod: str
    container: str
    container_id: str


@lru_cache(_NAMES_REMEMBERED)
def parse_pod_directory(name: str) -> PodDirectory | None:
    """From <namespace>_<pod>_<uid>. Kubelets before 1.14 wrote the UID alone: that names nobody."""
    parts = name.split("_")
    if len(parts) != 3 or not is_namespace(parts[0]) or not is_pod(parts[1]):
        return None
    uid = pod_uid(parts[2])
    return PodDirectory(parts[0], parts[1], uid) if uid else None


@lru_cache(_NAMES_REMEMBERED)
def parse_container_log(name: str) -> ContainerLog | None:
    """From <pod>_<namespace>_<container>-<64 hex digits>.log; None when the id has been cut off.

    A container's name has at most 63 characters, so the 64 digits cannot be a part of it.
    """
    match = _CONTAINER_LOG.fullmatch(name)
    if not match:
        return None
    pod, namespace, container, container_id = match.groups()
    if not is_pod(pod) or not is_namespace(namespace) or not is_container(container):
        return None
    return ContainerLog(namespace, pod, container, container_id)


def parse_link_target(target: str) -> tuple[PodDirectory, str] | None:
    """The pod and the container's name from .../<namespace>_<pod>_<uid>/<container>/<n>.log."""
    parts = target.rsplit("/", 3)
    directory = parse_pod_directory(parts[1]) if len(parts) == 4 else None
    return (directory, parts[2]) if directory and is_container(parts[2]) else None


class PodLogs:
    """The source `pod_logs`. While nothing changes on disk, `read` gives the very same Knowledge."""

    name = "pod_logs"

    def __init__(
        self, pods_dir: Path = Path("/var/log/pods"), containers_dir: Path = Path("/var/log/containers")
    ) -> None:
        self._pods = _PodsFolder(pods_dir)
        self._links = _LinksFolder(containers_dir)
        self._seen: tuple[object, object] | None = None
        self._knowledge = Knowledge()

    def read(self) -> Knowledge:
        failures: list[tuple[Path, OSError]] = []
        pods: Mapping[PodDirectory, ContainerNames] = {}
        links: Mapping[ContainerLog, str] = {}
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
            self._knowledge = Knowledge(pods=_facts(pods, links))
            self._seen = (pods, links)
        return self._knowledge

    def close(self) -> None:
        """Nothing is held open between two looks."""


@dataclass(frozen=True, slots=True)
class _Listing(Generic[T]):
    """What a directory held, and how to see without listing it again that it still does."""

    stamp: tuple[int, int, int]
    settled: bool
    content: T

    def holds_for(self, status: os.stat_result) -> bool:
        return self.settled and self.stamp == _stamp(status)


def _stamp(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_dev, status.st_ino, status.st_mtime_ns


def _list(descriptor: int, read_content: Callable[[int], T]) -> _Listing[T]:
    # The stamp is taken before the content: a change in between is seen as one next time.
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


class _PodsFolder:
    """/var/log/pods: the pods' directories, and in each the containers'."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._pods: _Listing[dict[str, PodDirectory]] | None = None
        self._containers: dict[str, _Listing[tuple[str, ...]]] = {}

    def read(self) -> dict[PodDirectory, ContainerNames]:
        with _opened(self.path) as folder:
            if self._pods is None or not self._pods.holds_for(os.fstat(folder)):
                self._pods = _list(folder, _pod_directories)
            before, self._containers = self._containers, {}
            found: dict[PodDirectory, ContainerNames] = {}
            for name, pod in self._pods.content.items():
                try:
                    found[pod] = self._container_names(folder, name, before.get(name))
                except FileNotFoundError:
                    continue  # removed since it was listed
                except OSError:
                    found[pod] = None  # its own name says who it is; what is in it may not be seen
        return found

    def _container_names(
        self, folder: int, name: str, known: _Listing[tuple[str, ...]] | None
    ) -> tuple[str, ...]:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if known is None or not known.holds_for(status):
            with _opened(name, os.O_NOFOLLOW, inside=folder) as directory:
                known = _list(directory, _container_directories)
        self._containers[name] = known
        return known.content


def _directory_names(descriptor: int) -> list[str]:
    with os.scandir(descriptor) as entries:
        return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]


def _pod_directories(descriptor: int) -> dict[str, PodDirectory]:
    names = _directory_names(descriptor)
    return {name: pod for name in names if (pod := parse_pod_directory(name)) is not None}


def _container_directories(descriptor: int) -> tuple[str, ...]:
    return tuple(sorted(filter(is_container, _directory_names(descriptor))))


class _LinksFolder:
    """/var/log/containers: a link for each container, to the pod's UID where the link's target tells it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._links: _Listing[dict[ContainerLog, str]] | None = None

    def read(self) -> dict[ContainerLog, str]:
        with _opened(self.path) as folder:
            if self._links is None or not self._links.holds_for(os.fstat(folder)):
                self._links = _list(folder, _container_logs)
        return self._links.content


def _container_logs(descriptor: int) -> dict[ContainerLog, str]:
    found = {}
    for name in os.listdir(descriptor):
        log = parse_container_log(name)
        if log is None:
            continue
        try:
            target = parse_link_target(os.readlink(name, dir_fd=descriptor))
        except FileNotFoundError:
            continue
        except OSError:
            target = None  # no link
        if target is None:
            found[log] = ""
        elif (target[0].namespace, target[0].pod, target[1]) == (log.namespace, log.pod, log.container):
            found[log] = target[0].uid
        # A link whose name and target contradict each other tells nothing.
    return found


def _facts(
    directories: Mapping[PodDirectory, ContainerNames], links: Mapping[ContainerLog, str]
) -> tuple[PodFacts, ...]:
    only_uid = _only_uids(directories)
    ids: dict[PodDirectory, dict[str, str]] = {pod: {} for pod in directories}
    for log, linked_uid in links.items():
        # A running container's pod has its directory: where there is one of that name, it is the one.
        uid = linked_uid or only_uid.get((log.namespace, log.pod), "")
        pod = PodDirectory(log.namespace, log.pod, uid)
        ids.setdefault(pod, {})[log.container_id] = log.container
    return tuple(_pod_facts(pod, directories.get(pod), dict(sorted(ids[pod].items()))) for pod in sorted(ids))


def _pod_facts(pod: PodDirectory, names: ContainerNames, ids: dict[str, str]) -> PodFacts:
    # Links alone may lack a container (its name was cut), and a list that lacks one could make another
    # look like the pod's only container: it takes the directory to list them.
    listed = () if names is None else tuple(sorted({*names, *ids.values()}))
    return PodFacts(pod.namespace, pod.pod, pod.uid, containers=ids, container_names=listed)


def _only_uids(pods: Iterable[PodDirectory]) -> dict[tuple[str, str], str]:
    uids: dict[tuple[str, str], str] = {}
    for pod in pods:
        name = (pod.namespace, pod.pod)
        uids[name] = "" if name in uids else pod.uid
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
            f"neither {failures[0][0]} nor {failures[1][0]} is there",
            "on a Kubernetes node: mount the hostPath /var/log/pods (and /var/log/containers) read-only;"
            " elsewhere nothing is missing",
        )
    reasons = "; ".join(f"{path}: {error.strerror}" for path, error in failures)
    return Unavailable(f"the kubelet's log folders cannot be listed: {reasons}")
