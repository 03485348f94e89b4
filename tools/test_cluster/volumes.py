"""Persistent volumes: a folder for each claim of the cluster's storage class, removed after the claim.

As on other small clusters, anybody may write into a volume: a folder of the node knows no `fsGroup`.
"""

import json
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools import Failed
from tools.test_cluster.layout import STORAGE_CLASS, Layout

_SECONDS = 0.5
_PROVISIONER = "gputally.io/folders"

Object = Mapping[str, Any]

CLASS: Object = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {
        "name": STORAGE_CLASS,
        "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
    },
    "provisioner": _PROVISIONER,
}


def volume_for(claim: Object, folder: Path) -> Object:
    """The volume that a claim gets, bound to it and to no other."""
    about, wanted = claim["metadata"], claim["spec"]
    reference = {"kind": "PersistentVolumeClaim", "apiVersion": "v1"}
    reference |= {key: about[key] for key in ("namespace", "name", "uid")}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": name_of(claim),
            "annotations": {"pv.kubernetes.io/provisioned-by": _PROVISIONER},
        },
        "spec": {
            "capacity": {"storage": wanted["resources"]["requests"]["storage"]},
            "accessModes": wanted["accessModes"],
            "storageClassName": STORAGE_CLASS,
            # The controllers cannot empty a folder: it is done here.
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": reference,
            "hostPath": {"path": str(folder / name_of(claim)), "type": "Directory"},
        },
    }


def name_of(claim: Object) -> str:
    return f"pvc-{claim['metadata']['uid']}"


def serve(place: Layout) -> None:
    """Look once for claims that wait, and for volumes whose claim has gone."""
    plane = place.plane
    claims = plane.api("/api/v1/persistentvolumeclaims")["items"]
    volumes = plane.api("/api/v1/persistentvolumes")["items"]
    known = {volume["metadata"]["name"] for volume in volumes}
    for claim in claims:
        if claim["spec"].get("storageClassName") == STORAGE_CLASS and name_of(claim) not in known:
            folder = place.volumes / name_of(claim)
            folder.mkdir(exist_ok=True)
            folder.chmod(0o777)
            plane.kubectl("create", "--filename=-", given=json.dumps(volume_for(claim, place.volumes)))
    for volume in volumes:
        ours = volume["spec"].get("storageClassName") == STORAGE_CLASS
        if ours and volume.get("status", {}).get("phase") == "Released":
            plane.kubectl("delete", "persistentvolume", volume["metadata"]["name"], "--wait=false")
            shutil.rmtree(place.volumes / volume["metadata"]["name"], ignore_errors=True)


def main() -> None:
    place = Layout(Path(sys.argv[1]))
    place.plane.kubectl("apply", "--filename=-", given=json.dumps(CLASS))
    while True:
        try:
            serve(place)
        except (Failed, OSError) as failure:
            # The API server may be about to start again.
            print(failure, flush=True)
        time.sleep(_SECONDS)


if __name__ == "__main__":
    main()
