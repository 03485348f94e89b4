"""One simulated GPU of any vendor: its workloads, and its state at the time of a reading."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from random import Random
from uuid import UUID

from gputally.devices.amd import gpu_uuid
from gputally.model import Gpu, Labelled, MigInstance, Process, Reading
from gputally.simulator import driver_values as driver
from gputally.simulator.faults import GpuFaults
from gputally.simulator.gpu_models import AmdModel, GpuModel, MigProfile
from gputally.simulator.physics import SLICES, GpuPhysics, PlacedWorkload, Totals
from gputally.simulator.scenario import Scenario
from gputally.simulator.workload_processes import (
    DRIVER_BUFFER_SECONDS,
    FIRST_MPS_SERVER_PID,
    MIB,
    MPS_SERVER_MIB,
    Utilization,
    WorkloadProcesses,
    processes_at,
    utilization,
)
from gputally.simulator.workloads import MINUTE

INSTANCE_OWN_MIB = 12


@dataclass(frozen=True, slots=True)
class ReadingTime:
    """The time of a reading."""

    second: int
    millisecond: int
    since: int | None
    """The first second that the previous reading did not cover; None for the first reading."""
    epoch_seconds: float
    since_millisecond: int = 0

    @property
    def covers_us(self) -> int:
        """Microseconds since the previous reading; 0 for the first."""
        if self.since is None:
            return 0
        return ((self.second - self.since) * 1000 + self.millisecond - self.since_millisecond) * 1000

    @property
    def timestamp_us(self) -> int:
        return round(self.epoch_seconds * 1_000_000) + (self.second * 1000 + self.millisecond) * 1000

    @property
    def seen(self) -> range:
        """The seconds that a mean since the previous reading covers."""
        first = self.second if self.since is None else self.since
        return range(max(min(first, self.second), self.second - DRIVER_BUFFER_SECONDS), self.second + 1)


@dataclass(frozen=True, slots=True)
class Pids:
    """How pids are assigned: the first of each workload, and the number of all."""

    first: tuple[int, ...]
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The state of a GPU at a point in time, independent of its driver."""

    moment: ReadingTime
    power_mw: int
    limit_mw: int
    capped: bool
    """It would draw more than its power limit."""
    intensity: int
    busy: Utilization
    reasons: frozenset[str]
    """Why its clocks are below their maximum."""
    clock_factor: float
    totals: Totals
    celsius: float
    processes: tuple[Process, ...]
    used_mib: int

    @property
    def working(self) -> bool:
        return self.busy.gpu > 0


