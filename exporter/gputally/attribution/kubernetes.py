"""Pod source `kubernetes`: the pods of this node in the API server, watched on a thread of its own.

Needs `list` and `watch` of pods, and is used only with --kubernetes. Only the first `read` waits for the API
server. Once listed, pods stay known while the API server is unavailable: UIDs are never reused, so an old
report lacks new pods but is not wrong. `stale` is set once the report has not been updated for a while.
"""

import logging
import random
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gputally.attribution import PodReport
from gputally.attribution.kubernetes_pod import AllowedLabels, allowed_labels, mapping, pod_info, text
from gputally.attribution.limits import PODS, take_pods
from gputally.model import PodInfo, Unavailable

if TYPE_CHECKING:
    from gputally.attribution.kubernetes_api import NodePods

log = logging.getLogger(__name__)

_CACHED = "0"  # list from the API server's cache: a thousand nodes may list at once
_LATEST = ""
_JITTER = random.Random()  # noqa: S311 - no secret
_FIRST_PAUSE_SECONDS = 0.5
_SHORTEST_WATCH_SECONDS = 1.0


class Kubernetes:
    """Reports the pods of `node`. The thread starts, and the client is imported, at the first read."""

    name = "kubernetes"

    def __init__(
        self,
        node: str,
        *,
        pod_labels: Sequence[str] = (),
        pod_annotations: Sequence[str] = (),
        node_labels: Sequence[str] = (),
        kubeconfig: Path | None = None,
        first_wait_seconds: float = 2.0,
        watch_seconds: int = 240,
        longest_pause_seconds: float = 30.0,
        overdue_seconds: float = 60.0,
    ) -> None:
        self._node = node
        self._allowed = AllowedLabels(tuple(pod_labels), tuple(pod_annotations))
        self._allowed_on_node = AllowedLabels(tuple(node_labels))
        self._kubeconfig = kubeconfig
        self._first_wait_seconds = first_wait_seconds
        self._watch_seconds = watch_seconds
        self._longest_pause_seconds = longest_pause_seconds
        self._overdue_seconds = overdue_seconds

        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._answered = threading.Event()
        self._api: NodePods | None = None
        # Written by the thread, read by all others: each is replaced as a whole.
        self._report: PodReport | None = None
        self._fault: tuple[str, str] | None = None
        self._down_since: float | None = None
        # Used by the thread only.
        self._pods: dict[str, PodInfo] = {}
        self._beyond: set[str] = set()
        self._node_labels: tuple[tuple[str, str], ...] = ()
        self._version: str | None = None
        self._list_from = _CACHED
        self._warned_of = ""

    def read(self) -> PodReport:
        """The current report. Only the first read waits, for a short time, for the API server."""
        if not self._node:
            raise Unavailable(
                "the name of this node is not known",
                "set NODE_NAME from spec.nodeName (downward API), or set --node-name",
            )
        if self._thread is None or not self._thread.is_alive():
            self._start()
        report = self._report
        if report is not None:
            stale = self.stale
            return replace(report, stale=stale) if stale else report
        raise Unavailable(*(self._fault or ("the API server has not answered yet", "")))

    @property
    def stale(self) -> tuple[str, str] | None:
        """Reason and fix, once the report has not been updated for a while; None while it is."""
        down_since, fault = self._down_since, self._fault
        if fault and down_since is not None and time.monotonic() - down_since >= self._overdue_seconds:
            return fault
        report = self._report
        if report is not None and not report.pods:
            return (
                f"the API server lists no pod of node {self._node}",
                "check that this is the node's name in Kubernetes: kubectl get nodes",
            )
        return None

    def close(self) -> None:
        self._stop.set()
        api = self._api
        if api is not None:
            api.interrupt()
        if self._thread is not None:
            self._thread.join(0.5)  # a thread that is still connecting is a daemon

    def _start(self) -> None:
        if self._stop.is_set():
            raise Unavailable("closed")
        self._thread = threading.Thread(target=self._work, daemon=True, name="watch-kubernetes")
        self._thread.start()
        self._answered.wait(self._first_wait_seconds)

    def _work(self) -> None:
        try:
            from gputally.attribution import kubernetes_api  # noqa: PLC0415 - heavy: imported only with --kubernetes
        except ImportError as error:
            self._went_wrong(
                Unavailable(
                    f"the kubernetes client is missing: {error}", "pip install 'gputally[kubernetes]'"
                )
            )
            self._stop.wait()
            return
        pause_seconds = _FIRST_PAUSE_SECONDS
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                self._follow(kubernetes_api.NodePods(self._node, self._kubeconfig))
            except kubernetes_api.Gone as gone:
                # The API server's cache itself may be too old.
                self._version, self._list_from = None, _LATEST
                self._went_wrong(gone)
            except (kubernetes_api.InvalidResponse, kubernetes_api.Forbidden) as fault:
                # A change may have been missed; or only the watch is forbidden, and listing is allowed.
                self._version = None
                self._went_wrong(fault)
            except Unavailable as fault:
                self._went_wrong(fault)
            if time.monotonic() - began > self._longest_pause_seconds:
                pause_seconds = _FIRST_PAUSE_SECONDS
            # Jitter: all nodes of a cluster lose their API server at once.
            self._stop.wait(pause_seconds * _JITTER.uniform(0.5, 1.0))
            pause_seconds = min(2 * pause_seconds, self._longest_pause_seconds)

    def _follow(self, api: "NodePods") -> None:
        """Lists, then watches from there, until an error. A watch that the server ends is resumed."""
        self._api = api
        try:
            while not self._stop.is_set():
                if self._version is None:
                    self._version = self._list(api)
                    self._list_from = _CACHED
                began = time.monotonic()
                self._version = self._watch(api, self._version)
                if time.monotonic() - began < _SHORTEST_WATCH_SECONDS:
                    raise Unavailable(
                        "the API server, or a proxy before it, ends each watch at once",
                        "check the proxy's timeouts",
                    )
        finally:
            self._api = None
            api.close()

    def _list(self, api: "NodePods") -> str:
        """Lists all pods again; returns the version from which to watch."""
        pods: dict[str, PodInfo] = {}
        version = ""
        self._beyond.clear()
        for page, page_version in api.pages(self._list_from):
            version = page_version
            for item in page:
                self._update(item, pods)
        self._pods = pods
        if self._allowed_on_node.labels:
            self._read_node_labels(api)
        self._publish()
        return version

    def _read_node_labels(self, api: "NodePods") -> None:
        """A failure here is logged and does not affect the pods."""
        try:
            self._node_labels = allowed_labels(api.node(), self._allowed_on_node)
        except Unavailable as fault:
            log.warning("cannot read the labels of node %s: %s (%s)", self._node, fault.reason, fault.fix)

    def _watch(self, api: "NodePods", version: str) -> str:
        """Applies changes until the API server ends the watch; returns the version that was reached."""
        seconds = round(self._watch_seconds * _JITTER.uniform(1.0, 1.25))
        with closing(api.watch(version, seconds)) as events:
            for event in events:
                if event is None:
                    self._recovered()
                    continue
                kind, item = event
                if kind in ("ADDED", "MODIFIED"):
                    changed = self._update(item, self._pods)
                else:
                    changed = kind == "DELETED" and self._pods.pop(_key(item), None) is not None
                    self._beyond.discard(_key(item))
                if changed:
                    self._publish()
                self._version = version = _version(item) or version
        return version

    def _update(self, item: object, pods: dict[str, PodInfo]) -> bool:
        """Whether `PodInfo` has changed: most changes of a pod are to other fields."""
        pod = pod_info(item, self._allowed)
        key = _key(item)
        if pod is None or pod.node != self._node or pods.get(key) == pod:
            return False
        if key not in pods and len(pods) >= PODS:
            if len(self._beyond) < PODS:  # more are not counted
                self._beyond.add(key)
            return True
        pods[key] = pod
        return True

    def _publish(self) -> None:
        pods, left_out = take_pods(self._pods.values())
        left_out["pods"] += len(self._beyond)
        self._report = PodReport(pods=pods, node_labels=self._node_labels, left_out=left_out)
        self._answered.set()

    def _recovered(self) -> None:
        if self._warned_of:
            log.info("watching the pods of node %s again", self._node)
        self._fault, self._down_since, self._warned_of = None, None, ""

    def _went_wrong(self, fault: Unavailable) -> None:
        if self._stop.is_set():
            return  # close() cut the connection
        if self._report is not None and self._down_since is None:
            # API servers are restarted at times: a warning only if the next attempt fails too.
            log.info("the watch of the pods of node %s ended, retrying: %s", self._node, fault.reason)
        elif self._warned_of != fault.reason:
            log.warning("cannot watch the pods of node %s: %s", self._node, fault.reason)
            self._warned_of = fault.reason
        self._fault = (fault.reason, fault.fix)
        if self._down_since is None:
            self._down_since = time.monotonic()
        self._answered.set()


def _key(item: object) -> str:
    metadata = mapping(mapping(item).get("metadata"))
    return text(metadata.get("uid")) or f"{text(metadata.get('namespace'))}/{text(metadata.get('name'))}"


def _version(item: object) -> str:
    return text(mapping(mapping(item).get("metadata")).get("resourceVersion"))
