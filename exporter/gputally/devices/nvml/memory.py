"""Memory of a whole GPU or of a MIG device."""

from gputally.devices.nvml.query import Query, Values

_FIELD = "memory_used_bytes"


def read_memory(query: Query) -> Values:
    """Total, used, free and reserved bytes; empty when the device does not tell."""
    memory = query.ask(_FIELD, "nvmlDeviceGetMemoryInfo", query.library.nvml.nvmlMemory_v2)
    if memory is not None:
        return {
            "memory_total_bytes": memory.total,
            "memory_used_bytes": memory.used,
            "memory_free_bytes": memory.free,
            "memory_reserved_bytes": memory.reserved,
        }
    # Drivers before 510 cannot tell what they reserve and count it as used.
    memory = query.ask(_FIELD, "nvmlDeviceGetMemoryInfo")
    if memory is None:
        return {}
    return {
        "memory_total_bytes": memory.total,
        "memory_used_bytes": memory.used,
        "memory_free_bytes": memory.free,
    }


def read_bar1(query: Query) -> Values:
    bar1 = query.ask("bar1_used_bytes", "nvmlDeviceGetBAR1MemoryInfo")
    if bar1 is None:
        return {}
    return {
        "bar1_total_bytes": bar1.bar1Total,
        "bar1_used_bytes": bar1.bar1Used,
        "bar1_free_bytes": bar1.bar1Free,
    }
