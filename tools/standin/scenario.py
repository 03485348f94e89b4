"""Scenario files, which the driver stand-in plays, and functions that write them.

The stand-in (`libnvidia-ml.so.1`, built by `build.py`) has NVML's binary interface and simulates nothing:
every number it returns comes from a scenario file, in NVML's own units. A scenario is text with one value
per line, `#` starts a comment line, leading blanks are ignored:

    start 1760000000.5                the time 0 of the frames, in seconds since 1970; without it, time 0
                                      is the process's first nvmlInit
    driver_version 580.95.05          of nvmlSystemGetDriverVersion
    nvml_version 13.580.95.05
    cuda_version 13000                major * 1000 + minor * 10
    mig_monitor 0                     this process has not the right to monitor MIG: of a GPU in MIG mode the
                                      driver denies process lists and memory, and sends no XIDs
    fault hang function=nvmlDeviceGetPowerUsage gpu=0 from=10 until=40

    frame 0                           the next lines are valid from this second on
    gpu 0                             the next lines are of this GPU
    uuid GPU-5fd4f087-86f3-7a43-b711-4771313afc50
    name NVIDIA H100 80GB HBM3
    power.usage 345120                mW
    temp.slowdown -                   not supported, like every key that is not in the file
    xid 79 1                          XID 79 has occurred once so far
    processes 2                       the number of `process` lines that follow; they replace the list
    process 4711 compute 1073741824 - - /usr/bin/python3
    process 4712 compute+graphics - - -
    sample 4711 1760000000400000 62 31 0 0
    mig 0                             the next lines are of this MIG device of that GPU
    uuid MIG-...
    mig 1 -                           the MIG device is gone

    frame 5                           only changes: all other values stay
    gpu 0
    power.usage 350044

Lines that are not `key value`:

    process PID LISTS BYTES GI CI [NAME]   LISTS joins compute, graphics, mps with "+"; "-" for BYTES is
                                           NVML's "not available", for GI and CI "no MIG"
    sample PID TIME SM MEMORY ENCODER DECODER
                                           percent; TIME in us since 1970, or +us since time 0. The driver
                                           keeps 72 samples; lines of one TIME are one of them. It returns one
                                           mean per process, over all samples since the requested time, or
                                           with `samples.raw 1` every sample. With `samples 0` there are none
                                           yet (NOT_FOUND), with `samples -` they are NOT_SUPPORTED
    sample - TIME                          a sample while no process was active
    xid CODE COUNT                         how often the XID has occurred so far. The difference becomes
                                           events, which wait until an event set is registered for the GPU
    account PID GPU% MEMORY% MAX_BYTES TIME_MS START RUNNING
                                           one entry of the accounting buffer; START as a sample's TIME. It
                                           replaces the running entry of that PID, and with RUNNING 0 the
                                           ended entry, too. The sums of nvmlDeviceGetAccountingStats_v2
                                           follow from the `sample` lines
    fault KIND [name=value ...]            see `FaultKind`; faults come before the first frame

The keys of single numbers and texts, with the field of the model and the unit of each, are in
library/slots.h; a new key is a row there. NVML's numbers stand for states (pstate, compute_mode,
recovery_action) and bit masks (throttle.*), GPM ratios are percent with decimals. Keys of several numbers
("N" is a number):

    MHz        {clock,clock_max,clock_app,clock_app_default}.{graphics,sm,memory,video}
    percent    fan.N
    count      ecc.{corrected,uncorrected}.{volatile,aggregate}.{total,l1_cache,l2_cache,device_memory,
               register_file,texture_memory,texture_shm,cbu,sram}
    NVLink     nvlink.N.{state,version,speed,tx,rx} (speed in MB/s, tx and rx in bytes) and the counters
               nvlink.N.{replay,recovery,crc_flit,crc_data,ecc_data,malformed_packet,buffer_overrun,
               receive,receive_remote,receive_general,link_integrity,transmit_discard,
               link_recovery_successful,link_recovery_failed,link_recovery,effective,symbol}

Three rules of the driver take precedence over the file. On a GPU in MIG mode utilisation and process samples
are not supported and accounting is off. A GPU that is `lost` returns GPU_IS_LOST from every call. An
accounting mode set by root applies to every process that plays this file: it is stored in FILE.accounting.N
for `gpu N`.

Replace a file by renaming another over it (as `write_scenario` does): within a few milliseconds the stand-in
plays the new one, with the same time 0 unless the new file has a `start`.
"""

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from gputally.model import Process, Reading
from tools.standin.build import LIBRARY_NAME, build_library
from tools.standin.raw import Raw, raw_account, raw_gpu, raw_mig, raw_process, raw_sample

SCENARIO_VARIABLE = "GPUTALLY_STANDIN_SCENARIO"
DRIVER_VERSION = "580.95.05"
CUDA_VERSION = "13.0"


