"""Reads AMD GPUs through `rocm-smi`, or `amd-smi` where there is no rocm-smi.

A sample takes one run of `rocm-smi --json` with every option that works. The tool rejects all options when
it does not support one, and prints nothing when it crashes at one (5.2 at the energy counter of an MI300X,
6.1 at the memory use of a GPU without VRAM). Such options are detected and left out. The exit code is no
criterion: it is 0 without a GPU or driver, and 2 with everything read. There are no RAS errors: the tool
never prints them as JSON.

A sample of amd-smi takes one run for values that change, and every five minutes one for the others. Its RAS
errors are read once a minute, because reading them queries the hardware, and its XGMI errors never, because
reading them resets them. A version that does not support the options for that is run without options.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gputally.devices import Errors, Reader, Report
from gputally.devices.amd import pair_dies
from gputally.devices.rocm_smi import amd_smi, rocm_smi_keys
from gputally.devices.rocm_smi.json_values import (
    ListedProcess,
    find_json,
    parse_processes,
    parse_text,
    parse_unrecognized,
)
from gputally.devices.vendor_command import Command, CommandFailed, Finished
from gputally.model import Gpu, MigInstance, MigReading, Process, Reading, Unavailable

FILLS = (
    rocm_smi_keys.FILLS
    | amd_smi.FILLS
    | {
        "mig",
        "MigReading.graphics_active_ratio",
        "MigReading.memory_total_bytes",
        "MigReading.memory_used_bytes",
        "MigReading.memory_free_bytes",
        "processes",
        "Process.name",
        "Process.memory_used_bytes",
    }
)
"""The fields that this reader can fill: see `readers_that_fill`."""

_STATIC_SECONDS = 300.0  # limits rarely change, the other values only with the driver
_RAS_SECONDS = 60.0
_FORGIVE_SECONDS = 3600.0  # after this time, options that the tool refused or crashed at are tried again

_FIX_HANG = (
    "run it by hand: if it is only slow, raise --timeout; if it hangs too, search dmesg for amdgpu and "
    "plan a reboot of the node"
)
_FIX = "run it by hand and search dmesg for amdgpu"
_FIX_DRIVER = "load the driver (modprobe amdgpu), or mount /sys into the container"
_FIX_GPUS = "check that the GPUs are on the bus (lspci -d 1002:) and bound to the amdgpu driver"
_FIX_LIBRARY = "install the ROCm SMI library of the same version as rocm-smi"
_NO_GPUS = ("No AMD GPUs specified", "No JSON data to report")
# Part of the tool's message -> fix.
_FIXES = {
    "not initialized": _FIX_DRIVER,
    "Drivers not loaded": _FIX_DRIVER,
    **dict.fromkeys(_NO_GPUS, _FIX_GPUS),
    "Unable to detect any GPU": _FIX_GPUS,
    "librocm_smi64": _FIX_LIBRARY,
    "rocm_smi library": _FIX_LIBRARY,
    "ROCm SMI returned": "make /sys/class/kfd readable, and use the rocm-smi of the driver's version",
}


@dataclass(frozen=True, slots=True)
class _ToolGpu:
    """A GPU of the tool: a physical GPU, or a partition of one."""

    reading: Reading
    profile: str | None


class RocmSmiReader(Reader):
    """Remembers known GPUs: they keep their index, and a missing one is reported as lost."""

    name = "rocm-smi"

    def __init__(
        self,
        command: str = "rocm-smi",
        *,
        amd_smi_command: str = "amd-smi",
        timeout_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rocm_smi = None if _is_amd_smi(command) else Command(command, fix_when_it_hangs=_FIX_HANG)
        self._amd_smi = Command(
            command if self._rocm_smi is None else amd_smi_command,
            fix_when_it_hangs=_FIX_HANG,
        )
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._deadline = 0.0
        self._options = dict(rocm_smi_keys.OPTIONS)
        self._tried: set[str] = set()
        self._crashing: set[str] = set()
        self._forgive_at = 0.0
        self._static: Mapping[int, amd_smi.Facts] = {}
        self._static_until = 0.0
        self._no_options_until = 0.0
        self._ras: Mapping[int, amd_smi.Facts] = {}
        self._ras_until = 0.0
        self._known: dict[str, Gpu] = {}
        self._errors: Errors = Counter()

    def read(self) -> Report:
        """Reads all GPUs once; all runs together take no longer than the timeout."""
        self._deadline = time.monotonic() + self._timeout_seconds
        readings = {
            reading.gpu.uuid: reading for reading in map(self._settle, _join_partitions(self._read_all()))
        }
        for uuid, gpu in self._known.items():
            if uuid not in readings:
                self._errors["gpu", "missing"] += 1
                readings[uuid] = Reading(gpu=gpu, up=False)
        ordered = sorted(readings.values(), key=lambda reading: reading.gpu.index)
        return Report(pair_dies(ordered), dict(self._errors))

    def close(self) -> None:
        """Reaps an earlier run; nothing else stays open between two samples."""
        self._amd_smi.close()
        if self._rocm_smi is not None:
            self._rocm_smi.close()

    def _read_all(self) -> list[_ToolGpu]:
        if self._rocm_smi is None:
            return self._read_amd_smi()
        try:
            return self._read_rocm_smi(self._rocm_smi)
        except CommandFailed as failure:
            if failure.error != "not_found":
                raise
            try:
                return self._read_amd_smi()
            except CommandFailed as second:
                if second.error != "not_found":
                    raise
                programs = f"{self._rocm_smi.program} nor {self._amd_smi.program}"
                raise CommandFailed("not_found", f"neither {programs} was found", failure.fix) from None

    def _read_rocm_smi(self, command: Command) -> list[_ToolGpu]:
        finished = self._run_rocm_smi(command)
        document = find_json(finished.stdout)
        cards = _cards(document)
        if not cards:
            if self._known and any(words in finished.stderr for words in _NO_GPUS):
                return []
            raise _unavailable(command, finished)
        system = document.get("system")
        system = system if isinstance(system, dict) else {}
        plain_system = rocm_smi_keys.with_plain_keys(system)
        driver_version = parse_text(plain_system.get("driver version"))
        found = []
        for number, card in cards.items():
            gpu = rocm_smi_keys.build_gpu(card, number, driver_version, self._errors)
            if gpu is None:
                self._errors["gpu", "unidentified"] += 1
                continue
            reading = rocm_smi_keys.build_reading(gpu, card, self._errors)
            found.append(_ToolGpu(reading, rocm_smi_keys.partition_profile(card)))
        processes = None
        divided = any(one.profile and not one.profile.startswith("SPX") for one in found)
        if "--showpids" in self._options.keys() - self._crashing and not divided:
            processes = self._processes(system, len(cards))
        return [replace(one, reading=replace(one.reading, processes=processes)) for one in found]

    def _run_rocm_smi(self, command: Command) -> Finished:
        if self._clock() >= self._forgive_at:
            self._tried.clear()
            self._crashing.clear()
            self._forgive_at = self._clock() + _FORGIVE_SECONDS
        finished = self._run(command, *self._arguments(self._options))
        refused = parse_unrecognized(finished.stderr) & self._options.keys()
        if refused:
            self._options = {name: values for name, values in self._options.items() if name not in refused}
            finished = self._run(command, *self._arguments(self._options))
        if _has_crashed(finished) and self._options.keys() - self._tried:
            self._find_crashing(command)
            if self._options.keys() - self._crashing:
                finished = self._run(command, *self._arguments(self._options))
        return finished

    def _find_crashing(self, command: Command) -> None:
        """Tries each option alone. Results are kept over samples, so that a slow tool completes, too."""
        for option in self._options:
            if option in self._tried:
                continue
            if _has_crashed(self._run(command, *self._arguments([option]))):
                self._crashing.add(option)
                self._errors[option.removeprefix("--"), "crash"] += 1
            self._tried.add(option)

    def _arguments(self, options: Iterable[str]) -> list[str]:
        chosen = [option for option in options if option not in self._crashing]
        return [*(word for option in chosen for word in (option, *self._options[option])), "--json"]

    def _processes(self, system: Mapping[str, object], gpus: int) -> tuple[Process, ...] | None:
        listed, malformed = parse_processes(system)
        if malformed:
            self._errors["processes", "malformed"] += malformed
        return assign_processes(listed, gpus)

    def _read_amd_smi(self) -> list[_ToolGpu]:
        metrics = self._read_metrics()
        if metrics.keys() != self._static.keys() or self._clock() >= self._static_until:
            self._static = self._run_amd_smi("static")
            self._static_until = self._clock() + _STATIC_SECONDS
        found = []
        for number, metric in metrics.items():
            static = self._static.get(number, {})
            gpu = amd_smi.build_gpu(static, number, self._errors)
            if gpu is None:
                self._errors["gpu", "unidentified"] += 1
                continue
            reading = amd_smi.build_reading(gpu, static, metric, self._errors)
            found.append(_ToolGpu(reading, amd_smi.partition_profile(static)))
        return found

    def _read_metrics(self) -> Mapping[int, amd_smi.Facts]:
        """The measurements, with the RAS errors of the last minute."""
        if self._clock() < self._no_options_until:
            return self._run_amd_smi("metric")
        again = self._clock() >= self._ras_until
        options = (*amd_smi.METRIC_OPTIONS, *(amd_smi.RAS_OPTIONS if again else ()))
        finished = self._run(self._amd_smi, "metric", *options, "--json")
        metrics: Mapping[int, amd_smi.Facts] = amd_smi.gpus_of(find_json(finished.stdout))
        if not metrics:
            metrics = self._run_amd_smi("metric")
            self._no_options_until = self._clock() + _FORGIVE_SECONDS
        elif again:
            self._ras = {number: amd_smi.ras_section(metric) for number, metric in metrics.items()}
            self._ras_until = self._clock() + _RAS_SECONDS
        return {number: {**self._ras.get(number, {}), **metric} for number, metric in metrics.items()}

    def _run_amd_smi(self, what: str) -> Mapping[int, amd_smi.Facts]:
        finished = self._run(self._amd_smi, what, "--json")
        gpus = amd_smi.gpus_of(find_json(finished.stdout))
        if not gpus:
            raise _unavailable(self._amd_smi, finished)
        return gpus

    def _run(self, command: Command, *arguments: str) -> Finished:
        return command.run(*arguments, timeout_seconds=self._deadline - time.monotonic())

    def _settle(self, reading: Reading) -> Reading:
        """The reading under the index that its GPU has kept since it was first seen."""
        known = self._known.get(reading.gpu.uuid)
        index = len(self._known) if known is None else known.index
        gpu = self._known[reading.gpu.uuid] = replace(reading.gpu, index=index)
        if not reading.up:
            self._errors["gpu", "lost"] += 1
            return Reading(gpu=gpu, up=False)
        partitions = tuple(
            replace(part, instance=replace(part.instance, parent_index=index)) for part in reading.mig
        )
        return replace(reading, gpu=gpu, mig=partitions)


def assign_processes(listed: list[ListedProcess], gpus: int) -> tuple[Process, ...] | None:
    """The processes on each of so many GPUs; None when the GPUs of a process are unknown."""
    placed = []
    for process in listed:
        if gpus == 1:
            placed.append(Process(process.pid, "compute", process.name, process.memory_used_bytes))
        elif process.gpus == gpus:
            placed.append(Process(process.pid, "compute", process.name))
        elif process.gpus != 0 or process.memory_used_bytes != 0:
            return None
    return tuple(placed)


def _is_amd_smi(command: str) -> bool:
    return Path(command).name.startswith("amd-smi")


def _has_crashed(finished: Finished) -> bool:
    """A shell around the tool returns 134 for signal 6."""
    died = finished.exit_code < 0 or finished.exit_code > 128 or "Traceback (most recent" in finished.stderr
    return died and find_json(finished.stdout) is None


def _cards(document: object) -> dict[int, rocm_smi_keys.CardJson]:
    """The GPUs of a document, by the tool's number; empty for another document."""
    found = {}
    for key, card in document.items() if isinstance(document, dict) else ():
        match = re.fullmatch(r"card([0-9]{1,4})", key)
        if match and isinstance(card, dict):
            found[int(match[1])] = rocm_smi_keys.with_plain_keys(card)
    return dict(sorted(found.items()))


