"""Columns of nvidia-smi under the names and with the numbers that nvidia_gpu_exporter gives them.

That exporter serves every column that the driver has, by one rule, so that a column of a future driver has a
name before anyone has seen it. The same rule is here, in its version 1.14. A cell is a number, a state
that has a number, or a text with exactly one number in it ("NVIDIA H200" is 200); any other has no sample.
"""

import math
import re
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from gputally.metrics.catalog import Kind, Metric, Scope
from gputally.model import RECOVERY_ACTIONS

PREFIX = "nvidia_smi_"
GPU_LABELS = ("uuid",)

_UNITS = {
    "W": ("watts", 1.0),
    "MHz": ("clock_hz", 1_000_000.0),
    "MiB": ("bytes", 1_048_576.0),
    "%": ("ratio", 0.01),
    "us": ("seconds", 0.000001),
    "ms": ("seconds", 0.001),
    "seconds": ("seconds", 1.0),
    "W/s": ("watts_per_second", 1.0),
}
_STATES = {
    **dict.fromkeys(("enabled", "yes", "active"), 1.0),
    **dict.fromkeys(("disabled", "no", "not active"), 0.0),
    **{"default": 0.0, "exclusive_thread": 1.0, "prohibited": 2.0, "exclusive_process": 3.0},
}
_FABRIC_STATES = ("not supported", "not started", "in progress", "completed")
_OWN_STATES: Mapping[str, Mapping[str, float]] = {
    # NVML's numbers. The tool writes some actions shorter than NVML does.
    "gpu_recovery_action": {
        **{action.replace("_", " "): float(number) for number, action in enumerate(RECOVERY_ACTIONS)},
        **{"reset": 1.0, "reboot": 2.0},
    },
    "fabric.state": {state: float(number) for number, state in enumerate(_FABRIC_STATES)},
}
"""Columns whose texts are states and nothing else."""

_HEADER = re.compile(r"(\S+)(?: \[([^\]]*)\])?.*")
_WORD_BEGINS = re.compile(r"(?<=.)(?=[A-Z][a-z])|(?<=[a-z0-9])(?=[A-Z])")
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_:]+")
_NUMBER = re.compile(r"[+-]?(?:[0-9]*\.)?[0-9]+")
_HEXADECIMAL = re.compile(r"0x([0-9a-fA-F]{1,16})")


class PrintedColumn(NamedTuple):
    """A column of nvidia-smi as a metric."""

    column: str
    metric: Metric
    times: float

    def value(self, cell: str) -> float | None:
        text = cell.strip()
        if self.column in _OWN_STATES:
            return _OWN_STATES[self.column].get(text.lower())
        if text.startswith("0x"):
            match = _HEXADECIMAL.fullmatch(text)
            return float(int(match[1], 16)) if match else None
        state = _STATES.get(text.lower())
        if state is not None:
            return state
        numbers = _NUMBER.findall(text)
        value = float(numbers[0]) * self.times if len(numbers) == 1 else math.nan
        return value if math.isfinite(value) else None


@cache
def printed_column(header: str) -> PrintedColumn:
    """The column of a header: `memory.used [MiB]` is nvidia_smi_memory_used_bytes."""
    match = _HEADER.fullmatch(header)
    column, unit = (match[1], match[2] or "") if match else (header, "")
    suffix, times = _UNITS.get(unit, (unit, 1.0))
    metric = Metric(
        metric_name(column, suffix), Kind.GAUGE, Scope.EXPORTER, "", column_help(column), GPU_LABELS
    )
    return PrintedColumn(column, metric, times)


def metric_name(column: str, suffix: str = "") -> str:
    words = _WORD_BEGINS.sub("_", column.replace(".", "_")).lower()
    return PREFIX + _NOT_IN_A_NAME.sub("_", f"{words}_{suffix}" if suffix else words)


def column_help(column: str) -> str:
    return f"{column} of nvidia-smi."
