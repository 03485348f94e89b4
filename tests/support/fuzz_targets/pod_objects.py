"""Pods as JSON, from the API server: names, labels and workload, whatever the object contains."""

import json
from contextlib import suppress

from gputally.attribution.kubernetes_pod import AllowedLabels, pod_info
from gputally.model import Snapshot
from tests.support.fuzz_checks import check_snapshot

CORPUS = [
    json.dumps(
        {
            "metadata": {
                "name": "train-0",
                "namespace": "ml",
                "uid": "3f0c1e9a-1d2b-4c3d-8e4f-5a6b7c8d9e0f",
                "creationTimestamp": "2026-11-18T20:00:00Z",
                "labels": {"team": "ml", "a.b/c": "\0\ud800", "a-b/c": 'x"\\\n'},
                "annotations": {"owner": "x"},
                "ownerReferences": [
                    {"apiVersion": "batch/v1", "kind": "Job", "name": "train-29000000", "controller": True}
                ],
            },
            "spec": {
                "nodeName": "n",
                "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
            },
            "status": {"containerStatuses": [{"name": "main", "containerID": "containerd://abc"}]},
        }
    ).encode(),
    b'{"metadata": {"name": 5, "labels": [], "creationTimestamp": "9999-99-99T00:00:00Z"}, "spec": null}',
    b"[" * 5000,
]
_ALL_LABELS = AllowedLabels(("*",), ("*",))


def one_input(data: bytes) -> None:
    with suppress(ValueError, RecursionError):
        pod = json.loads(data)
        info = pod_info(pod, _ALL_LABELS)
        if info is not None:
            check_snapshot(
                Snapshot(taken_at_seconds=1.0, age_seconds=0.0, readings=(), sources=(), pods=(info,))
            )