class FaultKind(StrEnum):
    """Faults that a scenario can have."""

    HANG = "hang"
    """The function does not return until the fault is over."""
    SLEEP = "sleep"
    """The function takes `value` milliseconds longer."""
    ERROR = "error"
    """The function returns NVML's error code `value`."""
    GARBAGE = "garbage"
    """Numbers read `value` (808334905 unless given); process lists have `value` (100) garbage entries."""
    LOST = "lost"
    """Every call on the GPU returns GPU_IS_LOST."""
    ABSENT = "absent"
    """The GPU is missing from the count, and those after it move up."""
    DRIVER_GONE = "driver_gone"
    """nvmlInit returns DRIVER_NOT_LOADED. A process that was initialised before gets UNINITIALIZED from every
    call until its next nvmlInit, even after the fault (a driver reload)."""
    VERSION_MISMATCH = "version_mismatch"
    """nvmlInit returns LIB_RM_VERSION_MISMATCH."""


_NEEDS_FUNCTION = frozenset({FaultKind.HANG, FaultKind.SLEEP, FaultKind.ERROR, FaultKind.GARBAGE})
_NEEDS_VALUE = frozenset({FaultKind.SLEEP, FaultKind.ERROR})
_NEEDS_GPU = frozenset({FaultKind.LOST, FaultKind.ABSENT})


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, from one second of the scenario until another (or for good).

    `function` is an exported name; without a version suffix it means every version, and a `*` at its
    end stands for any ending. `gpu` is the position of the GPU in the first frame; None means any.
    """

    kind: FaultKind
    function: str | None = None
    gpu: int | None = None
    value: int | None = None
    from_seconds: float = 0.0
    until_seconds: float | None = None

    def __post_init__(self) -> None:
        for needed, given, name in (
            (_NEEDS_FUNCTION, self.function, "function"),
            (_NEEDS_VALUE, self.value, "value"),
            (_NEEDS_GPU, self.gpu, "gpu"),
        ):
            if self.kind in needed and given is None:
                raise ValueError(f"fault {self.kind} needs a {name}")

    def line(self) -> str:
        facts = {
            "function": self.function,
            "gpu": self.gpu,
            "value": self.value,
            "from": self.from_seconds,
            "until": self.until_seconds,
        }
        return " ".join(["fault", self.kind, *(f"{k}={v}" for k, v in facts.items() if v is not None)])


@dataclass(frozen=True, slots=True)
class Frame:
    """The GPUs from one second of the scenario on. A GPU without a reading is gone."""

    at_seconds: float
    readings: tuple[Reading, ...]


class _Section:
    """The values of one GPU or MIG device that the file has so far."""

    def __init__(self, heading: str) -> None:
        self.heading = heading
        self.values: Raw = {}
        self.processes: tuple[Process, ...] | None = None

    def lines(self, values: Raw, processes: tuple[Process, ...] | None) -> list[str]:
        """The lines for the values that have changed."""
        lines = [f"{key} {value}" for key, value in values.items() if self.values.get(key) != value]
        lines += [f"{key} -" for key in self.values if key not in values]
        if processes != self.processes:
            lines.append("processes -" if processes is None else f"processes {len(processes)}")
            lines += [raw_process(process) for process in processes or ()]
        self.values, self.processes = values, processes
        return lines


class _Gpu:
    """One GPU over the frames: writes only changes."""

    def __init__(self, place: int, clock_zero: float | None) -> None:
        self._card = _Section(f"gpu {place}")
        self._migs: dict[str, _Section] = {}
        self._clock_zero = clock_zero
        self._last_sample_us = -1

    def lines(self, reading: Reading | None) -> list[str]:
        if reading is None or not reading.up:
            lines = self._silent(reading)
        else:
            lines = [
                *self._card.lines(raw_gpu(reading), _own_processes(reading)),
                *self._samples(reading),
                *(raw_account(ended, self._clock_zero) for ended in reading.accounted or ()),
                *self._mig_lines(reading),
            ]
        return [self._card.heading, *lines] if lines else []

    def _silent(self, reading: Reading | None) -> list[str]:
        """Gone or lost: its values stay in the file, for the time when it is back."""
        known = {key: value for key, value in self._card.values.items() if key not in ("lost", "absent")}
        values = known | {"absent": "1"} if reading is None else known | raw_gpu(reading) | {"lost": "1"}
        return self._card.lines(values, self._card.processes)

    def _samples(self, reading: Reading) -> list[str]:
        new = [s for s in reading.process_samples or () if s.timestamp_us > self._last_sample_us]
        self._last_sample_us = max((s.timestamp_us for s in new), default=self._last_sample_us)
        return [raw_sample(sample, self._clock_zero) for sample in new]

    def _mig_lines(self, reading: Reading) -> list[str]:
        migs = {mig.instance.uuid: mig for mig in reading.mig}
        lines: list[str] = []
        for uuid in [uuid for uuid in self._migs if uuid not in migs]:
            lines.append(f"{self._migs.pop(uuid).heading} -")
        for uuid, mig in migs.items():
            if uuid not in self._migs:
                taken = {place.heading for place in self._migs.values()}
                free = next(h for h in (f"mig {index}" for index in range(len(migs))) if h not in taken)
                self._migs[uuid] = _Section(free)
            place = self._migs[uuid]
            if changes := place.lines(raw_mig(mig), mig.processes):
                lines += [place.heading, *changes]
        return lines


def _own_processes(reading: Reading) -> tuple[Process, ...] | None:
    """The GPU's list without the processes that its MIG devices list themselves."""
    if reading.processes is None:
        return None
    listed = {
        (p.pid, p.gpu_instance_id, p.compute_instance_id) for m in reading.mig for p in m.processes or ()
    }
    return tuple(
        process
        for process in reading.processes
        if (process.pid, process.gpu_instance_id, process.compute_instance_id) not in listed
    )


