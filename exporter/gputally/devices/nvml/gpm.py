"""GPM, NVML's activity counters (Hopper and newer): ratios between two samples of one device."""

import math
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


class Gpm:
    """The request that all devices share: which metrics, between which two samples."""

    def __init__(self, library: Library) -> None:
        self.library = library
        nvml = library.nvml
        self._request = nvml.c_nvmlGpmMetricsGet_t()
        self._request.version = nvml.NVML_GPM_METRICS_GET_VERSION
        self._request.numMetrics = len(METRICS)
        for place, metric in enumerate(METRICS.values()):
            self._request.metrics[place].metricId = metric

    def ratios(self, before: Any, after: Any) -> Values:
        """The activity between the two samples; without metrics that the device does not support."""
        request = self._request
        request.sample1, request.sample2 = before, after
        function = self.library.function("nvmlGpmMetricsGet")
        code = function(self.library.nvml.byref(request))
        if code != SUCCESS:
            self.library.judge(code, "gpm")
            return {}
        ratios: Values = {}
        for place, field in enumerate(METRICS):
            metric = request.metrics[place]
            if metric.nvmlReturn != SUCCESS:
                self.library.judge(metric.nvmlReturn, field)
            elif math.isfinite(percent := metric.value):
                ratios[field] = percent / 100
        return ratios


class GpmSampler:
    """The last two GPM samples of one device or GPU instance. `take` fills a sample buffer."""

    def __init__(self, gpm: Gpm, take: Callable[[Any], int]) -> None:
        self._gpm = gpm
        self._take = take
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
        ratios = self._gpm.ratios(before, after) if self._has_one else {}
        self._samples = [after, before]
        self._has_one = True
        return ratios

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
    return GpmSampler(gpm, _taker(gpm, "nvmlGpmSampleGet", handle))


def one_instance(gpm: Gpm, handle: Any, gpu_instance_id: int) -> GpmSampler:
    """The activity of one GPU instance of a GPU in MIG mode; `handle` is the whole GPU's."""
    return GpmSampler(gpm, _taker(gpm, "nvmlGpmMigSampleGet", handle, gpu_instance_id))


def _taker(gpm: Gpm, name: str, *arguments: Any) -> Callable[[Any], int]:
    function = gpm.library.function(name)
    if function is None:
        return lambda _: FUNCTION_NOT_FOUND
    return lambda sample: int(function(*arguments, sample))
