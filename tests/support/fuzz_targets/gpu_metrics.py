"""The binary gpu_metrics table of the AMD driver: values, or a table that is unknown or broken."""

from contextlib import suppress

from gputally.devices.amdgpu.gpu_metrics import GpuMetrics, decode
from gputally.devices.amdgpu.gpu_metrics_layouts import BrokenTable, UnknownTable

CORPUS = [
    size.to_bytes(2, "little") + bytes(version) + bytes(index * 7 % 251 for index in range(size - 4))
    for size, version in (
        (80, (1, 0)),
        (112, (1, 1)),
        (112, (1, 2)),
        (120, (1, 3)),
        (288, (1, 4)),
        (352, (1, 5)),
        (600, (1, 6)),
        (800, (1, 7)),
        (900, (1, 8)),
        (300, (1, 9)),
        (104, (2, 0)),
        (128, (2, 2)),
        (264, (3, 0)),
    )
]


def one_input(data: bytes) -> None:
    with suppress(UnknownTable, BrokenTable):
        metrics = decode(data)
        assert isinstance(metrics, GpuMetrics)
        metrics.partitioned(4)