def _join_partitions(found: list[_ToolGpu]) -> list[Reading]:
    """One reading per GPU: its partitions have its address, and its unique id or none."""
    cards: list[list[_ToolGpu]] = []
    for one in found:
        card = next((card for card in cards if _is_part(one.reading.gpu, card[0].reading.gpu)), None)
        if card is None:
            cards.append([one])
        else:
            card.append(one)
    counts = Counter(card[0].reading.gpu.uuid for card in cards)
    readings = []
    for parts in cards:
        reading = parts[0].reading
        if counts[reading.gpu.uuid] > 1:  # two dies of one package: the address is added
            gpu = replace(reading.gpu, uuid=f"{reading.gpu.uuid}-{reading.gpu.pci_bus_id}")
            reading = replace(reading, gpu=gpu)
        if len(parts) > 1:
            profile = parts[0].profile
            partitions = (_partition(reading.gpu, number, part, profile) for number, part in enumerate(parts))
            reading = replace(reading, mig=tuple(partitions))
        readings.append(reading)
    return readings


def _is_part(gpu: Gpu, card: Gpu) -> bool:
    """The function in a partition's address may be the partition's number."""
    if gpu.pci_bus_id is None or card.pci_bus_id is None:
        return False
    slot = gpu.pci_bus_id.rpartition(".")[0]
    return card.pci_bus_id.rpartition(".")[0] == slot and gpu.uuid in (card.uuid, f"GPU-{gpu.pci_bus_id}")


