"""Sources that know every GPU of a few nodes: this host, the simulator, or exporters (--connect)."""

import concurrent.futures
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gputally.commands.top.documents import (
    Node,
    followed,
    mean,
    page_of,
    read_document,
    total,
    totals_of,
    unreachable,
)
from gputally.commands.top.minutes import GRAPH_SECONDS, Minutes
from gputally.commands.top.page import GPUS, NODES, OWNERS, Graph, Page, PodName, Query, Totals
from gputally.commands.verify.servers import LoginRequired, NotFound, RemoteServer, RequestFailed
from gputally.model import Snapshot, Unavailable
from gputally.pages.document import About, build_document

_MOST_REQUESTS = 16
_LONGEST_WAIT_SECONDS = 4.0


class Nodes(ABC):
    """The pages of nodes whose documents were read."""

    views: tuple[str, ...] = (GPUS, OWNERS, NODES)

    def __init__(self, title: str) -> None:
        self._title = title
        self._nodes: list[Node] = []
        self._minutes = Minutes()
        self._of_pods: dict[PodName, Minutes] = {}

    @abstractmethod
    def read(self) -> list[Node]: ...

    def refresh(self) -> None:
        self._nodes = self.read()
        at = max((node.taken_at_seconds for node in self._nodes), default=0)
        totals = totals_of(self._nodes)
        self._minutes.add(at, totals.utilization_ratio, totals.power_watts)
        self._remember_pods(at)

    def page(self, query: Query) -> Page:
        page = page_of(self._nodes, query, self._title)
        minutes, totals = self._minutes, page.totals
        if query.pod is not None:
            parts = followed(self._nodes, query.pod)
            minutes = self._of_pods.get(query.pod, Minutes())
            totals = Totals(
                nodes=len({part.node for part in parts}),
                gpus=len(parts),
                gpus_up=len(parts),
                utilization_ratio=mean(part.utilization_ratio for part in parts),
                memory_used_bytes=total(part.memory_used_bytes for part in parts),
                power_watts=total(part.power_watts for part in parts),
            )
        utilization, power = minutes.graphs(query.points)
        return replace(
            page,
            totals=totals,
            utilization_graph=Graph("utilisation", utilization, 1.0),
            power_graph=Graph("power", power, max((value or 0 for value in power), default=0) or 1.0),
            graph_seconds=GRAPH_SECONDS,
        )

    @abstractmethod
    def close(self) -> None: ...

    def _remember_pods(self, at: float) -> None:
        names = {
            (owner.namespace, owner.pod)
            for node in self._nodes
            for device in node.devices
            for owner in device.owners
            if owner.pod and owner.active
        }
        self._of_pods = {name: self._of_pods.get(name, Minutes()) for name in names}
        for name, minutes in self._of_pods.items():
            parts = followed(self._nodes, name)
            minutes.add(
                at, mean(part.utilization_ratio for part in parts), total(part.power_watts for part in parts)
            )


class ThisHost(Nodes):
    """The GPUs of this host, or simulated ones, sampled as `serve` does."""

    def __init__(self, sample: Callable[[], Snapshot], close: Callable[[], object], about: About) -> None:
        super().__init__(about.hostname)
        self._sample = sample
        self._close = close
        self._about = about
        self._previous: Snapshot | None = None

    def read(self) -> list[Node]:
        snapshot = self._sample()
        document = build_document(snapshot, self._previous, self._about)
        self._previous = snapshot
        return [read_document(document)]

    def close(self) -> None:
        self._close()


