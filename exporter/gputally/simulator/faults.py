"""The effect of the scheduled faults on one GPU at one second. Counters are computed, not accumulated."""

from collections.abc import Iterable

from gputally.model import RECOVERY_ACTIONS, Labelled, Labels
from gputally.simulator.scenario import GpuFault, GpuFaultKind
from gputally.simulator.schedule import Span

THERMAL_REASONS = frozenset({"sw_thermal_slowdown", "hw_thermal_slowdown"})
_HARDWARE_REASONS = frozenset({"hw_thermal_slowdown", "hw_power_brake_slowdown"})


class GpuFaults:
    """The faults that name one GPU."""

    def __init__(self, gpu: int, faults: Iterable[GpuFault]) -> None:
        mine = [fault for fault in faults if gpu in fault.gpus]
        self._by_kind = {kind: [fault for fault in mine if fault.kind is kind] for kind in GpuFaultKind}
        self.throttles: list[tuple[str, Span]] = [
            (fault.reason, fault.span) for fault in self._by_kind[GpuFaultKind.THROTTLE]
        ]
        self.hot: list[tuple[int, Span]] = [
            (fault.margin_celsius, fault.span) for fault in self._by_kind[GpuFaultKind.HOT]
        ]

    def _active(self, kind: GpuFaultKind, second: int) -> list[GpuFault]:
        return [fault for fault in self._by_kind[kind] if fault.span.began(second) is not None]

    def lost(self, second: int) -> bool:
        return bool(self._active(GpuFaultKind.LOST, second))

    def throttle_reasons(self, second: int) -> set[str]:
        """Reasons in force; a hardware reason is always also the general `hw_slowdown`."""
        reasons = {fault.reason for fault in self._active(GpuFaultKind.THROTTLE, second)}
        return reasons | {"hw_slowdown"} if reasons & _HARDWARE_REASONS else reasons

    def throttle_milliseconds(self, reason: str, second: int, millisecond: int) -> int:
        """How long faults throttled the clocks for this reason; overlapping faults add up."""
        return sum(
            span.overlap(second) * 1000 + (millisecond if span.began(second) is not None else 0)
            for other, span in self.throttles
            if other == reason
        )

    def xids(self, second: int) -> tuple[dict[Labels, float], dict[Labels, float]]:
        """By code: the count so far, and the second of the last."""
        counts: dict[Labels, float] = {}
        last: dict[Labels, float] = {}
        for fault in self._by_kind[GpuFaultKind.XID]:
            when = fault.moment.last(second)
            if when is not None:
                code = (str(fault.code),)
                counts[code] = counts.get(code, 0.0) + fault.moment.count(second)
                last[code] = max(last.get(code, 0.0), float(when))
        return counts, last

    def ecc(self, second: int) -> dict[tuple[str, str], int]:
        """(type, location) -> errors so far."""
        errors: dict[tuple[str, str], int] = {}
        for fault in self._by_kind[GpuFaultKind.ECC]:
            times = fault.moment.count(second)
            for kind, each in (("corrected", fault.corrected), ("uncorrected", fault.uncorrected)):
                key = (kind, fault.location)
                errors[key] = errors.get(key, 0) + each * times
        return errors

    def remap_pending(self, second: int) -> bool:
        return bool(self._active(GpuFaultKind.ROW_REMAP_PENDING, second))

    def remapped(self, second: int) -> int:
        """Rows remapped (or pages retired): one for each pending period that has ended."""
        done = 0
        for fault in self._by_kind[GpuFaultKind.ROW_REMAP_PENDING]:
            begun = 0 if second < fault.span.start else fault.span.run(second) + 1
            done += begun - (fault.span.began(second) is not None)
        return done

    def remap_failed(self, second: int) -> bool:
        return bool(self._active(GpuFaultKind.ROW_REMAP_FAILURE, second))

    def ras(self, second: int) -> dict[Labels, int]:
        """(block, type) -> errors so far, without zeros."""
        errors: dict[Labels, int] = {}
        for fault in self._by_kind[GpuFaultKind.RAS]:
            key = (fault.block, fault.type)
            errors[key] = errors.get(key, 0) + fault.count * fault.moment.count(second)
        return errors

    def links_down(self, second: int) -> set[int]:
        """The NVLink or XGMI links that are down: a GPU has one kind of them."""
        active = self._active(GpuFaultKind.NVLINK_DOWN, second) + self._active(GpuFaultKind.XGMI_DOWN, second)
        return {link for fault in active for link in fault.links}

    def link_failures(self, second: int) -> dict[int, int]:
        """Link -> how often it has gone down so far, without zeros."""
        failures: dict[int, int] = {}
        for fault in self._by_kind[GpuFaultKind.NVLINK_DOWN]:
            if second >= fault.span.start:
                for link in fault.links:
                    failures[link] = failures.get(link, 0) + fault.span.run(second) + 1
        return failures

    def link_errors(self, second: int) -> dict[Labels, int]:
        """(link, type) -> NVLink errors so far, without zeros."""
        errors: dict[Labels, int] = {}
        for fault in self._by_kind[GpuFaultKind.NVLINK_ERRORS]:
            for link in fault.links:
                key = (str(link), fault.type)
                errors[key] = errors.get(key, 0) + _counted(fault, second)
        return errors

    def pcie_replays(self, second: int) -> int:
        return sum(_counted(fault, second) for fault in self._by_kind[GpuFaultKind.PCIE_REPLAYS])

    def pcie_limits(self, second: int) -> tuple[list[int], list[int]]:
        """The highest generations and widths that the link can reach."""
        active = self._active(GpuFaultKind.PCIE_DEGRADED, second)
        return (
            [fault.generation for fault in active if fault.generation is not None],
            [fault.width for fault in active if fault.width is not None],
        )

    def energy_stuck_since(self, second: int) -> int | None:
        """When the energy counter stopped; None when it counts."""
        begins = [fault.span.began(second) for fault in self._by_kind[GpuFaultKind.ENERGY_STUCK]]
        return min((begin for begin in begins if begin is not None), default=None)

    def recovery(self, second: int) -> Labelled:
        """The recovery action that the driver requests; the most severe of several."""
        asked = [RECOVERY_ACTIONS.index(f.action) for f in self._active(GpuFaultKind.RECOVERY, second)]
        current = max(asked, default=0)
        return {(action,): float(index == current) for index, action in enumerate(RECOVERY_ACTIONS)}

    def fabric(self, second: int) -> set[str]:
        """What is wrong with the registration in the NVLink fabric, or with the fabric."""
        return {fault.problem for fault in self._active(GpuFaultKind.FABRIC, second)}


def _counted(fault: GpuFault, second: int) -> int:
    """Errors of a fault with a rate so far."""
    return int(fault.span.overlap(second) * fault.rate)