def scenario_text(
    frames: Sequence[Frame],
    *,
    driver_version: str | None = None,
    cuda_version: str | None = None,
    mig_monitor: bool = True,
    faults: Sequence[Fault] = (),
    start: float | None = None,
    clock_zero: float | None = None,
) -> str:
    """The scenario file that plays these frames; GPUs are in the order in which they first appear.

    Versions default to those of the first reading. `clock_zero` is the time 0 of the readings' timestamps of
    processes, in seconds since 1970: with it, they are written relative to time 0, so that they are recent
    whenever the scenario is played.
    """
    first = next((reading.gpu for frame in frames for reading in frame.readings), None)
    driver = driver_version or (first and first.driver_version) or DRIVER_VERSION
    cuda = cuda_version or (first and first.cuda_version) or CUDA_VERSION
    major, _, minor = cuda.partition(".")
    lines = [] if start is None else [f"start {start!r}"]
    lines += [f"driver_version {driver}", f"nvml_version {major}.{driver}"]
    lines += [f"cuda_version {int(major) * 1000 + int(minor or 0) * 10}"]
    lines += [] if mig_monitor else ["mig_monitor 0"]
    lines += [fault.line() for fault in faults]
    gpus: dict[str, _Gpu] = {}
    previous = None
    for frame in frames:
        if previous is not None and frame.at_seconds <= previous:
            raise ValueError(f"frame at {frame.at_seconds} s does not come after the one at {previous} s")
        previous = frame.at_seconds
        for reading in frame.readings:
            gpus.setdefault(reading.gpu.uuid, _Gpu(len(gpus), clock_zero))
        now = {reading.gpu.uuid: reading for reading in frame.readings}
        lines.append(f"frame {frame.at_seconds!r}")
        for uuid, gpu in gpus.items():
            lines += gpu.lines(now.get(uuid))
    return "\n".join(lines) + "\n"


def write_scenario(
    path: Path,
    frames: Sequence[Frame],
    *,
    driver_version: str | None = None,
    cuda_version: str | None = None,
    mig_monitor: bool = True,
    faults: Sequence[Fault] = (),
    start: float | None = None,
    clock_zero: float | None = None,
) -> Path:
    """Write (or replace, at once) the scenario file; see `scenario_text`."""
    text = scenario_text(
        frames,
        driver_version=driver_version,
        cuda_version=cuda_version,
        mig_monitor=mig_monitor,
        faults=faults,
        start=start,
        clock_zero=clock_zero,
    )
    replace_scenario(path, text)
    return path


def replace_scenario(path: Path, text: str) -> None:
    """Replaces the file atomically, so that no process reads half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    temporary.write_text(text)
    temporary.replace(path)


def held_file(scenario: Path) -> Path:
    """The file that a process keeps open while it is initialised: the driver is in use."""
    return scenario.with_name(scenario.name + ".held")


def environment(scenario: Path, *, library: Path | None = None) -> dict[str, str]:
    """The environment variables with which a child process loads the stand-in instead of a driver."""
    paths = [str(library or build_library())]
    if existing := os.environ.get("LD_LIBRARY_PATH"):
        paths.append(existing)
    return {"LD_LIBRARY_PATH": ":".join(paths), SCENARIO_VARIABLE: str(scenario)}


def preload(scenario: Path, *, library: Path | None = None) -> ctypes.CDLL:
    """Loads the stand-in into this process, where pynvml finds it by its name.

    One library stays loaded for the life of the process; another scenario takes effect at the next
    nvmlInit that follows the last nvmlShutdown.
    """
    os.environ[SCENARIO_VARIABLE] = str(scenario)
    return ctypes.CDLL(str((library or build_library()) / LIBRARY_NAME), mode=ctypes.RTLD_GLOBAL)
