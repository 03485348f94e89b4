"""Values of nvmlDeviceGetFieldValues: many field ids in one call.

The array is built once per device, holds only supported ids, and is read as bytes: pynvml's wrapper would
create a Python object per value.
"""

import ctypes
import math
import struct
from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

from gputally.devices import Values
from gputally.devices.nvml.library import SUCCESS, ErrorMeaning, Query
from gputally.model import Labels

# nvmlFieldValue_t: id, scope, timestamp, latency, type of the value, return code, value
ENTRY = struct.Struct("=IIqqiiQ")
_ANSWER = struct.Struct("=24xiiQ")  # the part that the driver fills in, without its timestamp
ALL_LINKS = 2**32 - 1
_FUNCTION = "nvmlDeviceGetFieldValues"
_DOUBLE, _UNSIGNED_INT, _SIGNED_LONG_LONG, _SIGNED_INT, _UNSIGNED_SHORT = 0, 1, 4, 5, 6


class Slot(NamedTuple):
    """One value of the batch and its field.

    Of several slots with the same field and labels the first supported one is used; with it, the other links
    of its id are summed up, unless it is the driver's own sum over all links.
    """

    field: str
    id: int
    labels: Labels | None = None
    scope: int = 0
    times: int = 1
    per: int = 1


def _ecc() -> list[Slot]:
    slots = []
    for lifetime, total, located in (("volatile", 3, 7), ("aggregate", 5, 18)):
        slots.append(Slot("ecc_errors", total, ("corrected", lifetime)))
        slots.append(Slot("ecc_errors", total + 1, ("uncorrected", lifetime)))
        for place, location in enumerate(
            ("l1_cache", "l2_cache", "device_memory", "register_file", "texture_memory")
        ):
            for offset, kind in enumerate(("corrected", "uncorrected")):
                labels = (kind, lifetime, location)
                slots.append(Slot("ecc_location_errors", located + 2 * place + offset, labels))
        slots.append(Slot("ecc_location_errors", located + 10, ("uncorrected", lifetime, "cbu")))
    return slots


_THROTTLE_NANOSECONDS = {
    "sw_power_cap": 74,
    "thermal": 75,
    "sync_boost": 76,
    "board_limit": 77,
    "low_utilization": 78,
    "reliability": 79,
    "sw_thermal_slowdown": 269,
    "hw_thermal_slowdown": 270,
    "hw_power_brake_slowdown": 271,
}

DEVICE_SLOTS = (
    Slot("ecc_mode", 1),
    *_ecc(),
    Slot("retired_pages", 29, ("single_bit",)),
    Slot("retired_pages", 30, ("double_bit",)),
    Slot("retired_pages_pending", 31),
    *(
        Slot("throttle_seconds", id, (reason,), per=1_000_000_000)
        for reason, id in _THROTTLE_NANOSECONDS.items()
    ),
    Slot("memory_temperature_celsius", 82),
    # Of the GPU alone (scope 0). The older counter of a Grace superchip is the whole module's.
    Slot("power_watts", 185, per=1000),
    Slot("energy_millijoules", 191),
    Slot("energy_millijoules", 83),
    Slot("pcie_replays", 94),
    Slot("temperature_slowdown_offset_celsius", 194),
    Slot("remapped_rows", 142, ("correctable",)),
    Slot("remapped_rows", 143, ("uncorrectable",)),
    Slot("remapped_rows_pending", 144),
    Slot("remapped_rows_failure", 145),
    Slot("recovery_action", 230),
)

_NOT_REPEATED = (ErrorMeaning.UNSUPPORTED, ErrorMeaning.DENIED)
FieldAnswer = tuple[int, int, int]  # type of the value, return code, value


class _Group:
    """The slots of one field of the model, side by side in the batch."""

    def __init__(self, slots: Sequence[Slot], start: int) -> None:
        self.slots = slots
        self.part = slice(start, start + len(slots))
        self.answers: list[FieldAnswer] = []
        self.value: Any = None

    def remember(self, answers: list[FieldAnswer], value: Any) -> None:
        """Most counters do not change between two reads: then the old value is used again."""
        if all(code == SUCCESS for _, code, _ in answers):
            self.answers, self.value = answers, value


