"""Pod source `kubelet_pods`: the kubelet's Pods API, which needs no permission in the cluster.

https://kubernetes.io/docs/reference/node/kubelet-pods-api/ (on by default since Kubernetes 1.37). A pod
is encoded as in k8s.io/api/core/v1/generated.proto. The few fields that matter are converted to the API
server's JSON, so that both sources report a pod equally.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from gputally.attribution import PodReport
from gputally.attribution.kubelet_grpc import UNIMPLEMENTED, KubeletError, Message, call_kubelet
from gputally.attribution.kubernetes_pod import AllowedLabels, pod_info
from gputally.attribution.limits import take_pods
from gputally.model import PodInfo, Unavailable

_LIST = "/v1alpha1.Pods/ListPods"
_LATEST_SECONDS = 1 << 36  # later than any clock, and within the range of datetime

SOCKET = Path("/var/lib/kubelet/pods-api/pods-api.sock")


class KubeletPods:
    """The pod source `kubelet_pods`."""

    name = "kubelet_pods"

    def __init__(
        self, socket: Path = SOCKET, timeout_seconds: float = 5.0, allowed: AllowedLabels | None = None
    ) -> None:
        self._socket = socket
        self._timeout_seconds = timeout_seconds
        self._allowed = allowed or AllowedLabels()

    def read(self) -> PodReport:
        try:
            encoded = call_kubelet(self._socket, _LIST, self._timeout_seconds)
            pods, left_out = take_pods(parse_pods(encoded, self._allowed))
            return PodReport(pods=pods, left_out=left_out)
        except KubeletError as error:
            fix = "use Kubernetes 1.37 or newer" if error.status == UNIMPLEMENTED else ""
            raise Unavailable(f"the kubelet cannot list its pods: {error}", fix) from error
        except ValueError as error:
            raise Unavailable(f"the kubelet's list of pods is not valid: {error}") from error

    def close(self) -> None:
        """Nothing is kept open between two reads."""


def parse_pods(encoded: bytes | memoryview, allowed: AllowedLabels) -> Iterator[PodInfo]:
    """The pods of a ListPodsResponse. Raises ValueError, Unavailable."""
    for pod in Message(encoded).messages(1):
        info = pod_info(
            {
                "metadata": _metadata(pod.message(1)),
                "spec": _spec(pod.message(2)),
                "status": _status(pod.message(3)),
            },
            allowed,
        )
        if info is not None:
            yield info


def _metadata(metadata: Message) -> dict[str, object]:
    return {
        "name": metadata.text(1),
        "namespace": metadata.text(3),
        "uid": metadata.text(5),
        "creationTimestamp": _time(metadata.message(8)),
        "labels": metadata.text_map(11),
        "annotations": metadata.text_map(12),
        "ownerReferences": [
            {
                "apiVersion": owner.text(5),
                "kind": owner.text(1),
                "name": owner.text(3),
                "controller": owner.flag(6),
            }
            for owner in metadata.messages(13)
        ],
    }


def _time(time: Message) -> str:
    seconds = time.number(1)
    return datetime.fromtimestamp(seconds, UTC).isoformat() if 0 < seconds < _LATEST_SECONDS else ""


def _spec(spec: Message) -> dict[str, object]:
    return {
        "nodeName": spec.text(10),
        "containers": [_container(container) for container in spec.messages(2)],
        "initContainers": [_container(container) for container in spec.messages(20)],
        # The fields that an ephemeral container shares with others are a message with the same numbers.
        "ephemeralContainers": [_container(ephemeral.message(1)) for ephemeral in spec.messages(34)],
        "resourceClaims": [
            {"name": claim.text(1), "resourceClaimName": claim.text(3)} for claim in spec.messages(39)
        ],
    }


def _container(container: Message) -> dict[str, object]:
    resources = container.message(8)
    return {
        "name": container.text(1),
        "resources": {
            "limits": _quantities(resources, 1),
            "requests": _quantities(resources, 2),
            "claims": [{"name": claim.text(1), "request": claim.text(2)} for claim in resources.messages(3)],
        },
    }


def _quantities(resources: Message, number: int) -> dict[str, str]:
    return {entry.text(1): entry.message(2).text(1) for entry in resources.messages(number)}


def _status(status: Message) -> dict[str, object]:
    numbers = {"containerStatuses": 8, "initContainerStatuses": 10, "ephemeralContainerStatuses": 13}
    containers = {
        statuses: [
            {
                "name": container.text(1),
                "containerID": container.text(8),
                "lastState": {"terminated": {"containerID": container.message(3).message(3).text(7)}},
            }
            for container in status.messages(number)
        ]
        for statuses, number in numbers.items()
    }
    return {
        "phase": status.text(1),
        "startTime": _time(status.message(7)),
        "resourceClaimStatuses": [
            {"name": claim.text(1), "resourceClaimName": claim.text(2)} for claim in status.messages(15)
        ],
        **containers,
    }
