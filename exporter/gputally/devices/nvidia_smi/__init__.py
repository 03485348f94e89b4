"""Reads NVIDIA GPUs through `nvidia-smi`, for hosts where NVML cannot be loaded.

A sample takes two runs: one table of GPUs, one of processes. The columns depend on
the driver, and the tool rejects a query with an unknown one: the available columns are read first
(`--help-query-gpu`), once per driver version. XML (`-q -x`) is not used: it takes far longer to print and to
parse, and a crash in the middle of it loses every GPU, where a table keeps the rows before.

One GPU that has fallen off the bus makes every query fail (exit code 15 or 255, "Unable to determine
the device handle"). `-L` still lists the others, and a query for just those works.
"""

import re
import time
from collections import Counter
from dataclasses import replace

from gputally.devices import Errors, Reader, Report
from gputally.devices.nvidia_smi import gpu_columns
from gputally.devices.nvidia_smi.csv_tables import (
    APP_COLUMNS,
    ComputeApps,
    CsvTable,
    TableRow,
    canonical,
    parse_compute_apps,
    parse_cuda_version,
    parse_help_columns,
    parse_list,
    parse_query_gpu,
)
from gputally.devices.nvidia_smi.gpu_columns import (
    WANTED,
    build_gpu,
    build_reading,
    choose_columns,
    is_lost,
)
from gputally.devices.vendor_command import Command, CommandFailed, Finished
from gputally.model import Gpu, Reading, Unavailable

FILLS = gpu_columns.FILLS | {"processes", "Process.name", "Process.memory_used_bytes"}
"""The fields that this reader can fill: see `readers_that_fill`."""

_UNKNOWN_COLUMN = "is not a valid field to query"
_NO_HANDLE = "Unable to determine the device handle"
_NO_DEVICES = "No devices were found"

# Exit codes of `man nvidia-smi`.
_FIXES = {
    4: "run as a user with permission for /dev/nvidia*, or add these devices to the container",
    6: "check that the GPUs are on the bus (lspci -d 10de:) and bound to the nvidia driver",
    8: "check the GPU's external power cables",
    9: "load the driver (modprobe nvidia), or install one that fits this kernel",
    12: "install the driver's libnvidia-ml.so.1, or start the container with the NVIDIA runtime",
    14: "the infoROM is corrupted: replace the card",
    15: "reset the GPU (nvidia-smi --gpu-reset), else reboot the node",
    18: "driver and library differ in version: reload the driver or reboot after its update",
}
_FIX = "run nvidia-smi by hand and search dmesg for NVRM and Xid"
_FIX_HANG = (
    "run nvidia-smi by hand: if it is only slow, switch persistence mode on (nvidia-smi -pm 1) or allow more "
    "time; if it hangs too, look for NVRM and Xid lines in dmesg and plan a reboot of the node"
)