class FieldBatch:
    """The field values of one device, read in one call."""

    def __init__(self, query: Query, slots: Sequence[Slot]) -> None:
        self._query = query
        needed = (slot for slot in slots if slot.field not in query.skipped)
        self._candidates = sorted(needed, key=lambda slot: slot.field)
        self.forget()

    def forget(self) -> None:
        """Tries all ids again at the next read."""
        self._settled = False
        self._use(self._candidates)

    def read(self) -> Values:
        """Field -> value, or -> {labels: value}; without unsupported fields. Callers must not change it."""
        function = self._query.library.function(_FUNCTION)
        if function is None or not self._groups:
            return {}
        ctypes.memmove(self._buffer, self._template, len(self._template))
        code = function(self._query.handle, len(self._template) // ENTRY.size, self._buffer)
        if code != SUCCESS:
            self._query.judge(code, "fields", (_FUNCTION,))
            return {}
        answers: list[FieldAnswer] = list(_ANSWER.iter_unpack(self._buffer))
        values: Values = {}
        keep: list[Slot] = []
        for group in self._groups:
            part = answers[group.part]
            if part == group.answers:
                values[group.slots[0].field] = group.value
                keep += group.slots
            else:
                keep += self._evaluate(group, part, values)
        if not self._settled:
            self._use(keep)
            self._settled = True
        elif len(keep) * ENTRY.size != len(self._template):
            self._use(keep)
        return values

    def _evaluate(self, group: _Group, answers: list[FieldAnswer], values: Values) -> list[Slot]:
        """Adds the group's value to the values. Returns the slots to query again."""
        sources: dict[Labels | None, tuple[int, bool]] = {}
        keep = []
        value: Any = None
        for slot, (kind, code, raw) in zip(group.slots, answers, strict=True):
            if code != SUCCESS and self._query.library.judge(code, slot.field) in _NOT_REPEATED:
                continue
            source = (slot.id, slot.scope == ALL_LINKS)
            if not self._settled and sources.setdefault(slot.labels, source) != source:
                continue
            keep.append(slot)
            number = decode(kind, raw) if code == SUCCESS else None
            if number is None:
                continue
            number = number * slot.times if slot.per == 1 else number / slot.per
            if slot.labels is None:
                value = number
            else:
                value = {} if value is None else value
                value[slot.labels] = value.get(slot.labels, 0) + number
        if value is not None:
            values[group.slots[0].field] = value
            if self._settled:
                group.remember(answers, value)
        return keep

    def _use(self, slots: Sequence[Slot]) -> None:
        self._groups: list[_Group] = []
        start = 0
        for _, members in groupby(slots, key=lambda slot: slot.field):
            self._groups.append(_Group(list(members), start))
            start += len(self._groups[-1].slots)
        self._template = b"".join(ENTRY.pack(slot.id, slot.scope, 0, 0, 0, 0, 0) for slot in slots)
        self._buffer = ctypes.create_string_buffer(self._template, len(self._template))


def decode(kind: int, raw: int) -> int | float | None:
    """The number in the 64 bits of an nvmlValue_t, by its type; None for NVML's "not available"."""
    if kind == _DOUBLE:
        (real,) = struct.unpack("<d", raw.to_bytes(8, "little"))
        return float(real) if math.isfinite(real) else None
    if kind == _SIGNED_INT:
        return (raw & 0x7FFFFFFF) - (raw & 0x80000000)
    if kind == _SIGNED_LONG_LONG:
        return (raw & (2**63 - 1)) - (raw & 2**63)
    if kind == _UNSIGNED_SHORT:
        return raw & 0xFFFF
    if kind == _UNSIGNED_INT:
        raw &= 0xFFFFFFFF
        return None if raw == 0xFFFFFFFF else raw
    return None if raw == 2**64 - 1 else raw