class Exporters(Nodes):
    """Exporters at these addresses; one that does not respond hides no other."""

    def __init__(self, servers: Sequence[RemoteServer]) -> None:
        super().__init__(servers[0].url if len(servers) == 1 else f"{len(servers)} exporters")
        self._servers = servers
        self._pool = concurrent.futures.ThreadPoolExecutor(min(len(servers), _MOST_REQUESTS))
        self._pending: dict[int, concurrent.futures.Future[Node]] = {}
        self._last: dict[int, Node] = {}
        self._history_read = False

    def read(self) -> list[Node]:
        for number, server in enumerate(self._servers):
            if number not in self._pending:
                self._pending[number] = self._pool.submit(_read, server)
        concurrent.futures.wait(self._pending.values(), _LONGEST_WAIT_SECONDS)
        for number, server in enumerate(self._servers):
            if self._pending[number].done():
                self._last[number] = self._pending.pop(number).result()
            else:
                reason = f"no response for {_LONGEST_WAIT_SECONDS:.0f} s"
                self._last[number] = unreachable(server.url, reason, "wait, or check the network")
        nodes = [self._last[number] for number in range(len(self._servers))]
        if not any(node.taken_at_seconds for node in nodes):
            problem = nodes[0].problems[0]
            more = f" (and {len(nodes) - 1} more exporters)" if len(nodes) > 1 else ""
            raise Unavailable(f"{problem.subject}: {problem.reason}{more}", problem.fix)
        if not self._history_read:
            self._history_read = True
            self._read_history()
        return _with_own_names(nodes, self._servers)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _read_history(self) -> None:
        """The minutes before the first snapshot, as far as the first exporters have them."""
        histories = [*self._pool.map(_history, self._servers[:_MOST_REQUESTS])]
        for at, utilization, power in summed([one for one in histories if one]):
            self._minutes.add(at, utilization, power)


def summed(
    histories: Sequence[Mapping[str, Any]],
) -> list[tuple[float, float | None, float | None]]:
    """(time, mean utilisation, power) of all GPUs for the steps of the first history, oldest first."""
    if not histories:
        return []
    gpus = [gpu for history in histories for gpu in history["gpus"]]
    step, until = histories[0]["step_seconds"], histories[0]["until_seconds"]
    length = min((len(gpu["utilization_ratio"]) for gpu in gpus), default=0)
    return [
        (
            until - step * (ago - 0.5),
            mean(gpu["utilization_ratio"][-ago] for gpu in gpus),
            total(gpu["power_watts"][-ago] for gpu in gpus),
        )
        # The last step may still be filling.
        for ago in range(length, 1, -1)
    ]


def _history(server: RemoteServer) -> Mapping[str, Any] | None:
    try:
        history: Mapping[str, Any] = server.get_json("/api/v1/history")
    except RequestFailed:
        return None
    return history


def _read(server: RemoteServer) -> Node:
    try:
        node = read_document(server.get_json("/api/v1/snapshot"))
    except LoginRequired as error:
        return unreachable(
            server.url, str(error), "give a directory with the files username and password: --login"
        )
    except NotFound:
        return unreachable(
            server.url,
            "HTTP 404: it has no /api/v1/snapshot",
            "update the exporter, or start it without --live-page false",
        )
    except RequestFailed as error:
        return unreachable(server.url, str(error), f"check the address: curl {server.url.rstrip('/')}/readyz")
    except (KeyError, TypeError, IndexError):
        return unreachable(server.url, "the response is not from an exporter", "check the address")
    return node if node.taken_at_seconds else replace(node, taken_at_seconds=time.time())


def _with_own_names(nodes: list[Node], servers: Sequence[RemoteServer]) -> list[Node]:
    """Nodes with the same host name are named by their addresses as well."""
    names = [node.name for node in nodes]
    return [
        node if names.count(node.name) == 1 else _renamed(node, f"{node.name} ({_address(server.url)})")
        for node, server in zip(nodes, servers, strict=True)
    ]


def _renamed(node: Node, name: str) -> Node:
    devices = tuple(
        replace(
            one,
            gpu=replace(one.gpu, node=name),
            owners=tuple(replace(owner, node=name) for owner in one.owners),
        )
        for one in node.devices
    )
    return replace(node, name=name, devices=devices)


def _address(url: str) -> str:
    return url.partition("://")[2].rstrip("/")
