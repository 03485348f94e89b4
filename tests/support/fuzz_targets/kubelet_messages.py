"""Protobuf of the kubelet's sockets: pods and allocations, or ValueError."""

from contextlib import suppress

from gputally.attribution import kubelet_pods, pod_resources
from gputally.attribution.kubernetes_pod import AllowedLabels
from gputally.model import Snapshot
from tests.support.fuzz_checks import check_snapshot


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


CORPUS = [
    _field(1, _field(1, b"train-0") + _field(2, b"ml") + _field(3, _field(1, b"main"))),
    _field(
        1,
        _field(1, b"p")
        + _field(2, b"n")
        + _field(3, _field(1, b"c") + _field(2, _field(1, b"nvidia.com/gpu") + _field(2, b"GPU-1"))),
    ),
    _field(
        1,
        _field(
            1,
            _field(1, b"p")
            + _field(3, b"n")
            + _field(5, b"u")
            + bytes([11 << 3 | 2, 10])
            + _field(1, b"team")
            + _field(2, b"ml"),
        )
        + _field(2, _field(10, b"node")),
    ),
    b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x08" * 9 + b"\x01",
]
_ALL_LABELS = AllowedLabels(("*",), ("*",))


def one_input(data: bytes) -> None:
    with suppress(ValueError):
        pod_resources.parse_pods(data)
    with suppress(ValueError):
        pods = kubelet_pods.parse_pods(data, _ALL_LABELS)
        unique = {(pod.namespace, pod.pod): pod for pod in pods}
        check_snapshot(
            Snapshot(
                taken_at_seconds=1.0, age_seconds=0.0, readings=(), sources=(), pods=tuple(unique.values())
            )
        )