class NvidiaSmiReader(Reader):
    """Remembers known GPUs, so that a missing one is reported as lost."""

    name = "nvidia-smi"

    def __init__(
        self, *, command: str = "nvidia-smi", timeout_seconds: float, every_column: bool = False
    ) -> None:
        """`every_column` adds the whole row to the readings."""
        self._command = Command(command, fix_when_it_hangs=_FIX_HANG)
        self._timeout_seconds = timeout_seconds
        self._every_column = every_column
        self._deadline = 0.0
        self._columns: tuple[str, ...] = ()
        self._driver_version: str | None = None
        self._cuda_version: str | None = None
        self._cuda_version_read = False
        self._known: dict[str, Gpu] = {}
        self._errors: Errors = Counter()
        self._exit_code: int | None = None

    def read(self) -> Report:
        """Reads all GPUs once; all runs together take no longer than the timeout."""
        self._deadline = time.monotonic() + self._timeout_seconds
        table, selection = self._read_gpus()
        readings: dict[str, Reading] = {}
        for row in table.rows:
            self._add_row(table, row, readings)
        apps = self._read_processes(selection) if any(r.up for r in readings.values()) else None
        if apps is not None:
            self._add_processes(apps, readings)
        for uuid, gpu in self._known.items():
            if uuid not in readings:
                self._errors["gpu", "missing"] += 1
                readings[uuid] = Reading(gpu=gpu, up=False)
        ordered = sorted(readings.values(), key=lambda reading: reading.gpu.index)
        return Report(tuple(ordered), dict(self._errors), self._exit_code)

    def close(self) -> None:
        """Reaps an earlier run; nothing else stays open between two samples."""
        self._command.close()

    def _run(self, *arguments: str) -> Finished:
        return self._command.run(*arguments, timeout_seconds=self._deadline - time.monotonic())

    def _read_gpus(self) -> tuple[CsvTable, tuple[str, ...]]:
        """The table of GPUs, and the arguments that select the GPUs that respond."""
        self._discover()
        selection: tuple[str, ...] = ()
        finished = self._query_gpus(selection)
        if _UNKNOWN_COLUMN in finished.stdout:
            self._forget_driver()
            self._discover()
            finished = self._query_gpus(selection)
            if _UNKNOWN_COLUMN in finished.stdout and self._every_column:
                self._errors["gpu", "column_refused"] += 1
                self._columns = tuple(column for column in self._columns if canonical(column) in WANTED)
                finished = self._query_gpus(selection)
        if _NO_HANDLE in finished.stdout + finished.stderr:
            self._errors["gpu", "no_handle"] += 1
            answering = parse_list(self._run("-L").stdout)
            if answering:
                selection = ("-i", ",".join(map(str, answering)))
                finished = self._query_gpus(selection)
            elif self._known:
                return CsvTable(), selection
        table = parse_query_gpu(finished.stdout)
        if not table.rows:
            if self._known and _NO_DEVICES in finished.stdout + finished.stderr:
                return CsvTable(), selection
            raise self._unavailable(finished)
        if finished.exit_code != 0:
            self._errors["gpu", f"exit_code_{finished.exit_code}"] += 1
        if table.malformed:
            self._errors["gpu", "malformed"] += table.malformed
        return table, selection

    def _query_gpus(self, selection: tuple[str, ...]) -> Finished:
        finished = self._run(*selection, f"--query-gpu={','.join(self._columns)}", "--format=csv")
        self._exit_code = finished.exit_code
        return finished

    def _discover(self) -> None:
        """Reads the columns and the CUDA version. Each result is kept, so that a slow tool completes, too."""
        if not self._columns:
            finished = self._run("--help-query-gpu")
            columns = choose_columns(parse_help_columns(finished.stdout), every=self._every_column)
            if finished.exit_code != 0 or not {"uuid", "index"} <= set(columns):
                raise self._unavailable(finished)
            self._columns = columns
        if not self._cuda_version_read:
            finished = self._run("--version")
            self._cuda_version = parse_cuda_version(finished.stdout) if finished.exit_code == 0 else None
            self._cuda_version_read = True

    def _forget_driver(self) -> None:
        self._columns = ()
        self._cuda_version_read = False

    def _add_row(self, table: CsvTable, row: TableRow, readings: dict[str, Reading]) -> None:
        gpu = build_gpu(row, self._cuda_version)
        if gpu is None:
            gpu = self._recognise(row)
            if gpu is None:
                self._errors["gpu", "unidentified"] += 1
                return
            lost = True
        else:
            lost = is_lost(row)
        if gpu.uuid in readings:
            self._errors["gpu", "duplicate"] += 1
            return
        if lost:
            self._errors["gpu", "lost"] += 1
            readings[gpu.uuid] = Reading(gpu=self._known.setdefault(gpu.uuid, gpu), up=False)
            return
        if gpu.driver_version != self._driver_version:
            if self._driver_version is not None:
                self._forget_driver()  # the next sample reads the columns of the new driver
            self._driver_version = gpu.driver_version
        self._known[gpu.uuid] = gpu
        reading = build_reading(gpu, row, self._errors)
        if self._every_column:
            headers = zip(table.headers, table.columns, strict=True)
            reading = replace(reading, nvidia_smi_row={header: row[column] for header, column in headers})
        readings[gpu.uuid] = reading

    def _recognise(self, row: TableRow) -> Gpu | None:
        """The known GPU at the address or index of a row without a uuid."""
        places = {gpu.pci_bus_id: gpu for gpu in self._known.values() if gpu.pci_bus_id}
        indices = {str(gpu.index): gpu for gpu in self._known.values()}
        return places.get(row.get("pci.bus_id", "")) or indices.get(row.get("index", ""))

    def _read_processes(self, selection: tuple[str, ...]) -> ComputeApps | None:
        try:
            finished = self._run(*selection, f"--query-compute-apps={','.join(APP_COLUMNS)}", "--format=csv")
        except CommandFailed as failure:
            self._errors["processes", failure.error] += 1
            return None
        apps = parse_compute_apps(finished.stdout)
        if apps is None:
            self._errors["processes", f"exit_code_{finished.exit_code}"] += 1
        return apps

    def _add_processes(self, apps: ComputeApps, readings: dict[str, Reading]) -> None:
        for error, count in apps.errors.items():
            self._errors["processes", error] += count
        for uuid, reading in readings.items():
            if reading.up:
                names = apps.printed_names.get(uuid, {}) if self._every_column else None
                processes = apps.processes.get(uuid, ())
                readings[uuid] = replace(reading, processes=processes, nvidia_smi_names=names)
        strangers = apps.processes.keys() - readings.keys() - self._known.keys()
        if strangers:
            self._errors["processes", "unknown_gpu"] += len(strangers)

    def _unavailable(self, finished: Finished) -> Unavailable:
        words = next(
            (
                line.strip()
                for line in (finished.stdout + "\n" + finished.stderr).splitlines()
                if line.strip()
            ),
            "",
        )
        said = re.sub(r"[^ -~]+", "?", words)[:300] or "nothing"
        code = finished.exit_code
        if code == 0:
            return Unavailable(f"{self._command.program} did not print the table, but: {said}", _FIX, code)
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return Unavailable(f"{self._command.program} {how}: {said}", _FIXES.get(code, _FIX), code)
