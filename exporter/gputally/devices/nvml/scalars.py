"""Fields that one function returns as one number, as tables; memory, clocks and modes."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from gputally.devices import Values
from gputally.devices.nvml.library import Query, some
from gputally.model import Labelled

_MHZ = 1_000_000
_CLOCKS = ("graphics", "sm", "memory", "video")  # nvmlClockType_t, from 0


class Scalar(NamedTuple):
    """A field that one function returns as one number; of several functions the first that is supported."""

    field: str
    functions: tuple[str, ...]
    arguments: tuple[int, ...] = ()
    per: int = 1


FIXED = (
    Scalar("power_default_limit_watts", ("nvmlDeviceGetPowerManagementDefaultLimit",), per=1000),
    Scalar("temperature_shutdown_celsius", ("nvmlDeviceGetTemperatureThreshold",), (0,)),
    Scalar("temperature_slowdown_celsius", ("nvmlDeviceGetTemperatureThreshold",), (1,)),
    Scalar("memory_temperature_limit_celsius", ("nvmlDeviceGetTemperatureThreshold",), (2,)),
    Scalar("pcie_generation_max", ("nvmlDeviceGetMaxPcieLinkGeneration",)),
    Scalar("pcie_width_max", ("nvmlDeviceGetMaxPcieLinkWidth",)),
)
LIVE = (
    Scalar("power_limit_watts", ("nvmlDeviceGetPowerManagementLimit",), per=1000),
    Scalar("power_enforced_limit_watts", ("nvmlDeviceGetEnforcedPowerLimit",), per=1000),
    Scalar("temperature_celsius", ("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV"), (0,)),
    Scalar("temperature_margin_celsius", ("nvmlDeviceGetMarginTemperature",)),
    Scalar("performance_state", ("nvmlDeviceGetPerformanceState",)),
    Scalar("pcie_generation", ("nvmlDeviceGetCurrPcieLinkGeneration",)),
    Scalar("pcie_width", ("nvmlDeviceGetCurrPcieLinkWidth",)),
)
# For GPUs and drivers without these field values.
INSTEAD_OF_FIELDS = (
    Scalar("power_watts", ("nvmlDeviceGetPowerUsage",), per=1000),
    Scalar("energy_millijoules", ("nvmlDeviceGetTotalEnergyConsumption",)),
    Scalar("pcie_replays", ("nvmlDeviceGetPcieReplayCounter",)),
)
# Members of nvmlMemory_v2_t and nvmlBAR1Memory_t.
MEMORY = {
    "memory_total_bytes": "total",
    "memory_used_bytes": "used",
    "memory_free_bytes": "free",
    "memory_reserved_bytes": "reserved",
}
BAR1 = {"bar1_total_bytes": "bar1Total", "bar1_used_bytes": "bar1Used", "bar1_free_bytes": "bar1Free"}
# Functions that return a percentage and the length of the sampling period.
ENGINES = {
    "encoder_utilization_ratio": "nvmlDeviceGetEncoderUtilization",
    "decoder_utilization_ratio": "nvmlDeviceGetDecoderUtilization",
    "jpeg_utilization_ratio": "nvmlDeviceGetJpgUtilization",
    "ofa_utilization_ratio": "nvmlDeviceGetOfaUtilization",
}


def read_scalars(query: Query, scalars: Iterable[Scalar], values: Values) -> None:
    for field, functions, arguments, per in scalars:
        number = query.first(field, functions, *arguments)
        if number is not None:
            values[field] = number if per == 1 else number / per


def read_clocks(query: Query, field: str, function: str) -> Labelled | None:
    clocks = {(domain,): query.number(field, function, type) for type, domain in enumerate(_CLOCKS)}
    return some({key: None if mhz is None else mhz * _MHZ for key, mhz in clocks.items()})


def as_flag(number: int | None) -> bool | None:
    return None if number is None else number != 0


def read_mode(query: Query, field: str, function: str) -> bool | None:
    """For functions that return the current and the pending mode."""
    answer = query.call(field, function)
    return None if answer is None else as_flag(answer[0])


def read_memory(query: Query) -> Values:
    """Total, used, free and reserved bytes; empty when the device does not support it."""
    memory = query.call("memory_used_bytes", "nvmlDeviceGetMemoryInfo", query.library.nvml.nvmlMemory_v2)
    if memory is None:
        # Drivers before 510 count the reserved memory as used.
        memory = query.call("memory_used_bytes", "nvmlDeviceGetMemoryInfo")
    return _members(memory, MEMORY)


def read_bar1(query: Query) -> Values:
    return _members(query.call("bar1_used_bytes", "nvmlDeviceGetBAR1MemoryInfo"), BAR1)


def _members(struct: Any, members: Mapping[str, str]) -> Values:
    return {field: getattr(struct, member) for field, member in members.items() if hasattr(struct, member)}
