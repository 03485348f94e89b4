"""Volumes of the test cluster: one for each claim of its class."""

import json
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tools.test_cluster import volumes
from tools.test_cluster.layout import STORAGE_CLASS

Object = dict[str, Any]


class Plane:
    """The API, as far as volumes are concerned."""

    def __init__(self, claims: list[Object], existing: list[Object]) -> None:
        self.lists = {"persistentvolumeclaims": claims, "persistentvolumes": existing}
        self.made: list[Object] = []
        self.deleted: list[str] = []

    def api(self, path: str) -> Object:
        return {"items": self.lists[path.rpartition("/")[2]]}

    def kubectl(self, verb: str, *arguments: str, given: str = "") -> str:
        if verb == "create":
            self.made.append(json.loads(given))
        else:
            self.deleted.append(arguments[1])
        return ""


class Place:
    def __init__(self, directory: Path, claims: list[Object], existing: list[Object]) -> None:
        self.volumes = directory
        self.plane = Plane(claims, existing)


def claim(uid: str, storage_class: str | None = STORAGE_CLASS) -> Object:
    spec: Object = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}}
    if storage_class is not None:
        spec["storageClassName"] = storage_class
    return {"metadata": {"namespace": "a", "name": "data", "uid": uid}, "spec": spec}


def volume(made: Mapping[str, Any], phase: str) -> Object:
    return {**made, "status": {"phase": phase}}


def test_a_claim_of_the_class_gets_a_world_writable_directory(tmp_path: Path) -> None:
    place = Place(tmp_path, [claim("1"), claim("2", "another"), claim("3", None)], [])

    volumes.serve(place)  # type: ignore[arg-type]

    (made,) = place.plane.made
    assert made["spec"]["claimRef"]["uid"] == "1"
    assert made["spec"]["capacity"] == {"storage": "5Gi"}
    directory = Path(made["spec"]["hostPath"]["path"])
    assert stat.S_IMODE(directory.stat().st_mode) == 0o777


def test_a_bound_claim_gets_no_second_volume(tmp_path: Path) -> None:
    place = Place(tmp_path, [claim("1")], [volume(volumes.volume_for(claim("1"), tmp_path), "Bound")])

    volumes.serve(place)  # type: ignore[arg-type]

    assert (place.plane.made, place.plane.deleted) == ([], [])


@pytest.mark.parametrize(("phase", "stays"), [("Released", False), ("Bound", True), ("Available", True)])
def test_a_volume_is_removed_with_its_claim(tmp_path: Path, phase: str, stays: bool) -> None:
    (tmp_path / "pvc-1").mkdir()
    place = Place(tmp_path, [], [volume(volumes.volume_for(claim("1"), tmp_path), phase)])

    volumes.serve(place)  # type: ignore[arg-type]

    assert (tmp_path / "pvc-1").exists() is stays
    assert place.plane.deleted == ([] if stays else ["pvc-1"])
