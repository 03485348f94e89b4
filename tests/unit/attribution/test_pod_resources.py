"""pod_resources against a real gRPC server that speaks the published messages."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.attribution import Allocation, PodReport
from gputally.attribution.pod_resources import PodResources, parse_pods
from gputally.model import Unavailable
from tools.standin.kubelet import kubelet, message

V1 = "/v1.PodResourcesLister/List"
V1ALPHA1 = "/v1alpha1.PodResourcesLister/List"
GPU = "GPU-8a56a4bc-e184-a047-2620-be19fdb0913f"
MIG = "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f"


@pytest.fixture
def socket_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("k") / "kubelet.sock"  # a socket's path may have 107 bytes and no more


def listing(*pods: Any, version: str = "v1") -> bytes:
    encoded: bytes = message(f"{version}.ListPodResourcesResponse", pod_resources=pods).SerializeToString()
    return encoded


def pod(name: str, *containers: Any, namespace: str = "ml", version: str = "v1", **more: Any) -> Any:
    return message(f"{version}.PodResources", name=name, namespace=namespace, containers=containers, **more)


def container(name: str, devices: dict[str, list[str]], version: str = "v1", **more: Any) -> Any:
    given = [
        message(f"{version}.ContainerDevices", resource_name=resource, device_ids=ids)
        for resource, ids in devices.items()
    ]
    return message(f"{version}.ContainerResources", name=name, devices=given, **more)


def claim(driver: str, device: str, *cdi_names: str) -> Any:
    return message(
        "v1.DynamicResource",
        claim_name="one-gpu",
        claim_namespace="ml",
        claim_resources=[
            message(
                "v1.ClaimResource",
                driver_name=driver,
                pool_name="node-1",
                device_name=device,
                cdi_devices=[message("v1.CDIDevice", name=name) for name in cdi_names],
            )
        ],
    )


def holds(
    *ids: str, name: str = "train-0", resource: str = "nvidia.com/gpu", claim: str = ""
) -> tuple[Allocation, ...]:
    return tuple(Allocation("ml", name, "main", resource, device_id, claim) for device_id in ids)


def parse_holdings(reply: bytes) -> tuple[Allocation, ...]:
    return tuple(chain(*parse_pods(reply).values()))


def unavailable(source: PodResources) -> Unavailable:
    with pytest.raises(Unavailable) as caught:
        source.read()
    return caught.value


def test_devices_of_every_container_are_allocated(socket_path: Path) -> None:
    reply = listing(
        pod("train-0", container("main", {"nvidia.com/gpu": [GPU]}), container("sidecar", {})),
        pod(
            "serve-0",
            container("a", {"nvidia.com/mig-1g.5gb": [MIG]}),
            container("b", {"amd.com/gpu": ["0000:c1:00.0"]}),
        ),
        pod("web-0", container("main", {}), namespace="shop"),
    )
    with kubelet(socket_path, {V1: reply}):
        report = PodResources(socket_path).read()

    assert report.pods == ()
    assert report.unallocated == {("shop", "web-0")}
    assert report.allocations == (
        Allocation("ml", "train-0", "main", "nvidia.com/gpu", GPU),
        Allocation("ml", "serve-0", "a", "nvidia.com/mig-1g.5gb", MIG),
        Allocation("ml", "serve-0", "b", "amd.com/gpu", "0000:c1:00.0"),
    )


def test_a_node_without_allocated_gpus(socket_path: Path) -> None:
    with kubelet(socket_path, {V1: b""}):
        assert PodResources(socket_path).read() == PodReport()


def test_cpus_memory_and_nics_are_not_gpus() -> None:
    devices = {
        "nvidia.com/gpu": [f"{GPU}::3", f"{GPU}::4"],
        "nvidia.com/hostdev": ["0000:3b:00.2"],
        "nvidia.com/resibp12s0": ["0000:0c:00.1"],
        "rdma/hca_shared_devices_a": ["1", "2"],
        "intel.com/sriov": ["0000:18:02.5"],
        "devices.kubevirt.io/kvm": ["kvm0"],
        "example.org/fast": ["GPU-2f0e12aa-11c0-4a35-9d60-0b6d7c3a1234"],
    }
    memory = message("v1.ContainerMemory", memory_type="memory", size=1 << 40)
    cpus = container("main", devices, cpu_ids=[0, 1, 1 << 40], memory=[memory])

    held = parse_holdings(listing(pod("train-0", cpus, cpu_ids=[4, 5], memory=[memory])))

    assert [(held.resource, held.device_id) for held in held] == [
        ("nvidia.com/gpu", f"{GPU}::3"),
        ("nvidia.com/gpu", f"{GPU}::4"),
        ("example.org/fast", "GPU-2f0e12aa-11c0-4a35-9d60-0b6d7c3a1234"),
    ]


def test_a_device_listed_once_per_numa_node_is_allocated_once() -> None:
    topology = message("v1.TopologyInfo", nodes=[message("v1.NUMANode", ID=1)])
    twice = [
        message("v1.ContainerDevices", resource_name="nvidia.com/gpu", device_ids=[GPU], topology=topology)
        for _ in range(2)
    ]
    main = message("v1.ContainerResources", name="main", devices=twice)

    assert parse_holdings(listing(pod("train-0", main))) == holds(GPU)


def test_claims_of_gpu_drivers_are_allocated_by_device_name() -> None:
    claims = [
        claim("gpu.nvidia.com", "gpu-0", "k8s.gpu.nvidia.com/claim=9c5b-gpu-0"),
        claim("gpu.amd.com", "", "amd.com/gpu=1", "amd.com/gpu=2"),
        claim("compute-domain.nvidia.com", "channel-0"),
        claim("dra.networking", "eth1"),
    ]
    main = message("v1.ContainerResources", name="main", dynamic_resources=claims)

    assert parse_holdings(listing(pod("train-0", main))) == (
        *holds("gpu-0", resource="gpu.nvidia.com", claim="one-gpu"),
        *holds("amd.com/gpu=1", "amd.com/gpu=2", resource="gpu.amd.com", claim="one-gpu"),
    )


def test_an_allocation_has_the_number_of_the_first_list_with_it(socket_path: Path) -> None:
    first, second = (pod(name, container("main", {"nvidia.com/gpu": [GPU]})) for name in ("one", "two"))
    replies = [listing(first), listing(first, second), listing(second), listing(first, second)]
    seen = []
    with kubelet(socket_path, {V1: lambda _: replies.pop(0)}):
        source = PodResources(socket_path)
        for _ in range(4):
            seen.append([(one.pod, one.first_listed) for one in source.read().allocations])
    assert seen == [[("one", 0)], [("one", 0), ("two", 1)], [("two", 1)], [("one", 3), ("two", 1)]]


def test_an_old_kubelet_is_queried_with_v1alpha1(socket_path: Path) -> None:
    main = container("main", {"nvidia.com/gpu": [GPU]}, version="v1alpha1")
    reply = listing(pod("train-0", main, version="v1alpha1"), version="v1alpha1")
    with kubelet(socket_path, {V1ALPHA1: reply}):
        assert PodResources(socket_path).read().allocations == holds(GPU)


def test_v1_is_tried_first(socket_path: Path) -> None:
    new = listing(pod("train-0", container("main", {"nvidia.com/gpu": [GPU]})))
    with kubelet(socket_path, {V1: new, V1ALPHA1: b""}):
        assert PodResources(socket_path).read().allocations == holds(GPU)


def test_a_kubelet_that_supports_neither_version_is_unavailable(socket_path: Path) -> None:
    with kubelet(socket_path, {}):
        assert "UNIMPLEMENTED" in unavailable(PodResources(socket_path)).reason


def test_a_reply_of_more_than_ten_megabytes_is_read_completely(socket_path: Path) -> None:
    ids = [f"{GPU}::{number:01200}" for number in range(9_000)]
    reply = listing(pod("train-0", container("main", {"nvidia.com/gpu": ids})))
    assert len(reply) > 10_000_000
    with kubelet(socket_path, {V1: reply}):
        assert PodResources(socket_path, timeout_seconds=60).read().allocations == holds(*ids)


def test_an_endless_reply_is_refused(socket_path: Path) -> None:
    with kubelet(socket_path, {V1: bytes(17 << 20)}):
        assert (
            "too large: more than 16777216 bytes"
            in unavailable(PodResources(socket_path, timeout_seconds=60)).reason
        )


def test_a_call_that_hangs_times_out_and_is_repeated(socket_path: Path) -> None:
    reply = listing(pod("train-0", container("main", {"nvidia.com/gpu": [GPU]})))
    hangs = threading.Event()
    hangs.set()
    release = threading.Event()

    def answer(context: grpc.ServicerContext) -> bytes:
        if hangs.is_set():
            release.wait(60)
        return reply

    with kubelet(socket_path, {V1: answer}):
        source = PodResources(socket_path, timeout_seconds=0.3)
        failure = unavailable(source)
        hangs.clear()
        release.set()
        assert PodResources(socket_path, timeout_seconds=30).read().allocations == holds(GPU)
    assert "did not answer" in failure.reason
    assert "within 0.3 s" in failure.reason
    assert failure.fix


def test_a_server_that_accepts_and_never_responds_times_out(socket_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(socket_path))
        listener.listen()
        assert "did not answer" in unavailable(PodResources(socket_path, timeout_seconds=0.2)).reason


def test_a_slow_reply_does_not_extend_the_deadline(socket_path: Path) -> None:
    done = threading.Event()

    def trickle(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(BrokenPipeError):  # the client has given up
            while not done.wait(0.05):
                connection.send(b"\0\0\0\4\0\0\0\0\0")  # an empty SETTINGS frame: valid, and no answer

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(socket_path))
        listener.listen()
        thread = threading.Thread(target=trickle, args=(listener,))
        thread.start()
        try:
            failure = unavailable(PodResources(socket_path, timeout_seconds=0.5))
        finally:
            done.set()
            thread.join()
    assert "did not answer" in failure.reason


@dataclass(slots=True)
class Node:
    """One kubelet after the other, on the same socket, and one source that asks them."""

    socket_path: Path
    now: float = 1000.0
    source: PodResources = field(init=False)

    def __post_init__(self) -> None:
        self.source = PodResources(self.socket_path, clock=lambda: self.now)

    @contextlib.contextmanager
    def started(self) -> Iterator[list[str]]:
        """A kubelet, and the pods that it knows: train-0 holds a GPU."""
        known: list[str] = []
        self.socket_path.unlink(missing_ok=True)
        with kubelet(self.socket_path, {V1: lambda _: listing(*map(self._pod, known))}):
            yield known

    @staticmethod
    def _pod(name: str) -> Any:
        return pod(name, container("main", {"nvidia.com/gpu": [GPU]} if name == "train-0" else {}))


@pytest.fixture
def node(socket_path: Path) -> Node:
    return Node(socket_path)


def holding_none(*names: str) -> frozenset[tuple[str, str]]:
    return frozenset(("ml", name) for name in names)


def test_a_restarted_kubelet_with_a_new_socket_is_found(socket_path: Path) -> None:
    source = PodResources(socket_path)
    other = "GPU-2f0e12aa-11c0-4a35-9d60-0b6d7c3a1234"
    with kubelet(socket_path, {V1: listing(pod("train-0", container("main", {"nvidia.com/gpu": [GPU]})))}):
        assert source.read().allocations == holds(GPU)
    socket_path.unlink(missing_ok=True)
    unavailable(source)
    with kubelet(socket_path, {V1: listing(pod("train-0", container("main", {"nvidia.com/gpu": [other]})))}):
        assert source.read().allocations == holds(other)
    source.close()


def test_a_pod_that_the_kubelet_no_longer_lists_ends_at_once(node: Node) -> None:
    with node.started() as known:
        known[:] = ["train-0", "shadow"]
        node.source.read()
        known[:] = ["shadow"]
        assert node.source.read() == PodReport(unallocated=holding_none("shadow"))
        known[:] = []
        assert node.source.read() == PodReport()


def test_a_kubelet_that_has_just_started_without_pods_is_not_trusted(node: Node) -> None:
    with node.started() as known:
        known[:] = ["train-0", "shadow"]
        before = node.source.read()
    with node.started() as known:
        for _ in range(2):
            node.now += 3600  # the API server is away
            failure = unavailable(node.source)
            assert "restarted" in failure.reason
            assert "API server" in failure.fix
        known[:] = ["train-0", "shadow"]
        assert node.source.read() == before


def test_allocations_are_kept_until_a_new_kubelet_lists_all_its_pods(node: Node) -> None:
    with node.started() as known:
        known[:] = ["train-0", "shadow"]
        node.source.read()
    with node.started() as known:
        known[:] = ["proxy"]
        for _ in range(2):
            report = node.source.read()
            assert report.allocations == holds(GPU)
            assert report.unallocated == holding_none("shadow", "proxy")
            node.now += 29
        known[:] = ["proxy", "shadow", "train-0"]
        node.now += 30
        report = node.source.read()
        assert report.allocations == holds(GPU)
        assert report.unallocated == holding_none("shadow", "proxy")


def test_a_pod_that_ended_without_a_kubelet_is_kept_for_half_a_minute(
    node: Node,
) -> None:
    with node.started() as known:
        known[:] = ["train-0", "proxy"]
        node.source.read()
    with node.started() as known:
        known[:] = ["proxy"]
        assert node.source.read().allocations == holds(GPU)
        node.now += 30
        assert node.source.read() == PodReport(unallocated=holding_none("proxy"))


def test_a_source_that_starts_with_the_kubelet_invents_no_allocation(node: Node) -> None:
    with node.started() as known:
        assert node.source.read() == PodReport()
        known[:] = ["train-0"]
        assert node.source.read().allocations == holds(GPU)
        known[:] = ["proxy"]
        assert node.source.read().allocations == ()


def test_a_missing_socket_has_the_mount_as_its_fix(socket_path: Path) -> None:
    failure = unavailable(PodResources(socket_path))

    assert failure.reason == f"there is no socket {socket_path}"
    assert "hostPath" in failure.fix
    assert str(socket_path.parent) in failure.fix


def test_a_socket_without_a_server_is_distinguished(socket_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(socket_path))
    failure = unavailable(PodResources(socket_path))

    assert "listens" in failure.reason
    assert "not the socket alone" in failure.fix


def test_a_socket_without_permission_has_root_as_its_fix(
    socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(self: socket.socket, address: str) -> None:
        raise PermissionError(13, "Permission denied", address)

    # Root may connect to anything, and the tests may run as root: the kernel's answer is played.
    monkeypatch.setattr(socket.socket, "connect", connect)
    failure = unavailable(PodResources(socket_path))

    assert "permission" in failure.reason
    assert "user 0" in failure.fix


def test_a_path_too_long_for_a_socket_is_unavailable(tmp_path: Path) -> None:
    assert "too long" in unavailable(PodResources(tmp_path / ("x" * 120))).reason


def test_an_error_of_the_kubelet_is_reported(socket_path: Path) -> None:
    def answer(context: grpc.ServicerContext) -> bytes:
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit: 100 %")

    with kubelet(socket_path, {V1: answer}):
        failure = unavailable(PodResources(socket_path))
    assert "RESOURCE_EXHAUSTED: rejected by rate limit: 100 %" in failure.reason


def test_a_malformed_message_is_unavailable(socket_path: Path) -> None:
    with kubelet(socket_path, {V1: b"\xff" * 64}):
        assert "list of pod resources" in unavailable(PodResources(socket_path)).reason


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", bytes(range(256)) * 40, b"\0\0\0\4\0\0\0\0\0"],
    ids=["nothing", "HTTP/1.1", "noise", "settings, then nothing"],
)
def test_a_server_without_grpc_is_unavailable(socket_path: Path, answer: bytes) -> None:
    def respond(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(answer)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(4096):
                pass

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(socket_path))
        listener.listen()
        thread = threading.Thread(target=respond, args=(listener,))
        thread.start()
        assert unavailable(PodResources(socket_path)).reason
        thread.join()


WORDS = st.text(max_size=8)
RESOURCES = st.sampled_from(["nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "volcano.sh/vgpu-number"])


@given(st.lists(st.builds(Allocation, WORDS, WORDS, WORDS, RESOURCES, WORDS), max_size=6, unique=True))
def test_messages_encoded_by_protobuf_are_decoded(held: list[Allocation]) -> None:
    pods = [
        pod(one.pod, container(one.container, {one.resource: [one.device_id]}), namespace=one.namespace)
        for one in held
    ]
    read = parse_holdings(listing(*pods))
    assert (len(read), set(read)) == (len(held), set(held))


@given(st.data())
def test_a_damaged_reply_is_a_value_error_or_some_allocations(data: st.DataObject) -> None:
    reply = bytearray(
        listing(
            pod("train-0", container("main", {"nvidia.com/gpu": [GPU]}, cpu_ids=[1, 2])),
            pod(
                "serve-0",
                message("v1.ContainerResources", dynamic_resources=[claim("gpu.nvidia.com", "gpu-0")]),
            ),
        )
    )
    for _ in range(data.draw(st.integers(1, 4))):
        reply[data.draw(st.integers(0, len(reply) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ValueError):
        parse_holdings(bytes(reply[: data.draw(st.integers(0, len(reply)))]))
