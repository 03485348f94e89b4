"""The share of time for which a GPU was busy since the last sample, from the sums of its firmware.

In every cycle the firmware adds the activity of that cycle, in percent, to a sum, and 1 to the number of
cycles: `SocketGfxBusyAcc`, `GfxBusyAcc` (of each compute die) and `AccumulationCounter` in the kernel's
pm/swsmu/inc/pmfw_if/smu_v13_0_12_pmfw.h. So the mean covers all of the time since the last sample, where
`gpu_busy_percent` is the activity at the time of the sample only. The tables have 32 bits of the GPU's sum
and of the cycles, which wrap.

AMD's RDC computes with the sum as if it were of fractions and not of percent (ROCm/rocm-systems 6487). So the
means are used only after one was too high for a sum of fractions: until then the GPU was idle, or they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gputally.devices.amdgpu.gpu_metrics import GpuMetrics

_WRAP = 1 << 32
_PERCENT = 100
_HIGHEST_OF_FRACTIONS = 1.5 / _PERCENT  # 1, and what rounding may add


@dataclass(frozen=True, slots=True)
class MeanActivity:
    """None where it is unknown."""

    card: float | None = None
    partitions: tuple[float | None, ...] = ()


class ActivityMeter:
    """Remembers the table of the last sample."""

    def __init__(self) -> None:
        self._before: GpuMetrics | None = None
        self._in_percent = False

    def advance(self, now: GpuMetrics) -> MeanActivity:
        """The means since the last table; unknown at the first, after a reset, and while the unit is."""
        before, self._before = self._before, now
        if before is None or before.cycles is None or now.cycles is None:
            return MeanActivity()
        cycles = (now.cycles - before.cycles) % _WRAP
        card = mean_ratio(before.gfx_busy_counts, now.gfx_busy_counts, cycles)
        partitions = tuple(
            mean_ratio(earlier.gfx_busy_counts, later.gfx_busy_counts, cycles)
            for earlier, later in zip(before.partitions, now.partitions, strict=False)
        )
        if max(ratio or 0.0 for ratio in (card, *partitions)) > _HIGHEST_OF_FRACTIONS:
            self._in_percent = True
        return MeanActivity(card, partitions) if self._in_percent else MeanActivity()


def mean_ratio(before: Sequence[int], now: Sequence[int], cycles: int) -> float | None:
    """The mean over all dies and cycles.

    None where nothing was ever counted, and where more was counted than is possible, as after a reset.
    """
    if not 0 < cycles < _WRAP // 2 or not any(now) or len(before) != len(now):
        return None
    grown = [(later - earlier) % _WRAP for earlier, later in zip(before, now, strict=True)]
    if max(grown) > (cycles + 1) * _PERCENT:
        return None
    return min(1.0, sum(grown) / len(grown) / cycles / _PERCENT)
