"""Persistent volumes: a directory for each claim of the cluster's storage class, removed after the claim.

As on other small clusters, volumes are writable for all users: a directory of the node has no `fsGroup`.
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
_PROVISIONER = "gputally.io/directories"

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


def volume_for(claim: Object, directory: Path) -> Object:
    """The volume for a claim, bound to it only."""
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
            # The controllers cannot remove directories; this program does.
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": reference,
            "hostPath": {"path": str(directory / name_of(claim)), "type": "Directory"},
        },
    }


def name_of(claim: Object) -> str:
    return f"pvc-{claim['metadata']['uid']}"


def serve(place: Layout) -> None:
    """Creates volumes for pending claims, and removes volumes without a claim."""
    plane = place.plane
    claims = plane.api("/api/v1/persistentvolumeclaims")["items"]
    volumes = plane.api("/api/v1/persistentvolumes")["items"]
    known = {volume["metadata"]["name"] for volume in volumes}
    for claim in claims:
        if claim["spec"].get("storageClassName") == STORAGE_CLASS and name_of(claim) not in known:
            directory = place.volumes / name_of(claim)
            directory.mkdir(exist_ok=True)
            directory.chmod(0o777)
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
            # The API server may be restarting.
            print(failure, flush=True)
        time.sleep(_SECONDS)


if __name__ == "__main__":
    main()
