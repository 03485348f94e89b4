"""The pods of this node, whole and without any permission in the cluster: the Kubelet Pods API.

https://kubernetes.io/docs/reference/node/kubelet-pods-api/ (on by default since Kubernetes 1.37). A pod
comes in the protobuf of k8s.io/api/core/v1/generated.proto. The few fields that matter are laid out as the
API server's JSON has them, so that a pod says the same whichever of the two it comes from.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from gputally.attribution import Knowledge, PodFacts
from gputally.attribution.kubelet_call import UNIMPLEMENTED, Refused, call_kubelet
from gputally.attribution.kubelet_wire import Message
from gputally.attribution.kubernetes_facts import Allowed, pod_facts
from gputally.model import Unavailable

_LIST = "/v1alpha1.Pods/ListPods"
_LATEST_SECONDS = 1 << 36  # later than any clock, and not too late for datetime

SOCKET = Path("/var/lib/kubelet/pods-api/pods-api.sock")


class KubeletPods:
    """The source `kubelet_pods`."""

    name = "kubelet_pods"

    def __init__(
        self, socket: Path = SOCKET, timeout_seconds: float = 5.0, allowed: Allowed | None = None
    ) -> None:
        self._socket = socket
        self._timeout_seconds = timeout_seconds
        self._allowed = allowed or Allowed()

    def read(self) -> Knowledge:
        try:
            return Knowledge(
                pods=parse_pods(call_kubelet(self._socket, _LIST, self._timeout_seconds), self._allowed)
            )
        except Refused as error:
            fix = "use Kubernetes 1.37 or newer" if error.status == UNIMPLEMENTED else ""
            raise Unavailable(f"the kubelet refused to list its pods: {error}", fix) from error
        except ValueError as error:
            raise Unavailable(f"the kubelet's list of pods makes no sense: {error}") from error

    def close(self) -> None:
        """Nothing is kept open between two looks."""


def parse_pods(encoded: bytes, allowed: Allowed) -> tuple[PodFacts, ...]:
    """The pods of a ListPodsResponse. Raises ValueError."""
    return tuple(_facts(Message(encoded).messages(1), allowed))


def _facts(pods: Iterator[Message], allowed: Allowed) -> Iterator[PodFacts]:
    for pod in pods:
        facts = pod_facts(
            {
                "metadata": _metadata(pod.message(1)),
                "spec": _spec(pod.message(2)),
                "status": _status(pod.message(3)),
            },
            allowed,
        )
        if facts is not None:
            yield facts


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
        # What an ephemeral container shares with others is a message of its own, with the same numbers.
        "ephemeralContainers": [_container(ephemeral.message(1)) for ephemeral in spec.messages(34)],
        "resourceClaims": [{"name": claim.text(1)} for claim in spec.messages(39)],
    }


def _container(container: Message) -> dict[str, object]:
    resources = container.message(8)
    return {
        "name": container.text(1),
        "resources": {"limits": _quantities(resources, 1), "requests": _quantities(resources, 2)},
    }


def _quantities(resources: Message, number: int) -> dict[str, str]:
    return {entry.text(1): entry.message(2).text(1) for entry in resources.messages(number)}


def _status(status: Message) -> dict[str, object]:
    numbers = {"containerStatuses": 8, "initContainerStatuses": 10, "ephemeralContainerStatuses": 13}
    return {
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
