"""A minimal exporter for comparison: prometheus_client and pynvml, read at every scrape.

Run as `python plain_exporter.py PORT`.
"""

# pynvml has no annotations.
# mypy: allow-untyped-calls

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pynvml
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

Read = Callable[[Any], float]

READS: tuple[tuple[str, Read], ...] = (
    ("gpu_utilization_percent", lambda h: pynvml.nvmlDeviceGetUtilizationRates(h).gpu),
    ("memory_utilization_percent", lambda h: pynvml.nvmlDeviceGetUtilizationRates(h).memory),
    ("encoder_utilization_percent", lambda h: pynvml.nvmlDeviceGetEncoderUtilization(h)[0]),
    ("decoder_utilization_percent", lambda h: pynvml.nvmlDeviceGetDecoderUtilization(h)[0]),
    ("memory_total_bytes", lambda h: pynvml.nvmlDeviceGetMemoryInfo(h).total),
    ("memory_used_bytes", lambda h: pynvml.nvmlDeviceGetMemoryInfo(h).used),
    ("memory_free_bytes", lambda h: pynvml.nvmlDeviceGetMemoryInfo(h).free),
    ("bar1_used_bytes", lambda h: pynvml.nvmlDeviceGetBAR1MemoryInfo(h).bar1Used),
    ("power_watts", lambda h: pynvml.nvmlDeviceGetPowerUsage(h) / 1000),
    ("power_limit_watts", lambda h: pynvml.nvmlDeviceGetPowerManagementLimit(h) / 1000),
    ("power_enforced_limit_watts", lambda h: pynvml.nvmlDeviceGetEnforcedPowerLimit(h) / 1000),
    ("energy_joules", lambda h: pynvml.nvmlDeviceGetTotalEnergyConsumption(h) / 1000),
    ("temperature_celsius", lambda h: pynvml.nvmlDeviceGetTemperature(h, pynvml.NVML_TEMPERATURE_GPU)),
    ("clock_graphics_mhz", lambda h: pynvml.nvmlDeviceGetClockInfo(h, pynvml.NVML_CLOCK_GRAPHICS)),
    ("clock_sm_mhz", lambda h: pynvml.nvmlDeviceGetClockInfo(h, pynvml.NVML_CLOCK_SM)),
    ("clock_memory_mhz", lambda h: pynvml.nvmlDeviceGetClockInfo(h, pynvml.NVML_CLOCK_MEM)),
    ("clock_video_mhz", lambda h: pynvml.nvmlDeviceGetClockInfo(h, pynvml.NVML_CLOCK_VIDEO)),
    ("clock_max_sm_mhz", lambda h: pynvml.nvmlDeviceGetMaxClockInfo(h, pynvml.NVML_CLOCK_SM)),
    ("clock_max_memory_mhz", lambda h: pynvml.nvmlDeviceGetMaxClockInfo(h, pynvml.NVML_CLOCK_MEM)),
    ("performance_state", pynvml.nvmlDeviceGetPerformanceState),
    ("throttle_reasons", pynvml.nvmlDeviceGetCurrentClocksEventReasons),
    (
        "ecc_corrected_errors",
        lambda h: pynvml.nvmlDeviceGetTotalEccErrors(
            h, pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, pynvml.NVML_VOLATILE_ECC
        ),
    ),
    (
        "ecc_uncorrected_errors",
        lambda h: pynvml.nvmlDeviceGetTotalEccErrors(
            h, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
        ),
    ),
    ("pcie_generation", pynvml.nvmlDeviceGetCurrPcieLinkGeneration),
    ("pcie_width", pynvml.nvmlDeviceGetCurrPcieLinkWidth),
    ("pcie_replays", pynvml.nvmlDeviceGetPcieReplayCounter),
    ("processes", lambda h: len(pynvml.nvmlDeviceGetComputeRunningProcesses(h))),
)


class GpuCollector(Collector):
    """Reads every value from the driver at each scrape."""

    def __init__(self) -> None:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        self._gpus = [(str(i), pynvml.nvmlDeviceGetUUID(handle), handle) for i, handle in enumerate(handles)]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for name, read in READS:
            family = GaugeMetricFamily(f"gpu_plain_{name}", name.replace("_", " "), labels=["gpu", "uuid"])
            for index, uuid, handle in self._gpus:
                try:
                    family.add_metric([index, uuid], read(handle))
                except pynvml.NVMLError:
                    continue
            yield family


if __name__ == "__main__":
    registry = CollectorRegistry()
    registry.register(GpuCollector())
    start_http_server(int(sys.argv[1]), addr="127.0.0.1", registry=registry)
    threading.Event().wait()
