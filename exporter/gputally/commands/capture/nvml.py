"""What the driver's library says: some rounds of the reader, then a survey of everything else.

Functions of the library are called Get or Query: none that changes a setting.
"""

import inspect
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from gputally.commands.capture.archive import Archive
from gputally.commands.capture.masks import Masks
from gputally.commands.capture.nvml_calls import Recorder
from gputally.devices.nvml import NvmlReader
from gputally.model import Unavailable

README = """\
nvml.json: the calls of NVIDIA's driver library that GPUTally made, in order
  some rounds of all that the exporter reads (`by`: reader), and a survey (`by`: survey): every function that
    describes a GPU, every field value with its return code, every GPM metric, process lists, samples of
    utilisation and accounting
  for each call: return code, duration and the arguments after it
  replaced: UUIDs, serial numbers, PCI addresses, pids and names of processes (equal ones stay equal)
  left out ("hidden"): all other texts except names and versions of GPU, driver and firmware; board and device
    ids, host names, certificates, licences, virtual machines and sessions
"""
_FILE = "nvml.json"
_ROUNDS = 6
_INTERVAL_SECONDS = 2.0
_LONGEST_SECONDS = 90.0
_IDENTIFIES = re.compile(
    r"Handle|UUID|Serial|BoardId|Pdi|Host(?!Vgpu)|Certificate|Attestation|Metadata|Vgpu|Licens|Session|BBX"
)
_FIELDS_PER_CALL = 64
_ALL_LINKS = 2**32 - 1
_NEWER_FIELDS = 32
"""Ids beyond those that pynvml knows: a newer driver may have them."""
_MOST_ACCOUNTED = 64
_GPM_SECONDS = 0.25


def capture_nvml(
    masks: Masks,
    archive: Archive,
    *,
    rounds: int = _ROUNDS,
    interval_seconds: float = _INTERVAL_SECONDS,
    longest_seconds: float = _LONGEST_SECONDS,
) -> list[str]:
    """Adds the calls; returns a summary. Raises Unavailable where NVML does not start.

    A call that hangs does not prevent that the calls before it are stored.
    """
    try:
        import pynvml  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise Unavailable(
            "the Python package nvidia-ml-py is not installed", "pip install nvidia-ml-py"
        ) from error
    recorder = Recorder(pynvml, masks)
    session = _Session(pynvml, recorder, rounds, interval_seconds)
    worker = threading.Thread(target=session.run, name="capture-nvml", daemon=True)
    started_at = time.time()
    worker.start()
    worker.join(longest_seconds)
    hanging = recorder.under_way() if worker.is_alive() else []
    if session.unavailable is not None and not session.gpus:
        raise session.unavailable
    recorded = {
        "format": 1,
        "started_at_seconds": round(started_at),
        "rounds": rounds,
        "interval_seconds": interval_seconds,
        "gpus": session.gpus,
        "hanging": hanging,
        "left_out": recorder.left_out,
        "calls": tuple(recorder.calls),
    }
    archive.add(_FILE, json.dumps(recorded, separators=(",", ":")).encode())
    summary = [f"captured NVIDIA GPUs: {session.gpus}, in {len(recorder.calls)} calls of NVML"]
    summary += [f"  still waiting after {one['seconds']:.0f} s: {one['call']}" for one in hanging]
    if session.unavailable is not None:
        summary.append(f"  ended early: {session.unavailable.reason}")
    if recorder.left_out:
        summary.append(f"  calls beyond the limit, left out: {recorder.left_out}")
    return summary


class _Session:
    """Runs on its own thread, which may hang in the driver."""

    def __init__(self, nvml: Any, recorder: Recorder, rounds: int, interval_seconds: float) -> None:
        self.gpus = 0
        self.unavailable: Unavailable | None = None
        self._nvml = nvml
        self._recorder = recorder
        self._rounds = rounds
        self._interval_seconds = interval_seconds

    def run(self) -> None:
        with self._recorder.recording():
            reader = NvmlReader(pcie_throughput=True, accounting=True)
            try:
                for number in range(1, self._rounds + 1):
                    if number > 1:
                        time.sleep(self._interval_seconds)
                    self._recorder.by, self._recorder.round = "reader", number
                    self.gpus = len(reader.read().readings)
                    self._recorder.by = "survey"
                    for handle in self._handles():
                        # All samples that the driver has, beside those since the last call of the reader.
                        self._ask("nvmlDeviceGetProcessUtilization", handle, 0)
                self._survey()
            except Unavailable as failure:
                self.unavailable = failure
            finally:
                reader.close()

    def _handles(self) -> Iterator[Any]:
        for index in range(self._ask("nvmlDeviceGetCount") or 0):
            handle = self._ask("nvmlDeviceGetHandleByIndex", index)
            if handle is not None:
                yield handle

    def _ask(self, function: str, *arguments: Any) -> Any:
        """None if it fails: the code is recorded. pynvml's functions do not check all that they are given."""
        call = getattr(self._nvml, function, None)
        if call is None:
            return None
        with suppress(self._nvml.NVMLError, AttributeError, IndexError, NameError, TypeError, ValueError):
            return call(*arguments)
        return None

    def _survey(self) -> None:
        for function in ("DriverVersion", "NVMLVersion", "CudaDriverVersion_v2"):
            self._ask(f"nvmlSystemGet{function}")
        for handle in self._handles():
            for function in device_functions(self._nvml):
                self._ask(function, handle)
            for pid in (self._ask("nvmlDeviceGetAccountingPids", handle) or [])[:_MOST_ACCOUNTED]:
                self._ask("nvmlDeviceGetAccountingStats", handle, pid)
            for fields in field_questions(self._nvml):
                self._ask("nvmlDeviceGetFieldValues", handle, fields)
            self._gpm(handle)

    def _gpm(self, handle: Any) -> None:
        nvml = self._nvml
        support = self._ask("nvmlGpmQueryDeviceSupport", handle)
        if support is None or not support.isSupportedDevice:
            return
        samples = [self._ask("nvmlGpmSampleAlloc") for _ in range(2)]
        if None not in samples:
            for sample in samples:
                self._ask("nvmlGpmSampleGet", handle, sample)
                time.sleep(_GPM_SECONDS if self._interval_seconds else 0)
            request = nvml.c_nvmlGpmMetricsGet_t()
            request.version = nvml.NVML_GPM_METRICS_GET_VERSION
            request.numMetrics = len(request.metrics) - 1
            request.sample1, request.sample2 = samples
            for place in range(request.numMetrics):
                request.metrics[place].metricId = place + 1
            self._ask("nvmlGpmMetricsGet", request)
        for sample in samples:
            if sample is not None:
                self._ask("nvmlGpmSampleFree", sample)


def device_functions(nvml: Any) -> list[str]:
    """pynvml's functions that only describe a GPU, and do not identify it."""
    return sorted(
        name
        for name, function in vars(nvml).items()
        if name.startswith("nvmlDeviceGet")
        and inspect.isfunction(function)
        and len(inspect.signature(function).parameters) == 1
        and not _IDENTIFIES.search(name)
    )


def field_questions(nvml: Any) -> Iterator[list[tuple[int, int]]]:
    """All field ids, for scope 0 and for all links together, some per call."""
    known = [value for name, value in vars(nvml).items() if name.startswith("NVML_FI_DEV_")]
    last = max((value for value in known if isinstance(value, int)), default=0) + _NEWER_FIELDS
    for scope in (0, _ALL_LINKS):
        for first in range(1, last + 1, _FIELDS_PER_CALL):
            yield [(one, scope) for one in range(first, min(first + _FIELDS_PER_CALL, last + 1))]
