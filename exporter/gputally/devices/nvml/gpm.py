"""GPM, NVML's activity counters (Hopper and newer): activity and PCIe throughput between two samples."""

import ctypes
import math
import struct
import threading
from collections.abc import Callable
from typing import Any

from gputally.devices import Values
from gputally.devices.nvml.library import FUNCTION_NOT_FOUND, SUCCESS, ErrorMeaning, Library

# nvmlGpmMetricId_t, each a percentage
METRICS = {
    "graphics_active_ratio": 1,
    "sm_active_ratio": 2,
    "sm_occupancy_ratio": 3,
    "tensor_active_ratio": 5,
    "dram_active_ratio": 10,
    "fp64_active_ratio": 11,
    "fp32_active_ratio": 12,
    "fp16_active_ratio": 13,
}
# In MiB per second; of whole devices only.
THROUGHPUT = "pcie_throughput_bytes_per_second"
_PCIE = {("tx",): 20, ("rx",): 21}
_MIB = 2**20
_ANSWER = struct.Struct("=4xid24x")
"""nvmlGpmMetric_t without its id and names. pynvml's structs take ten times as long to read."""


class GpmRequest(threading.local):
    """Which metrics, between which two samples: 19 kB that all devices share, but for those that hang."""

    def __init__(self, nvml: Any) -> None:
        self.struct = nvml.c_nvmlGpmMetricsGet_t()
        self.struct.version = nvml.NVML_GPM_METRICS_GET_VERSION
        for place, metric in enumerate((*METRICS.values(), *_PCIE.values())):
            self.struct.metrics[place].metricId = metric
        size = (len(METRICS) + len(_PCIE)) * _ANSWER.size
        self.answers = (ctypes.c_char * size).from_buffer(self.struct, type(self.struct).metrics.offset)


class Gpm:
    """GPM of one device."""

    def __init__(self, library: Library, request: GpmRequest) -> None:
        self.library = library
        self._request = request

    def read(self, before: Any, after: Any, *, whole: bool) -> Values:
        """The activity between the two samples; without metrics that the device does not support."""
        request = self._request.struct
        request.sample1, request.sample2 = before, after
        request.numMetrics = len(METRICS) + (len(_PCIE) if whole else 0)
        function = self.library.function("nvmlGpmMetricsGet")
        code = function(self.library.nvml.byref(request))
        if code != SUCCESS:
            self.library.judge(code, "gpm")
            return {}
        values: Values = {}
        answers = list(_ANSWER.iter_unpack(self._request.answers))
        for field, (code, value) in zip(METRICS, answers, strict=False):
            percent = self._value(code, value, field)
            if percent is not None:
                values[field] = percent / 100
        if whole:
            rates = {
                key: self._value(code, value, THROUGHPUT)
                for key, (code, value) in zip(_PCIE, answers[len(METRICS) :], strict=True)
            }
            throughput = {key: mib * _MIB for key, mib in rates.items() if mib is not None}
            if throughput:
                values[THROUGHPUT] = throughput
        return values

    def _value(self, code: int, value: float, field: str) -> float | None:
        if code != SUCCESS:
            self.library.judge(code, field)
            return None
        return value if math.isfinite(value) else None


class GpmSampler:
    """The last two GPM samples of one device or GPU instance. `take` fills a sample buffer."""

    def __init__(self, gpm: Gpm, take: Callable[[Any], int], *, whole: bool) -> None:
        self._gpm = gpm
        self._take = take
        self._whole = whole
        self._told: Values | None = None
        self._samples: list[Any] = []
        self._has_one = False
        self._unsupported = False

    def read(self) -> Values:
        """The activity since the last read; empty the first time."""
        if self._unsupported:
            return {}
        library = self._gpm.library
        if not self._samples:
            for _ in range(2):
                sample = library.call("gpm", "nvmlGpmSampleAlloc")
                if sample is None:
                    return {}
                self._samples.append(sample)
        before, after = self._samples
        code = self._take(after)
        if code != SUCCESS:
            self._unsupported = library.judge(code, "gpm") is ErrorMeaning.UNSUPPORTED
            self._has_one = False
            return {}
        self._told = self._gpm.read(before, after, whole=self._whole) if self._has_one else None
        self._samples = [after, before]
        self._has_one = True
        return self._told or {}

    def tells(self, field: str) -> bool:
        """True when the last read had the field, or was the first one, so that the next may have it."""
        if not self._has_one:
            return False
        return self._told is None or field in self._told

    def ask_again(self) -> None:
        """Tries again at the next read if it was not supported."""
        self._unsupported = False

    def free(self) -> None:
        """Frees the buffers, while the library still runs; the next read starts again."""
        for sample in self._samples:
            self._gpm.library.call("gpm", "nvmlGpmSampleFree", sample)
        self._samples = []
        self._has_one = self._unsupported = False


def whole_device(gpm: Gpm, handle: Any) -> GpmSampler:
    """The activity of a whole GPU."""
    return GpmSampler(gpm, _taker(gpm, "nvmlGpmSampleGet", handle), whole=True)


def one_instance(gpm: Gpm, handle: Any, gpu_instance_id: int) -> GpmSampler:
    """The activity of one GPU instance of a GPU in MIG mode; `handle` is the whole GPU's."""
    return GpmSampler(gpm, _taker(gpm, "nvmlGpmMigSampleGet", handle, gpu_instance_id), whole=False)


def _taker(gpm: Gpm, name: str, *arguments: Any) -> Callable[[Any], int]:
    function = gpm.library.function(name)
    if function is None:
        return lambda _: FUNCTION_NOT_FOUND
    return lambda sample: int(function(*arguments, sample))
