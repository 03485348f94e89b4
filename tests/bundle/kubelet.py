"""The volumes of a pod, laid out on this machine as the kubelet does: containers run without a cluster.

Files of ConfigMaps and Secrets are links into a directory that is swapped as a whole when they change, as
kubelet does it. The paths of a container, wherever they stand, become paths below `root`.
"""

import base64
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

Object = dict[str, Any]
Files = dict[str, str]


class MountedPod:
    """The pod of a workload, below `directory`; `addresses` maps Services to addresses of this machine."""

    def __init__(self, workload: Object, directory: Path, addresses: Mapping[str, str]) -> None:
        self.spec: Object = workload["spec"]["template"]["spec"]
        self.root = directory / "root"
        self._volumes = directory / "volumes"
        self._addresses = addresses
        self._generation = 0
        self._mounts = {
            mount["mountPath"]: mount
            for container in (*self.spec.get("initContainers", []), *self.spec["containers"])
            for mount in container["volumeMounts"]
        }
        paths = sorted(map(re.escape, self._mounts), key=len, reverse=True)
        self._path = re.compile(rf"(?<![\w./-])({'|'.join(paths)})(?![\w-])")

    def write(self, objects: Iterable[Object]) -> None:
        """All volumes, or what has become of them: the objects that they name must be among these."""
        named = {(made["kind"], made["metadata"]["name"]): made for made in objects}
        self._generation += 1
        claimed = {mount["name"] for mount in self._mounts.values()} - {
            volume["name"] for volume in self.spec["volumes"]
        }
        for name in claimed:
            (self._volumes / name).mkdir(parents=True, exist_ok=True)
        for volume in self.spec["volumes"]:
            place = self._volumes / volume["name"]
            place.mkdir(parents=True, exist_ok=True)
            if "emptyDir" not in volume:
                self._swap(place, {name: self.here(text) for name, text in _files(volume, named).items()})
        for path, mount in self._mounts.items():
            link = self.root / path[1:]
            if not link.is_symlink():
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(self._volumes / mount["name"] / mount.get("subPath", ""))

    def here(self, text: str) -> str:
        """Text of the container, with this machine's paths and addresses."""
        for service, address in self._addresses.items():
            text = text.replace(service, address)
        return self._path.sub(rf"{self.root}\1", text)

    def command(self, container: Object) -> list[str]:
        return [self.here(part) for part in (*container.get("command", []), *container.get("args", []))]

    def _swap(self, place: Path, files: Files) -> None:
        new = place / f"..{self._generation}"
        new.mkdir()
        for name, text in files.items():
            (new / name).write_text(text)
            if not (place / name).is_symlink():
                (place / name).symlink_to(Path("..data") / name)
        for link in place.iterdir():
            if link.is_symlink() and link.name != "..data" and link.name not in files:
                link.unlink()
        fresh = place / "..data_new"
        fresh.symlink_to(new.name)
        fresh.rename(place / "..data")


def _files(volume: Object, named: Mapping[tuple[str, str], Object]) -> Files:
    if "projected" in volume:
        return {
            name: text
            for source in volume["projected"]["sources"]
            for name, text in _files(source, named).items()
        }
    if "configMap" in volume:
        source = volume["configMap"]
        data: Files = named["ConfigMap", source["name"]]["data"]
    else:
        source = volume["secret"]
        kept = named["Secret", source.get("secretName") or source["name"]]["data"]
        data = {name: base64.b64decode(value).decode() for name, value in kept.items()}
    if "items" in source:
        return {item["path"]: data[item["key"]] for item in source["items"]}
    return data
