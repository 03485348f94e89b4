"""The engine: the readings of all GPUs of a scenario at a point in time.

The readings depend on the scenario and the time alone, not on earlier calls. Counters are cached for up to
one day; a call far ahead computes that day once.
"""

from collections.abc import Iterator

from gputally.model import Reading
from gputally.simulator.amd_gpu import AmdGpu
from gputally.simulator.gpu import Pids, ReadingTime, SimulatedGpu
from gputally.simulator.gpu_models import AmdModel
from gputally.simulator.nvidia_gpu import NvidiaGpu
from gputally.simulator.scenario import GpuFaultKind, Scenario
from gputally.simulator.workload_processes import WorkloadRun, runs_between


class Engine:
    """Plays one scenario."""

    def __init__(self, scenario: Scenario, *, pcie_throughput: bool = False) -> None:
        self.scenario = scenario
        first, total = [], 0
        for workload in scenario.workloads:
            first.append(total)
            total += workload.count * len(workload.gpus)
        pids = Pids(tuple(first), total)
        self.gpus = tuple(
            _make_gpu(scenario, index, pids, pcie_throughput=pcie_throughput)
            for index in range(scenario.gpus)
        )

    def readings(
        self, elapsed_seconds: float, *, since: float | None = None, epoch_seconds: float = 0.0
    ) -> tuple[Reading, ...]:
        """The readings `elapsed_seconds` after the start of the scenario.

        `since` is the elapsed time of the previous reading: process samples and mean activities cover the
        time from there, or as far as the driver's buffer reaches. `epoch_seconds` is when the scenario
        began, in seconds since 1970: it only shifts time stamps.
        """
        second, millisecond = split_seconds(elapsed_seconds)
        seen, seen_millisecond = (None, 0) if since is None else split_seconds(since)
        moment = ReadingTime(second, millisecond, seen, epoch_seconds, seen_millisecond)
        return tuple(gpu.reading(moment) for gpu in self.gpus)

    def is_down(self, source: str, elapsed_seconds: float) -> bool:
        """Whether the scenario declares this source down then."""
        second, _ = split_seconds(elapsed_seconds)
        return any(
            fault.kind is GpuFaultKind.SOURCE_DOWN
            and fault.source == source
            and fault.span.began(second) is not None
            for fault in self.scenario.faults
        )

    def runs(self, first: int, end: int) -> Iterator[WorkloadRun]:
        """The runs on the GPUs in any of the seconds from `first` up to `end`."""
        for gpu in self.gpus:
            yield from runs_between(gpu.places, first, end)


def _make_gpu(scenario: Scenario, index: int, pids: Pids, *, pcie_throughput: bool) -> SimulatedGpu:
    card = scenario.card(index)
    if isinstance(card, AmdModel):
        return AmdGpu(scenario, index, card, pids, pcie_throughput=pcie_throughput)
    return NvidiaGpu(scenario, index, card, pids, pcie_throughput=pcie_throughput)


def split_seconds(elapsed: float) -> tuple[int, int]:
    """Whole seconds and milliseconds; times before the start count as the start."""
    return divmod(max(0, int(elapsed * 1000)), 1000)
