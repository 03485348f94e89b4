"""Which container was given which GPU: the kubelet's PodResourcesLister, on a unix socket of the node.

https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/ and the messages
in k8s.io/kubelet/pkg/apis/podresources/{v1,v1alpha1}/api.proto. The two versions share the field numbers;
v1alpha1 is all that kubelets before 1.20 have.

A kubelet that has just started answers before it has heard of its pods: at first it lists none, however many
run and hold GPUs, and for as long as it does not reach the API server. It gives away nothing meanwhile, and
what it has given it remembers. So, what its predecessor said is not taken back by silence alone.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from gputally.attribution import Holding, Knowledge, Pod
from gputally.attribution.device_ids import is_gpu_device, is_gpu_driver
from gputally.attribution.kubelet_call import UNIMPLEMENTED, Refused, call_kubelet
from gputally.attribution.kubelet_wire import Message
from gputally.model import Unavailable

_V1 = "/v1.PodResourcesLister/List"
_V1ALPHA1 = "/v1alpha1.PodResourcesLister/List"

# From the first pods that a new kubelet lists to the last: static ones it knows at once, of others it hears.
_SETTLING_SECONDS = 30

SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")


class PodResources:
    """The source `pod_resources`."""

    name = "pod_resources"

    def __init__(
        self,
        socket: Path = SOCKET,
        timeout_seconds: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._socket = socket
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._told: Mapping[Pod, tuple[Holding, ...]] = {}
        self._kubelet: tuple[int, ...] | None = None
        self._settled_at = -math.inf

    def read(self) -> Knowledge:
        try:
            told = parse_pods(self._list())
        except Refused as error:
            raise Unavailable(f"the kubelet refused to list pod resources: {error}") from error
        except ValueError as error:
            raise Unavailable(f"the kubelet's list of pod resources makes no sense: {error}") from error
        self._told = told if self._knows_its_pods(told) else {**self._told, **told}
        return Knowledge(
            holdings=tuple(holding for held in self._told.values() for holding in held),
            given_none=frozenset(pod for pod, held in self._told.items() if not held),
        )

    def close(self) -> None:
        """Nothing is kept open between two looks."""

    def _list(self) -> bytes:
        try:
            return call_kubelet(self._socket, _V1, self._timeout_seconds)
        except Refused as error:
            if error.status != UNIMPLEMENTED:
                raise
            return call_kubelet(self._socket, _V1ALPHA1, self._timeout_seconds)

    def _knows_its_pods(self, told: Mapping[Pod, tuple[Holding, ...]]) -> bool:
        """Whether a pod that is missing in what was told is gone. Raises Unavailable."""
        # Only now, after the answer: whoever gave it is not newer than this.
        kubelet = _identity(self._socket)
        if kubelet != self._kubelet:
            if self._told and not told:
                raise Unavailable(
                    "the kubelet has started anew and knows none of its pods yet",
                    "if that lasts, see in the kubelet's log whether it reaches the API server",
                )
            self._kubelet = kubelet
            self._settled_at = self._clock() + (_SETTLING_SECONDS if self._told else 0)
        return self._clock() >= self._settled_at


def _identity(socket: Path) -> tuple[int, ...] | None:
    """Tells one kubelet from the next: each makes its own socket."""
    try:
        made = socket.stat()
    except OSError:
        return None
    return made.st_ino, made.st_mtime_ns


def parse_pods(encoded: bytes) -> dict[Pod, tuple[Holding, ...]]:
    """Every pod in a ListPodResourcesResponse, and the GPUs that it holds. Raises ValueError."""
    found: dict[Pod, dict[Holding, None]] = {}  # once each: the kubelet may name a device per NUMA node
    for pod in Message(encoded).messages(1):
        name, namespace = pod.text(1), pod.text(2)
        held = found.setdefault((namespace, name), {})
        for container in pod.messages(3):
            for resource, device_id in _devices(container):
                held[Holding(namespace, name, container.text(1), resource, device_id)] = None
    return {pod: tuple(held) for pod, held in found.items()}


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
