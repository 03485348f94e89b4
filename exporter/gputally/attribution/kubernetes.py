"""The pods of this node as the API server knows them: kept current by a watch, on a thread of its own.

Needs `list` and `watch` of pods, and is only used when asked for. No `read` but the first waits for
the API server. Once listed, pods stay known while the API server is away: a UID is never given to another
pod, so that old knowledge lacks new pods but is not wrong. `trouble` says that it is getting old.
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

from gputally.attribution import Knowledge, PodFacts
from gputally.attribution.kubernetes_facts import Allowed, allowed_labels, pod_facts
from gputally.attribution.kubernetes_json import mapping, text
from gputally.model import Unavailable

if TYPE_CHECKING:
    from gputally.attribution.kubernetes_api import NodePods

log = logging.getLogger(__name__)

_AT_HAND = "0"  # list what the API server has in memory: a thousand nodes may ask at once
_LATEST = ""
_JITTER = random.Random()  # noqa: S311 - no secret
_FIRST_PAUSE_SECONDS = 0.5
_SHORTEST_WATCH_SECONDS = 1.0


class Kubernetes:
    """Knowledge of the pods of `node`. The thread starts, and the client is imported, at the first read."""

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
        self._allowed = Allowed(tuple(pod_labels), tuple(pod_annotations))
        self._allowed_of_node = Allowed(tuple(node_labels))
        self._kubeconfig = kubeconfig
        self._first_wait_seconds = first_wait_seconds
        self._watch_seconds = watch_seconds
        self._longest_pause_seconds = longest_pause_seconds
        self._overdue_seconds = overdue_seconds

        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._answered = threading.Event()
        self._api: NodePods | None = None
        # Written by the thread, read by everybody: each is replaced whole.
        self._knowledge: Knowledge | None = None
        self._fault: tuple[str, str] | None = None
        self._down_since: float | None = None
        # The thread's own.
        self._pods: dict[str, PodFacts] = {}
        self._node_labels: tuple[tuple[str, str], ...] = ()
        self._version: str | None = None
        self._list_from = _AT_HAND
        self._warned_of = ""

    def read(self) -> Knowledge:
        """What is known now. Only the very first read waits, for a moment, for the API server's answer."""
        if not self._node:
            raise Unavailable(
                "the name of this node is not known",
                "set NODE_NAME from spec.nodeName (downward API), or name the node",
            )
        if self._thread is None or not self._thread.is_alive():
            self._start()
        knowledge = self._knowledge
        if knowledge is not None:
            trouble = self.trouble
            return replace(knowledge, stale=(trouble.reason, trouble.fix)) if trouble else knowledge
        raise Unavailable(*(self._fault or ("the API server has not answered yet", "")))

    @property
    def trouble(self) -> Unavailable | None:
        """What keeps the knowledge from being renewed, once that lasts; None when all is well."""
        down_since, fault = self._down_since, self._fault
        if fault and down_since is not None and time.monotonic() - down_since >= self._overdue_seconds:
            return Unavailable(*fault)
        knowledge = self._knowledge
        if knowledge is not None and not knowledge.pods:
            return Unavailable(
                f"the API server knows no pod of node {self._node}",
                "see that this is the node's name in Kubernetes: kubectl get nodes",
            )
        return None

    def close(self) -> None:
        self._stop.set()
        api = self._api
        if api is not None:
            api.interrupt()
        if self._thread is not None:
            self._thread.join(0.5)  # whoever is still connecting ends by itself, as a daemon

    def _start(self) -> None:
        if self._stop.is_set():
            raise Unavailable("closed")
        self._thread = threading.Thread(target=self._work, daemon=True, name="watch-kubernetes")
        self._thread.start()
        self._answered.wait(self._first_wait_seconds)

    def _work(self) -> None:
        try:
            from gputally.attribution import kubernetes_api  # noqa: PLC0415 - heavy: only who asks pays
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
                # What the API server has at hand may be the very thing that is too old.
                self._version, self._list_from = None, _LATEST
                self._went_wrong(gone)
            except (kubernetes_api.Garbled, kubernetes_api.Refused) as fault:
                # A change may have been missed; or only the watch is refused, and listing is what is left.
                self._version = None
                self._went_wrong(fault)
            except Unavailable as away:
                self._went_wrong(away)
            if time.monotonic() - began > self._longest_pause_seconds:
                pause_seconds = _FIRST_PAUSE_SECONDS
            # Jitter: the nodes of a cluster lose their API server all at once.
            self._stop.wait(pause_seconds * _JITTER.uniform(0.5, 1.0))
            pause_seconds = min(2 * pause_seconds, self._longest_pause_seconds)

    def _follow(self, api: "NodePods") -> None:
        """List, then watch from there, until something goes wrong. A watch that was cut is taken up again."""
        self._api = api
        try:
            while not self._stop.is_set():
                if self._version is None:
                    self._version = self._list(api)
                    self._list_from = _AT_HAND
                began = time.monotonic()
                self._version = self._watch(api, self._version)
                if time.monotonic() - began < _SHORTEST_WATCH_SECONDS:
                    raise Unavailable("the API server, or a proxy before it, ends each watch at once")
        finally:
            self._api = None
            api.close()

    def _list(self, api: "NodePods") -> str:
        """Learn all pods anew; returns the version from which to watch."""
        pods: dict[str, PodFacts] = {}
        version = ""
        for page, page_version in api.pages(self._list_from):
            version = page_version
            for item in page:
                self._learn(item, pods)
        self._pods = pods
        if self._allowed_of_node.labels:
            self._learn_node(api)
        self._publish()
        return version

    def _learn_node(self, api: "NodePods") -> None:
        """Pods are known without it: what goes wrong here is said and harms nothing else."""
        try:
            self._node_labels = allowed_labels(api.node(), self._allowed_of_node)
        except Unavailable as fault:
            log.warning("the labels of node %s cannot be read: %s (%s)", self._node, fault.reason, fault.fix)

    def _watch(self, api: "NodePods", version: str) -> str:
        """Take in changes until the API server ends the watch; returns the version that was reached."""
        seconds = round(self._watch_seconds * _JITTER.uniform(1.0, 1.25))
        with closing(api.watch(version, seconds)) as events:
            for event in events:
                if event is None:
                    self._recovered()
                    continue
                kind, item = event
                if kind in ("ADDED", "MODIFIED"):
                    changed = self._learn(item, self._pods)
                else:
                    changed = kind == "DELETED" and self._pods.pop(_key(item), None) is not None
                if changed:
                    self._publish()
                self._version = version = _version(item) or version
        return version

    def _learn(self, item: object, pods: dict[str, PodFacts]) -> bool:
        """Whether there was anything new in it: most changes of a pod are none of ours."""
        facts = pod_facts(item, self._allowed)
        key = _key(item)
        if facts is None or facts.node != self._node or pods.get(key) == facts:
            return False
        pods[key] = facts
        return True

    def _publish(self) -> None:
        self._knowledge = Knowledge(pods=tuple(self._pods.values()), node_labels=self._node_labels)
        self._answered.set()

    def _recovered(self) -> None:
        if self._warned_of:
            log.info("the pods of node %s are watched again", self._node)
        self._fault, self._down_since, self._warned_of = None, None, ""

    def _went_wrong(self, fault: Unavailable) -> None:
        if self._stop.is_set():
            return  # we cut the connection ourselves
        if self._knowledge is not None and self._down_since is None:
            # Every API server is restarted at times: worth a warning only if the next try fails as well.
            log.info("the pods of node %s are no longer watched, trying again: %s", self._node, fault.reason)
        elif self._warned_of != fault.reason:
            log.warning("the pods of node %s cannot be watched: %s", self._node, fault.reason)
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