def _partition(card: Gpu, number: int, part: _ToolGpu, profile: str | None) -> MigReading:
    return MigReading(
        instance=MigInstance(
            uuid=f"{card.uuid}-{number}",
            parent_uuid=card.uuid,
            parent_index=card.index,
            gpu_instance_id=number,
            compute_instance_id=0,
            profile=profile,
        ),
        graphics_active_ratio=part.reading.gpu_utilization_ratio,
        memory_total_bytes=part.reading.memory_total_bytes,
        memory_used_bytes=part.reading.memory_used_bytes,
        memory_free_bytes=part.reading.memory_free_bytes,
    )


def _unavailable(command: Command, finished: Finished) -> Unavailable:
    """The reason is the last line of the errors, else the first line of the output."""
    errors = [line.strip() for line in finished.stderr.splitlines() if line.strip()]
    words = [line.strip() for line in finished.stdout.splitlines() if line.strip()]
    said = errors[-1] if errors else words[0] if words else "nothing"
    said = re.sub(r"[^ -~]+", "?", said)[:300]
    everything = finished.stdout + finished.stderr
    fix = next((fix for part, fix in _FIXES.items() if part in everything), _FIX)
    if finished.exit_code == 0:
        return Unavailable(f"{command.program} did not print JSON, but: {said}", fix)
    how = (
        f"was ended by signal {-finished.exit_code}"
        if finished.exit_code < 0
        else f"ended with exit code {finished.exit_code}"
    )
    return Unavailable(f"{command.program} {how}: {said}", fix)
