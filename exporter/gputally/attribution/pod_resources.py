"""Pod source `pod_resources`: the GPUs that the kubelet allocated to each container (PodResourcesLister).

https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/ and the messages
in k8s.io/kubelet/pkg/apis/podresources/{v1,v1alpha1}/api.proto. The two versions share the field numbers;
v1alpha1 is all that kubelets before 1.20 have.

A kubelet that has just started lists no pods at first, however many run with GPUs, until it has reached the
API server. Until then it allocates nothing, and its earlier allocations stay valid. So a pod that is missing
from the list of a new kubelet keeps its allocations for a while.

Kubelets before 1.34 list completed pods too, with devices that others may have by now
(https://github.com/kubernetes/kubernetes/issues/119423): `resolve.find_holders` drops these.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from gputally.attribution import Allocation, PodName, PodReport
from gputally.attribution.device_ids import is_gpu_device, is_gpu_driver
from gputally.attribution.kubelet_grpc import UNIMPLEMENTED, KubeletError, Message, call_kubelet
from gputally.attribution.limits import ALLOCATIONS, PODS
from gputally.model import Unavailable

_V1 = "/v1.PodResourcesLister/List"
_V1ALPHA1 = "/v1alpha1.PodResourcesLister/List"

# From the first pods that a new kubelet lists to the last: it lists static pods at once, others later.
_SETTLING_SECONDS = 30

SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")


class PodResources:
    """The pod source `pod_resources`."""

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
        self._listed: Mapping[PodName, tuple[Allocation, ...]] = {}
        self._lists = 0
        self._first_listed: Mapping[Allocation, int] = {}
        self._kubelet: tuple[int, ...] | None = None
        self._settled_at = -math.inf

    def read(self) -> PodReport:
        left_out: Counter[str] = Counter()
        try:
            listed = parse_pods(self._list(), left_out)
        except KubeletError as error:
            raise Unavailable(f"the kubelet cannot list pod resources: {error}") from error
        except ValueError as error:
            raise Unavailable(f"the kubelet's list of pod resources is not valid: {error}") from error
        known = listed if self._is_complete(listed) else {**self._listed, **listed}
        allocations = [one for allocated in known.values() for one in allocated]
        if len(known) > 2 * PODS or len(allocations) > 2 * ALLOCATIONS:
            raise Unavailable("the kubelet was restarted repeatedly, and lists other pods each time")
        self._listed = known
        self._first_listed = {one: self._first_listed.get(one, self._lists) for one in allocations}
        self._lists += 1
        return PodReport(
            allocations=tuple(
                replace(one, first_listed=number) for one, number in self._first_listed.items()
            ),
            unallocated=frozenset(pod for pod, allocated in self._listed.items() if not allocated),
            left_out=left_out,
        )

    def close(self) -> None:
        """Nothing is kept open between two reads."""

    def _list(self) -> memoryview:
        try:
            return call_kubelet(self._socket, _V1, self._timeout_seconds)
        except KubeletError as error:
            if error.status != UNIMPLEMENTED:
                raise
            return call_kubelet(self._socket, _V1ALPHA1, self._timeout_seconds)

    def _is_complete(self, listed: Mapping[PodName, tuple[Allocation, ...]]) -> bool:
        """Whether a pod that is not listed does not exist any more. Raises Unavailable."""
        # After the call: the kubelet that replied is not newer than this socket.
        kubelet = _identity(self._socket)
        if kubelet != self._kubelet:
            if self._listed and not listed:
                raise Unavailable(
                    "the kubelet has restarted and lists none of its pods yet",
                    "if that lasts, check that it reaches the API server: journalctl -u kubelet",
                )
            self._kubelet = kubelet
            self._settled_at = self._clock() + (_SETTLING_SECONDS if self._listed else 0)
        return self._clock() >= self._settled_at


def _identity(socket: Path) -> tuple[int, ...] | None:
    """Distinguishes one kubelet from the next: each creates its own socket."""
    try:
        made = socket.stat()
    except OSError:
        return None
    return made.st_ino, made.st_mtime_ns


def parse_pods(
    encoded: bytes | memoryview, left_out: Counter[str] | None = None
) -> dict[PodName, tuple[Allocation, ...]]:
    """The pods in a ListPodResourcesResponse, and the GPUs allocated to each. Raises ValueError, Unavailable.

    What is beyond the limits is counted in `left_out`.
    """
    left_out = Counter() if left_out is None else left_out
    devices = 0
    found: dict[
        PodName, dict[Allocation, None]
    ] = {}  # once each: the kubelet may list a device per NUMA node
    for pod in Message(encoded).messages(1):
        name, namespace = pod.text(1), pod.text(2)
        if len(found) == PODS and (namespace, name) not in found:
            left_out["pods"] += 1
            continue
        allocated = found.setdefault((namespace, name), {})
        for container in pod.messages(3):
            for resource, device_id, claim in _devices(container):
                if devices == ALLOCATIONS:
                    left_out["devices"] += 1
                    continue
                one = Allocation(namespace, name, container.text(1), resource, device_id, claim)
                devices += one not in allocated
                allocated[one] = None
    return {pod: tuple(allocated) for pod, allocated in found.items()}


def _devices(container: Message) -> Iterator[tuple[str, str, str]]:
    """Resource, device id and ResourceClaim, if any, of each GPU of a ContainerResources."""
    for devices in container.messages(2):
        resource = devices.text(1)
        for device_id in devices.texts(2):
            if is_gpu_device(resource, device_id):
                yield resource, device_id, ""
    for claim in container.messages(5):
        for claimed in claim.messages(4):
            driver, device = claimed.text(2), claimed.text(4)
            # A kubelet that does not report the device itself still reports its CDI devices.
            names = [device] if device else [cdi.text(1) for cdi in claimed.messages(1)]
            if is_gpu_driver(driver):
                yield from ((driver, name, claim.text(2)) for name in names)
