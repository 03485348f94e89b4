"""A real gRPC server in the kubelet's place, and the messages to feed it."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message_factory import GetMessages

PROTOS = Path(__file__).with_name("kubelet_messages")

Answer = bytes | Callable[[grpc.ServicerContext], bytes]


@cache
def _message_types() -> Mapping[str, Any]:
    files = sorted(PROTOS.glob("*.proto"))
    with tempfile.TemporaryDirectory() as directory:
        compiled = Path(directory) / "compiled"
        protoc = [
            sys.executable,
            "-m",
            "grpc_tools.protoc",
            f"-I{PROTOS}",
            f"--descriptor_set_out={compiled}",
        ]
        subprocess.run([*protoc, *map(str, files)], check=True)
        described = FileDescriptorSet.FromString(compiled.read_bytes())
    return GetMessages(described.file)


def message(kind: str, /, **fields: Any) -> Any:
    """A message, made by the protobuf package: message("v1.PodResources", name="train-0")."""
    return _message_types()[kind](**fields)


class _Handlers(grpc.GenericRpcHandler):
    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self._answers = answers

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> "grpc.RpcMethodHandler[Any, Any] | None":
        answer = self._answers.get(handler_call_details.method)
        if answer is None:
            return None  # the server says UNIMPLEMENTED

        def respond(request: bytes, context: grpc.ServicerContext) -> bytes:
            assert request == b""
            return answer if isinstance(answer, bytes) else answer(context)

        return grpc.unary_unary_rpc_method_handler(respond)


@contextmanager
def kubelet(socket: Path, answers: Mapping[str, Answer]) -> Iterator[None]:
    """Serves `answers` (by /package.Service/Method) on `socket`, which goes when the server does."""
    with ThreadPoolExecutor(max_workers=2) as threads:
        server = grpc.server(threads, [_Handlers(answers)], options=[("grpc.max_send_message_length", -1)])
        server.add_insecure_port(f"unix:{socket}")
        server.start()
        try:
            yield
        finally:
            server.stop(grace=None).wait()
