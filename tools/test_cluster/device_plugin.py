"""A device plugin that offers GPUs to the cluster as NVIDIA's does: exclusive, or shared.

The GPUs are given by the caller; no driver is read.
"""

import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message_factory import GetMessages

RESOURCE = "nvidia.com/gpu"
_MESSAGES = Path(__file__).with_name("device_plugin.proto")
_SOCKET = "gputally-test.sock"
_SERVICE = "/v1beta1.DevicePlugin/"
_SECONDS_BETWEEN_LOOKS = 0.3
_SECONDS_TO_REGISTER = 10


def time_sliced(uuids: Iterable[str], replicas: int) -> list[str]:
    """The device ids of NVIDIA's plugin for shared GPUs."""
    return [f"{uuid}::{replica}" for uuid in uuids for replica in range(replicas)]


def uuid_of(device: str) -> str:
    return device.partition("::")[0]


@contextmanager
def offering(directory: Path, devices: Sequence[str], resource: str = RESOURCE) -> Iterator[None]:
    """Offers these devices to the kubelet with plugin sockets in `directory` until the block ends."""
    plugin = _Plugin(directory, devices, resource)
    plugin.serve()
    watch = threading.Thread(target=plugin.come_back, name="device plugin")
    watch.start()
    try:
        yield
    finally:
        plugin.ended.set()
        watch.join()
        plugin.stop()


class _Plugin:
    def __init__(self, directory: Path, devices: Sequence[str], resource: str) -> None:
        self.ended = threading.Event()
        self._directory = directory
        self._socket = directory / _SOCKET
        self._devices = devices
        self._resource = resource
        self._server: grpc.Server | None = None
        self._stopped = threading.Event()

    def serve(self) -> None:
        self._socket.unlink(missing_ok=True)
        self._stopped = threading.Event()
        self._server = grpc.server(ThreadPoolExecutor(max_workers=4), [_Handlers(self._answers())])
        self._server.add_insecure_port(f"unix:{self._socket}")
        self._server.start()
        request = _message(
            "RegisterRequest", version="v1beta1", endpoint=_SOCKET, resource_name=self._resource
        )
        with grpc.insecure_channel(
            f"unix:{self._directory / 'kubelet.sock'}", options=[("grpc.default_authority", "localhost")]
        ) as channel:
            register: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
                "/v1beta1.Registration/Register"
            )
            register(request.SerializeToString(), timeout=_SECONDS_TO_REGISTER, wait_for_ready=True)

    def stop(self) -> None:
        self._stopped.set()
        if self._server:
            self._server.stop(grace=None).wait()
        self._socket.unlink(missing_ok=True)

    def come_back(self) -> None:
        """A starting kubelet removes all sockets: the plugin then registers again."""
        while not self.ended.wait(_SECONDS_BETWEEN_LOOKS):
            if not self._socket.exists() and (self._directory / "kubelet.sock").exists():
                self.stop()
                try:
                    self.serve()
                except grpc.RpcError:
                    # The kubelet has restarted once more; the next check registers again.
                    self.stop()

    def _answers(self) -> "dict[str, grpc.RpcMethodHandler[Any, Any]]":
        return {
            f"{_SERVICE}GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(
                lambda _request, _context: _message("DevicePluginOptions").SerializeToString()
            ),
            f"{_SERVICE}ListAndWatch": grpc.unary_stream_rpc_method_handler(self._list_and_watch),
            f"{_SERVICE}Allocate": grpc.unary_unary_rpc_method_handler(_allocate),
        }

    def _list_and_watch(self, _request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        devices = [_message("Device", ID=device, health="Healthy") for device in self._devices]
        yield _message("ListAndWatchResponse", devices=devices).SerializeToString()
        stopped = self._stopped
        context.add_callback(stopped.set)
        stopped.wait()


def _allocate(request: bytes, _context: grpc.ServicerContext) -> bytes:
    """Each container gets its allocated GPUs in the variable that NVIDIA's runtime reads."""
    answer = _message("AllocateResponse")
    for wanted in _type("AllocateRequest").FromString(request).container_requests:
        visible = ",".join(sorted({uuid_of(device) for device in wanted.devices_ids}))
        answer.container_responses.add().envs["NVIDIA_VISIBLE_DEVICES"] = visible
    encoded: bytes = answer.SerializeToString()
    return encoded


class _Handlers(grpc.GenericRpcHandler):
    def __init__(self, answers: "dict[str, grpc.RpcMethodHandler[Any, Any]]") -> None:
        self._answers = answers

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> "grpc.RpcMethodHandler[Any, Any] | None":
        return self._answers.get(handler_call_details.method)


@cache
def _types() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        compiled = Path(directory) / "compiled"
        protoc = [sys.executable, "-m", "grpc_tools.protoc", f"-I{_MESSAGES.parent}"]
        subprocess.run([*protoc, f"--descriptor_set_out={compiled}", _MESSAGES], check=True)
        described = FileDescriptorSet.FromString(compiled.read_bytes())
    return dict(GetMessages(described.file))


def _type(name: str) -> Any:
    return _types()[f"v1beta1.{name}"]


def _message(name: str, **fields: Any) -> Any:
    return _type(name)(**fields)
