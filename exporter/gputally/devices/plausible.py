"""Drops values that no GPU can have measured: garbage from a driver must not become a sample.

The bounds are far outside what hardware does today, so that only garbage and sentinels (NVML's all-ones)
are dropped. They follow from the unit at the end of a field's name; a field without a unit is a counter.
NaN is inside no bounds.
"""

from dataclasses import fields, replace
from operator import attrgetter
from typing import Any, get_args

from gputally.model import Labelled, MigReading, Process, ProcessSample, Reading

Bounds = tuple[float, float]

_COUNTER: Bounds = (0, 2**63 - 1)
_COUNTER_32: Bounds = (0, 2**32 - 2)
_STATE: Bounds = (0, 1)

_BOUNDS_BY_UNIT: dict[str, Bounds] = {
    "_ratio": (0, 1 + 1e-9),
    "_watts": (0, 5000),
    "_limit_watts": (0.001, 5000),
    "_celsius": (-60, 200),
    "_hertz": (0, 1e11),  # GDDR7 is past 14 GHz
    "_bytes": (0, 2**47),
    "_bytes_per_second": (0, 1e13),
    "_seconds": (0, 1e11),
    "_active": _STATE,
    "_up": _STATE,
    "_mode": _STATE,
    "_action": _STATE,
}
# Fields with narrower or wider bounds than their unit.
_BOUNDS_BY_FIELD: dict[str, Bounds] = {
    "temperature_margin_celsius": (-100, 200),
    "fan_speed_ratio": (0, 2),  # a fan may be driven past what its maker calls 100 %
    "performance_state": (0, 15),
    "nvlink_bytes": _COUNTER,
    "xgmi_bytes": _COUNTER,
    "pcie_replays": _COUNTER_32,
    "retired_pages": _COUNTER_32,
    "remapped_rows": _COUNTER_32,
    "remap_banks": _COUNTER_32,
    "pcie_generation": (1, 16),
    "pcie_generation_max": (1, 16),
    "pcie_width": (1, 32),
    "pcie_width_max": (1, 32),
    "multiprocessors": (0, 2**16),
}
_NO_MEASUREMENT = {
    *("gpu", "up", "late", "read_at_us", "instance"),
    *("processes", "process_samples", "accounted", "mig"),
    *("nvidia_smi_row", "nvidia_smi_names"),
}


def bounds_of(field: str) -> Bounds | None:
    """The lowest and the highest value of a field; None for a field that is no measurement."""
    if field in _NO_MEASUREMENT:
        return None
    if field in _BOUNDS_BY_FIELD:
        return _BOUNDS_BY_FIELD[field]
    units = [unit for unit in _BOUNDS_BY_UNIT if field.endswith(unit)]
    return _BOUNDS_BY_UNIT[max(units, key=len)] if units else _COUNTER


class _Measurements:
    """The fields of one model class that hold a number, or several under labels."""

    def __init__(self, model: type[Reading] | type[MigReading]) -> None:
        measured = [
            (field.name, bounds, Labelled in get_args(field.type))
            for field in fields(model)
            if (bounds := bounds_of(field.name)) is not None and bool not in get_args(field.type)
        ]
        self.plain = [(name, *bounds) for name, bounds, labelled in measured if not labelled]
        self.labelled = [(name, *bounds) for name, bounds, labelled in measured if labelled]
        self._get_plain = attrgetter(*(name for name, _, _ in self.plain))
        self._get_labelled = attrgetter(*(name for name, _, _ in self.labelled)) if self.labelled else None

    def check(self, reading: Reading | MigReading) -> tuple[dict[str, Any], list[str]]:
        """New values for the fields with an implausible value, and their names, once per value."""
        changes: dict[str, Any] = {}
        dropped: list[str] = []
        for (name, low, high), value in zip(self.plain, self._get_plain(reading), strict=True):
            if value is not None and not low <= value <= high:
                changes[name] = None
                dropped.append(name)
        if self._get_labelled is None:
            return changes, dropped
        for (name, low, high), values in zip(self.labelled, self._get_labelled(reading), strict=True):
            if not values:
                continue
            for value in values.values():
                if not low <= value <= high:
                    kept = {labels: value for labels, value in values.items() if low <= value <= high}
                    changes[name] = kept or None
                    dropped.extend([name] * (len(values) - len(kept)))
                    break
        return changes, dropped


_OF_GPU = _Measurements(Reading)
_OF_MIG = _Measurements(MigReading)
_MEMORY_LOW, _MEMORY_HIGH = _BOUNDS_BY_UNIT["_bytes"]
_RATIO_LOW, _RATIO_HIGH = _BOUNDS_BY_UNIT["_ratio"]


def drop_implausible(reading: Reading) -> tuple[Reading, tuple[str, ...]]:
    """The reading without implausible values, and the field's name of each dropped value."""
    changes, dropped = _OF_GPU.check(reading)
    processes, dropped_memory = _drop_process_memory(reading.processes)
    samples, dropped_samples = _drop_samples(reading.process_samples)
    instances, dropped_of_mig = _drop_of_mig(reading.mig)
    dropped += dropped_memory + dropped_samples + dropped_of_mig
    if not dropped:
        return reading, ()
    if dropped_memory:
        changes["processes"] = processes
    if dropped_samples:
        changes["process_samples"] = samples
    if dropped_of_mig:
        changes["mig"] = instances
    return replace(reading, **changes), tuple(dropped)


def _drop_process_memory(processes: tuple[Process, ...] | None) -> tuple[tuple[Process, ...], list[str]]:
    """Drops the memory of a process, not the process."""
    sane = tuple(
        process
        if process.memory_used_bytes is None or _MEMORY_LOW <= process.memory_used_bytes <= _MEMORY_HIGH
        else replace(process, memory_used_bytes=None)
        for process in processes or ()
    )
    changed = sum(a is not b for a, b in zip(sane, processes or (), strict=True))
    return sane, ["processes.memory_used_bytes"] * changed


def _drop_samples(samples: tuple[ProcessSample, ...] | None) -> tuple[tuple[ProcessSample, ...], list[str]]:
    """Drops whole samples: where one number is garbage, the others are too."""
    sane = tuple(
        sample
        for sample in samples or ()
        if _RATIO_LOW <= sample.sm_ratio <= _RATIO_HIGH
        and (sample.memory_ratio is None or _RATIO_LOW <= sample.memory_ratio <= _RATIO_HIGH)
        and (sample.encoder_ratio is None or _RATIO_LOW <= sample.encoder_ratio <= _RATIO_HIGH)
        and (sample.decoder_ratio is None or _RATIO_LOW <= sample.decoder_ratio <= _RATIO_HIGH)
    )
    return sane, ["process_samples"] * (len(samples or ()) - len(sane))


def _drop_of_mig(instances: tuple[MigReading, ...]) -> tuple[tuple[MigReading, ...], list[str]]:
    sane: list[MigReading] = []
    dropped: list[str] = []
    for instance in instances:
        changes, names = _OF_MIG.check(instance)
        processes, dropped_memory = _drop_process_memory(instance.processes)
        samples, dropped_samples = _drop_samples(instance.process_samples)
        if dropped_memory:
            changes["processes"] = processes
        if dropped_samples:
            changes["process_samples"] = samples
        dropped += [f"mig.{name}" for name in names + dropped_memory + dropped_samples]
        sane.append(replace(instance, **changes) if changes else instance)
    return tuple(sane), dropped
