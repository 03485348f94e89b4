"""Which container was given which GPU: the kubelet's PodResourcesLister, on a unix socket of the node.

https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/ and the messages
in k8s.io/kubelet/pkg/apis/podresources/{v1,v1alpha1}/api.proto. The two versions share the field numbers;
v1alpha1 is all that kubelets before 1.20 have.
"""

from collections.abc import Iterator
from pathlib import Path

from gputally.attribution import Holding, Knowledge
from gputally.attribution.device_ids import is_gpu_device, is_gpu_driver
from gputally.attribution.kubelet_call import UNIMPLEMENTED, Refused, call_kubelet
from gputally.attribution.kubelet_wire import Message
from gputally.devices import Unavailable

_V1 = "/v1.PodResourcesLister/List"
_V1ALPHA1 = "/v1alpha1.PodResourcesLister/List"

SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")


class PodResources:
    """The source `pod_resources`."""

    name = "pod_resources"

    def __init__(self, socket: Path = SOCKET, timeout_seconds: float = 5.0) -> None:
        self._socket = socket
        self._timeout_seconds = timeout_seconds

    def read(self) -> Knowledge:
        try:
            return Knowledge(holdings=parse_holdings(self._list()))
        except Refused as error:
            raise Unavailable(f"the kubelet refused to list pod resources: {error}") from error
        except ValueError as error:
            raise Unavailable(f"the kubelet's list of pod resources makes no sense: {error}") from error

    def close(self) -> None:
        """Nothing is kept open between two looks."""

    def _list(self) -> bytes:
        try:
            return call_kubelet(self._socket, _V1, self._timeout_seconds)
        except Refused as error:
            if error.status != UNIMPLEMENTED:
                raise
            return call_kubelet(self._socket, _V1ALPHA1, self._timeout_seconds)


def parse_holdings(encoded: bytes) -> tuple[Holding, ...]:
    """The GPUs in a ListPodResourcesResponse. Raises ValueError."""
    found: dict[Holding, None] = {}  # in order, and once: the kubelet may name a device per NUMA node
    for pod in Message(encoded).messages(1):
        name, namespace = pod.text(1), pod.text(2)
        for container in pod.messages(3):
            for resource, device_id in _devices(container):
                found[Holding(namespace, name, container.text(1), resource, device_id)] = None
    return tuple(found)


def _devices(container: Message) -> Iterator[tuple[str, str]]:
    """(resource, device id) of each GPU of a ContainerResources."""
    for devices in container.messages(2):
        resource = devices.text(1)
        for device_id in devices.texts(2):
            if is_gpu_device(resource, device_id):
                yield resource, device_id
    for claim in container.messages(5):
        for claimed in claim.messages(4):
            driver, device = claimed.text(2), claimed.text(4)
            # A kubelet that does not name the device itself still names its CDI devices.
            names = [device] if device else [cdi.text(1) for cdi in claimed.messages(1)]
            if is_gpu_driver(driver):
                yield from ((driver, name) for name in names)