class SimulatedGpu(ABC):
    """One card of a scenario."""

    def __init__(
        self, scenario: Scenario, index: int, card: GpuModel, pids: Pids, *, pcie_throughput: bool
    ) -> None:
        self._card = card
        self._gpu = gpu_identity(scenario, index)
        self._instances = mig_instances(scenario, self._gpu)
        self._faults = GpuFaults(index, scenario.faults)
        self._asks_throughput = pcie_throughput
        self.places = [
            self._place(scenario, number, pids)
            for number, workload in enumerate(scenario.workloads)
            if index in workload.gpus
        ]
        self._residents = [place.resident for place in self.places]
        self.physics = GpuPhysics(scenario, index, self._residents, self._faults)
        rng = Random(f"{scenario.seed}:{index}:past")  # noqa: S311
        # The GPU was up and idle for some time before the start of the simulation.
        self._energy_before_mj = rng.randrange(3600, 240 * 3600) * card.idle_watts * 1000
        self._errors_before = rng.randrange(6)
        self._replays_before = rng.randrange(3)

    def _place(self, scenario: Scenario, number: int, pids: Pids) -> WorkloadProcesses:
        workload = scenario.workloads[number]
        index = self._gpu.index
        available = self._card.memory_mib - self._card.reserved_mib - self._card.own_mib
        if uses_mps(scenario, index):
            available -= MPS_SERVER_MIB
        slices, gpu_instance, compute_instance = SLICES, None, None
        uuid = self._gpu.uuid
        if self._instances:
            instance, profile = self._instances[workload.instance]
            available, slices = profile.memory_mib - INSTANCE_OWN_MIB, profile.slices
            gpu_instance, compute_instance = instance.gpu_instance_id, instance.compute_instance_id
            uuid = instance.uuid
        resident = PlacedWorkload(number, workload, slices, f"{scenario.seed}:{number}:{index}")
        first = pids.first[number] + workload.gpus.index(index) * workload.count
        return WorkloadProcesses(
            resident,
            first,
            pids.total,
            available,
            self._card.vendor,
            uuid,
            gpu_instance,
            compute_instance,
            FIRST_MPS_SERVER_PID + index,
        )

    def reading(self, moment: ReadingTime) -> Reading:
        """The reading at that time."""
        second = moment.second
        if self._faults.lost(second):
            return self._tell_lost(moment)
        minute, slot = self.physics.minute(second // MINUTE), second % MINUTE
        demand_mw, limit_mw = minute.demand_mw[slot], self.physics.limit_mw
        busy = utilization(self._residents, self.physics, second)
        reasons = self._faults.throttle_reasons(second)
        factor = driver.clock_factor(bool(reasons), demand_mw, limit_mw)
        if demand_mw > limit_mw:
            reasons.add("sw_power_cap")
        if not busy.gpu:
            reasons.add("gpu_idle")
        processes = processes_at(self.places, second)
        return self._tell(
            State(
                moment=moment,
                power_mw=minute.power_mw[slot],
                limit_mw=limit_mw,
                capped=demand_mw > limit_mw,
                intensity=minute.intensity[slot],
                busy=busy,
                reasons=frozenset(reasons),
                clock_factor=factor,
                totals=self.physics.totals(second),
                celsius=self.physics.temperature(second),
                processes=processes,
                used_mib=self._used_mib(processes),
            )
        )

    def _tell_lost(self, moment: ReadingTime) -> Reading:  # noqa: ARG002  # some drivers report more
        return Reading(gpu=self._gpu, up=False)

    @abstractmethod
    def _tell(self, state: State) -> Reading:
        """The state as the GPU's driver reports it."""

    def _used_mib(self, processes: tuple[Process, ...]) -> int:
        own = INSTANCE_OWN_MIB * len(self._instances) or self._card.own_mib
        return own + sum(process.memory_used_bytes or 0 for process in processes) // MIB

    def _energy_mj(self, state: State) -> int | None:
        if not self._card.energy_counter:
            return None
        stuck = self._faults.energy_stuck_since(state.moment.second)
        if stuck is not None:
            return self._energy_before_mj + self.physics.totals(stuck).energy_mj
        since_then = state.totals.energy_mj + state.power_mw * state.moment.millisecond // 1000
        return self._energy_before_mj + since_then

    def _replays(self, second: int) -> int:
        return self._replays_before + self._faults.pcie_replays(second)

    def _pcie_best(self, second: int) -> tuple[int, int]:
        """The generation and the width that the link reaches."""
        generations, widths = self._faults.pcie_limits(second)
        return (
            min((self._card.pcie_generation, *generations)),
            min((self._card.pcie_width, *widths)),
        )

    def _pcie_throughput(self, state: State, *, always: bool = False) -> Labelled | None:
        """`always`: the driver has it without a blocking call."""
        if not (self._asks_throughput or always):
            return None
        return driver.pcie_throughput(*self._pcie_best(state.moment.second), state.intensity)


_FIRST_GPU_INSTANCE = {7: 0, 4: 1, 3: 1, 2: 3, 1: 7}
"""The driver numbers GPU instances by their size in slices."""


def gpu_identity(scenario: Scenario, index: int) -> Gpu:
    card = scenario.card(index)
    rng = Random(f"{scenario.seed}:{index}:identity")  # noqa: S311
    number = rng.getrandbits(128)
    serial = f"1{rng.randrange(10**9):09d}{index:04d}"[-13:]
    # 32 in a PCI domain, with the bus numbers of a large server.
    domain, bus = index // 32, 7 + index % 32 * 7
    driver_version = scenario.driver_version or card.driver_version
    if isinstance(card, AmdModel):
        address = f"{domain:04x}:{bus:02x}:00.0"
        return Gpu(
            uuid=gpu_uuid(number >> 64, address),
            index=index,
            vendor=card.vendor,
            model=card.name,
            pci_bus_id=address,
            serial=f"69{serial[-10:]}" if card.data_center else None,
            vbios_version=card.vbios_version,
            driver_version=driver_version,
            minor_number=index,
            simulated=True,
        )
    return Gpu(
        uuid=f"GPU-{UUID(int=number)}",
        index=index,
        vendor=card.vendor,
        model=card.name,
        pci_bus_id=f"{domain:08X}:{bus:02X}:00.0",
        serial=serial if card.data_center else None,
        vbios_version=card.vbios_version,
        driver_version=driver_version,
        cuda_version=scenario.cuda_version,
        compute_capability=card.compute_capability,
        minor_number=index,
        simulated=True,
    )


def uses_mps(scenario: Scenario, index: int) -> bool:
    return any(workload.kind == "mps" and index in workload.gpus for workload in scenario.workloads)


def mig_instances(scenario: Scenario, gpu: Gpu) -> tuple[tuple[MigInstance, MigProfile], ...]:
    """The MIG devices of this GPU, in the order of the scenario; none when it is not in MIG mode."""
    profiles = {profile.name: profile for profile in scenario.card(gpu.index).mig_profiles}
    taken: set[int] = set()
    instances = []
    for place, name in enumerate(scenario.layout(gpu.index) or ()):
        profile = profiles[name]
        number = _FIRST_GPU_INSTANCE[profile.slices]
        while number in taken:
            number += 1
        taken.add(number)
        rng = Random(f"{scenario.seed}:{gpu.index}:mig:{place}:{name}")  # noqa: S311
        instance = MigInstance(
            uuid=f"MIG-{UUID(int=rng.getrandbits(128))}",
            parent_uuid=gpu.uuid,
            parent_index=gpu.index,
            gpu_instance_id=number,
            compute_instance_id=0,
            profile=name,
        )
        instances.append((instance, profile))
    return tuple(instances)
