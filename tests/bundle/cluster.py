"""Releases of the chart on a control plane, and all that is in it."""

import copy
import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tools.dependencies import programs
from tools.servers.control_plane import ControlPlane

Object = dict[str, Any]
Place = tuple[str, str, str]
"""Kind, namespace and name of an object."""
# Written by the cluster itself, whenever it likes.
_UNNOTED = ("Event", "Lease", "APIService")
_IN_EVERY_NAMESPACE = {("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")}
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def place(found: Object) -> Place:
    return found["kind"], found["metadata"].get("namespace", ""), found["metadata"]["name"]


def everything(plane: ControlPlane) -> set[Place]:
    """All objects of the cluster, of whatever kind, but for those that come and go by themselves."""
    return {
        place({"kind": kind, "metadata": item["metadata"]})
        for path, kind in resources(plane).values()
        if kind not in _UNNOTED
        for item in plane.api(path, _METADATA)["items"] or ()
        if (kind, item["metadata"]["name"]) not in _IN_EVERY_NAMESPACE
    }


def read(plane: ControlPlane, made: Iterable[Object]) -> dict[Place, Object]:
    """These objects as the cluster has them. Raises Failed if one is not there."""
    found = json.loads(plane.kubectl("get", "--filename=-", "--output=json", given=as_list(made)))
    return {place(each): each for each in found["items"]}


def as_list(made: Iterable[Object]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [*made]})


def resources(plane: ControlPlane) -> dict[str, tuple[str, str]]:
    """Resource and group, as in `pods.` or `jobs.batch` -> where its objects are listed, and their kind."""
    found: dict[str, tuple[str, str]] = {}
    for root in ("/api", "/apis"):
        for group in plane.api(root, _DISCOVERY)["items"]:
            name = group["metadata"].get("name", "")
            for version in group["versions"]:
                path = "/".join(filter(None, (root, name, version["version"])))
                for resource in version["resources"]:
                    if "list" in resource["verbs"]:
                        plural = resource["resource"]
                        listed = f"{path}/{plural}", resource["responseKind"]["kind"]
                        found.setdefault(f"{plural}.{name}", listed)
    return found


def as_written(found: Object) -> Object:
    """An object without what the cluster itself notes in it."""
    kept = copy.deepcopy(found)
    kept.pop("status", None)
    for key in ("resourceVersion", "generation", "managedFields", "creationTimestamp", "uid"):
        kept["metadata"].pop(key, None)
    for key in ("deprecated.daemonset.template.generation", "deployment.kubernetes.io/revision"):
        kept["metadata"].get("annotations", {}).pop(key, None)
    for key in ("clusterIP", "clusterIPs"):
        kept.get("spec", {}).pop(key, None)
    return kept


@dataclass(frozen=True, slots=True)
class Release:
    """A release in a namespace, by Helm 3 or, as `helm-4`, by Helm 4."""

    plane: ControlPlane
    namespace: str
    name: str = "gpus"
    program: str = "helm"

    def helm(self, *arguments: str | Path, values: Mapping[str, Any] | None = None) -> str:
        command: list[str | Path] = [programs.path(self.program), *arguments, "--namespace", self.namespace]
        if values is not None:
            command += ["--values", "-"]
        ran = subprocess.run(
            command,
            input=json.dumps(values),
            env=self.plane.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, f"{' '.join(map(str, command))}\n{ran.stderr}"
        return ran.stdout

    def install(self, source: Path, values: Mapping[str, Any]) -> None:
        self.helm("install", self.name, source, values=values)

    def upgrade(self, source: Path, values: Mapping[str, Any], *flags: str) -> None:
        self.helm("upgrade", self.name, source, *flags, values=values)

    def roll_back(self, revision: int) -> None:
        self.helm("rollback", self.name, str(revision))

    def uninstall(self) -> None:
        self.helm("uninstall", self.name)

    def installed(self) -> dict[Place, Object]:
        """What Helm has installed, as the cluster has it."""
        made = self._made(self.helm("get", "manifest", self.name))
        return {at: as_written(found) for at, found in read(self.plane, made).items()}

    def rendered(self, source: Path, values: Mapping[str, Any]) -> list[Object]:
        """What `helm template` gives, as Argo CD would apply it."""
        return [*self._made(self.helm("template", self.name, source, "--no-hooks", values=values))]

    def bytes_in_cluster(self) -> int:
        """Size of the largest Secret in which Helm keeps the release."""
        secrets = self.plane.api(f"/api/v1/namespaces/{self.namespace}/secrets")["items"]
        return max(
            len(secret["data"]["release"]) * 3 // 4
            for secret in secrets
            if secret["metadata"]["name"].startswith(f"sh.helm.release.v1.{self.name}.")
        )

    @staticmethod
    def _made(text: str) -> Iterator[Object]:
        yield from (made for made in yaml.load_all(text, yaml.CSafeLoader) if made)
