"""What DCGM says of a GPU in one number, where the model has several, or says it otherwise."""

from collections.abc import Callable

from gputally.metrics.compat.devices import Part, Place
from gputally.model import THROTTLE_REASONS, Labels

Number = float | None
OfGpu = Callable[[Place], Number]
OfPod = Callable[[Place, Part], Number]


def last_xid(place: Place) -> int | None:
    """The code of the newest XID error; 0 when there was none, None when nobody listens."""
    reading = place.reading
    if reading.xid_errors is None:
        return None
    moments = reading.xid_last_timestamp_seconds or {}
    newest = max(reading.xid_errors, key=lambda key: (moments.get(key, 0.0), int(key[0])), default=("0",))
    return int(newest[0])


def reasons_mask(place: Place) -> int | None:
    """NVML's bits, which stand in the order of THROTTLE_REASONS."""
    active = place.reading.throttle_active
    if active is None:
        return None
    return sum(1 << bit for bit, reason in enumerate(THROTTLE_REASONS) if active.get((reason,)))


def used_ratio(place: Place) -> float | None:
    """As DCGM counts it: of what the driver leaves."""
    reading = place.reading
    if reading.memory_used_bytes is None or reading.memory_total_bytes is None:
        return None
    usable = reading.memory_total_bytes - (reading.memory_reserved_bytes or 0)
    return reading.memory_used_bytes / usable if usable > 0 else None


def sum_errors(kind: str) -> OfGpu:
    def value(place: Place) -> Number:
        counts = [n for (_, one), n in (place.reading.nvlink_errors or {}).items() if one == kind]
        return sum(counts) if counts else None

    return value


def sum_bytes(place: Place) -> Number:
    moved = place.reading.nvlink_bytes
    return sum(moved.values()) if moved else None


def one_of(field: str, *keys: Labels) -> OfGpu:
    """The value of the first of the keys that is there."""

    def value(place: Place) -> Number:
        values = getattr(place.reading, field) or {}
        for key in keys:
            if key in values:
                found: float = values[key]
                return found
        return None

    return value


def part_of(field: str) -> OfPod:
    return lambda _, part: getattr(part, field)


def nanoseconds(seconds: float) -> float:
    return round(seconds * 1_000_000_000)
