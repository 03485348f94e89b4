"""Runs the Prometheus operator against a cluster, and reads what it generates from our objects.

The cluster must have its definitions (the program set prometheus-operator-crds) before it starts.
"""

import base64
import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.dependencies import programs
from tools.servers.children import Child, Children
from tools.servers.control_plane import ControlPlane
from tools.servers.ports import HOST, free_port
from tools.servers.waiting import responds, wait_until

_SECONDS_TO_START = 60


@dataclass(frozen=True, slots=True)
class Generated:
    """The configuration that the operator generated for a Prometheus or Alertmanager; empty before that."""

    plane: ControlPlane
    namespace: str

    def prometheus(self, name: str) -> str:
        """The configuration of this Prometheus."""
        return self._unpacked(f"prometheus-{name}", "prometheus.yaml.gz")

    def rules(self, name: str) -> dict[str, str]:
        """The rule files of this Prometheus: name -> text."""
        prefix = f"prometheus-{name}-rulefiles-"
        found: dict[str, str] = {}
        for config_map in self._all("configmaps"):
            if config_map["metadata"]["name"].startswith(prefix):
                found |= config_map.get("data", {})
        return found

    def alertmanager(self, name: str) -> str:
        """The configuration of this Alertmanager."""
        return self._unpacked(f"alertmanager-{name}-generated", "alertmanager.yaml.gz")

    def warnings(self) -> list[str]:
        """The warnings in the events of the namespace.

        Without those of the API server's repair loop, which may see a Service before its address.
        """
        return [
            f"{event['involvedObject']['kind']} {event['involvedObject']['name']}: {event['message']}"
            for event in self._all("events")
            if event["type"] == "Warning" and event["reason"] != "ClusterIPNotAllocated"
        ]

    def _unpacked(self, secret: str, key: str) -> str:
        for found in self._all("secrets"):
            if found["metadata"]["name"] == secret and key in found.get("data", {}):
                return gzip.decompress(base64.b64decode(found["data"][key])).decode()
        return ""

    def _all(self, resource: str) -> list[Any]:
        items: list[Any] = self.plane.api(f"/api/v1/namespaces/{self.namespace}/{resource}")["items"]
        return items


@contextmanager
def operating(plane: ControlPlane, *, reloader: str | None = None) -> Iterator[None]:
    """An operator for all namespaces, until the block ends.

    `reloader` is the image of prometheus-config-reloader, for a cluster that has nodes to run it.
    """
    address = f"{HOST}:{free_port()}"
    command: list[str | Path] = [
        programs.path("prometheus-operator"),
        f"--apiserver={plane.url}",
        f"--ca-file={plane.authority}",
        f"--cert-file={plane.certificate}",
        f"--key-file={plane.key}",
        f"--web.listen-address={address}",
        *([f"--prometheus-config-reloader={reloader}"] if reloader else []),
    ]
    with Children() as children:
        log = plane.directory / "prometheus-operator.log"
        children.start(Child("prometheus-operator", command, plane.directory, log))
        wait_until(
            lambda: responds(f"http://{address}/healthz"),
            "the Prometheus operator is ready",
            _SECONDS_TO_START,
            check=children.check,
        )
        yield
        children.check()
