"""The device plugin, with a gRPC server in the kubelet's place."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from tools.test_cluster import device_plugin
from tools.test_cluster.device_plugin import _message, _type


class Kubelet(grpc.GenericRpcHandler):
    """Takes registrations, and asks plugins."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.registered: list[Any] = []
        self.another = threading.Condition()
        self.server: grpc.Server

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> "grpc.RpcMethodHandler[Any, Any] | None":
        assert handler_call_details.method == "/v1beta1.Registration/Register"
        return grpc.unary_unary_rpc_method_handler(self._register)

    def _register(self, request: bytes, _context: grpc.ServicerContext) -> bytes:
        with self.another:
            self.registered.append(_type("RegisterRequest").FromString(request))
            self.another.notify_all()
        return b""

    def start(self) -> None:
        """As the real one, it first removes all sockets."""
        for socket in self.directory.iterdir():
            socket.unlink(missing_ok=True)
        self.server = grpc.server(ThreadPoolExecutor(max_workers=2), [self])
        self.server.add_insecure_port(f"unix:{self.directory / 'kubelet.sock'}")
        self.server.start()

    def wait_for_registrations(self, count: int) -> None:
        with self.another:
            assert self.another.wait_for(lambda: len(self.registered) >= count, timeout=30)

    def listed(self) -> list[str]:
        with self._plugin() as channel:
            watch: grpc.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(
                "/v1beta1.DevicePlugin/ListAndWatch"
            )
            answers = watch(b"", timeout=30)
            answer = _type("ListAndWatchResponse").FromString(next(iter(answers)))
            answers.cancel()
        assert {device.health for device in answer.devices} == {"Healthy"}
        return [device.ID for device in answer.devices]

    def allocated(self, *containers: list[str]) -> list[dict[str, str]]:
        wanted = [_message("ContainerAllocateRequest", devices_ids=devices) for devices in containers]
        with self._plugin() as channel:
            allocate: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
                "/v1beta1.DevicePlugin/Allocate"
            )
            request = _message("AllocateRequest", container_requests=wanted).SerializeToString()
            answer = _type("AllocateResponse").FromString(allocate(request, timeout=30))
        return [dict(container.envs) for container in answer.container_responses]

    def _plugin(self) -> grpc.Channel:
        return grpc.insecure_channel(f"unix:{self.directory / self.registered[-1].endpoint}")


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    found = Kubelet(tmp_path)
    found.start()
    yield found
    found.server.stop(grace=None).wait()


def test_the_device_plugin_registers_and_lists_its_devices(kubelet: Kubelet) -> None:
    with device_plugin.offering(kubelet.directory, ["GPU-a", "GPU-b"]):
        (request,) = kubelet.registered
        assert (request.version, request.resource_name) == ("v1beta1", "nvidia.com/gpu")
        assert kubelet.listed() == ["GPU-a", "GPU-b"]
    assert [socket.name for socket in kubelet.directory.iterdir()] == ["kubelet.sock"]


def test_shared_gpus_have_the_names_of_nvidia() -> None:
    devices = device_plugin.time_sliced(["GPU-a", "GPU-b"], 2)

    assert devices == ["GPU-a::0", "GPU-a::1", "GPU-b::0", "GPU-b::1"]
    assert [device_plugin.uuid_of(device) for device in devices] == ["GPU-a", "GPU-a", "GPU-b", "GPU-b"]
    assert device_plugin.uuid_of("GPU-a") == "GPU-a"


def test_each_container_gets_its_allocated_gpus(kubelet: Kubelet) -> None:
    with device_plugin.offering(kubelet.directory, device_plugin.time_sliced(["GPU-a", "GPU-b"], 2)):
        given = kubelet.allocated(["GPU-b::0", "GPU-a::0", "GPU-b::1"], ["GPU-a::1"])

    assert given == [{"NVIDIA_VISIBLE_DEVICES": "GPU-a,GPU-b"}, {"NVIDIA_VISIBLE_DEVICES": "GPU-a"}]


def test_the_device_plugin_registers_again_after_a_restart_of_the_kubelet(kubelet: Kubelet) -> None:
    with device_plugin.offering(kubelet.directory, ["GPU-a"]):
        kubelet.server.stop(grace=None).wait()
        kubelet.start()
        kubelet.wait_for_registrations(2)
        assert kubelet.listed() == ["GPU-a"]


def test_the_device_plugin_retries_if_the_kubelet_does_not_respond(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    with device_plugin.offering(kubelet.directory, ["GPU-a"]):
        monkeypatch.setattr(device_plugin, "_SECONDS_TO_REGISTER", 0.1)
        kubelet.server.stop(grace=None).wait()
        (kubelet.directory / "kubelet.sock").touch()
        (kubelet.directory / device_plugin._SOCKET).unlink()
        stopped = threading.Semaphore(0)
        stop = device_plugin._Plugin.stop

        def tell(plugin: device_plugin._Plugin) -> None:
            stop(plugin)
            stopped.release()

        monkeypatch.setattr(device_plugin._Plugin, "stop", tell)
        # Before the attempt, and after it.
        assert all(stopped.acquire(timeout=30) for _ in range(2))

        kubelet.start()

        kubelet.wait_for_registrations(2)
        assert kubelet.listed() == ["GPU-a"]
