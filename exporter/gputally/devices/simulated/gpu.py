"""One simulated GPU: everything a reader of the real one would find at a moment."""

from dataclasses import dataclass
from random import Random

from gputally.devices.simulated import health, signals
from gputally.devices.simulated.activity import activity, utilization
from gputally.devices.simulated.faults import GpuFaults
from gputally.devices.simulated.identity import gpu_identity, mig_instances
from gputally.devices.simulated.models import MigProfile
from gputally.devices.simulated.physics import SLICES, GpuPhysics, Resident, Totals
from gputally.devices.simulated.residents import (
    DRIVER_BUFFER_SECONDS,
    MIB,
    Place,
    processes_at,
    samples_between,
)
from gputally.devices.simulated.scenario import Scenario
from gputally.devices.simulated.workloads import MINUTE
from gputally.model import (
    COMPUTE_MODES,
    THROTTLE_REASONS,
    Activity,
    Labelled,
    MigInstance,
    MigReading,
    Process,
    ProcessSample,
    Reading,
    state_set,
)

DRIVER_OWN_MIB = 1
"""What the driver itself has allocated on an idle GPU, beside what it reserves."""
INSTANCE_OWN_MIB = 12


@dataclass(frozen=True, slots=True)
class Moment:
    """The time that a reading is of."""

    second: int
    millisecond: int
    since: int | None
    """The first second whose end the reading before had not seen; None when there was none before."""
    epoch_seconds: float

    @property
    def seen(self) -> range:
        """The seconds that a mean since the last reading is over."""
        first = self.second if self.since is None else self.since
        return range(max(min(first, self.second), self.second - DRIVER_BUFFER_SECONDS), self.second + 1)


@dataclass(frozen=True, slots=True)
class Pids:
    """How pids are dealt: the first of each workload, and how many there are in all."""

    first: tuple[int, ...]
    total: int


class SimulatedGpu:
    """One card of a scenario."""

    def __init__(self, scenario: Scenario, index: int, pids: Pids, *, pcie_throughput: bool) -> None:
        card = self._card = scenario.card
        self._gpu = gpu_identity(scenario, index)
        self._instances = mig_instances(scenario, self._gpu)
        self._faults = GpuFaults(index, scenario.faults)
        self._pcie_throughput = pcie_throughput
        self.places = [
            self._place(scenario, number, pids)
            for number, workload in enumerate(scenario.workloads)
            if index in workload.gpus
        ]
        self._residents = [place.resident for place in self.places]
        self.physics = GpuPhysics(scenario, index, self._residents, self._faults)
        rng = Random(f"{scenario.seed}:{index}:past")  # noqa: S311
        # The card has been up, and idle, for a while before the simulation begins.
        self._energy_before_mj = rng.randrange(3600, 240 * 3600) * card.idle_watts * 1000
        self._ecc_before = rng.randrange(6)
        self._replays = rng.randrange(3)
        self._links = health.Nvlinks(card, self._faults) if card.nvlinks else None
        self._clock_max = signals.clock_domains(card.clocks_max)
        self._clock_application = signals.application_clocks(card)
        self._compute_mode = state_set(COMPUTE_MODES, "default")

    def _place(self, scenario: Scenario, number: int, pids: Pids) -> Place:
        workload = scenario.workloads[number]
        index = self._gpu.index
        available = self._card.memory_mib - self._card.reserved_mib - DRIVER_OWN_MIB
        slices, gpu_instance, compute_instance = SLICES, None, None
        uuid = self._gpu.uuid
        if self._instances:
            instance, profile = self._instances[workload.instance]
            available, slices = profile.memory_mib - INSTANCE_OWN_MIB, profile.slices
            gpu_instance, compute_instance = instance.gpu_instance_id, instance.compute_instance_id
            uuid = instance.uuid
        resident = Resident(number, workload, slices, f"{scenario.seed}:{number}:{index}")
        first = pids.first[number] + workload.gpus.index(index) * workload.count
        return Place(resident, first, pids.total, available, uuid, gpu_instance, compute_instance)

    def reading(self, moment: Moment) -> Reading:
        """What the card would tell at that moment."""
        second = moment.second
        if self._faults.lost(second):
            return Reading(gpu=self._gpu, up=False)
        card, faults, links, whole = self._card, self._faults, self._links, not self._instances
        minute, slot = self.physics.minute(second // MINUTE), second % MINUTE
        power_mw, demand_mw, limit_mw = minute.power_mw[slot], minute.demand_mw[slot], self.physics.limit_mw
        busy = utilization(self._residents, self.physics, second)
        working = busy.gpu > 0
        reasons = faults.throttle_reasons(second)
        factor = signals.clock_factor(bool(reasons), demand_mw, limit_mw)
        if demand_mw > limit_mw:
            reasons.add("sw_power_cap")
        if not working:
            reasons.add("gpu_idle")
        totals = self.physics.totals(second)
        celsius = self.physics.temperature(second)
        core = round(celsius)
        processes = processes_at(self.places, second)
        used_mib = self._used_mib(processes)
        bar1_mib = min(card.bar1_mib, 1 + 2 * len(processes))
        parts = (
            activity(self._residents, self.physics, moment.seen, of_gpu=True)
            if card.activity_counters
            else Activity()
        )
        xids, xid_seconds = faults.xids(second)
        ecc, ecc_places = (
            health.ecc_errors(faults, self._ecc_before, second) if card.ecc == "on" else (None, None)
        )
        # The driver does not tell of remapped rows while MIG instances are there.
        remaps = card.remap_banks > 0 and whole
        media = 0.0 if card.jpeg_and_optical_flow and whole else None
        return Reading(
            gpu=self._gpu,
            graphics_active_ratio=parts.graphics_active_ratio,
            sm_active_ratio=parts.sm_active_ratio,
            sm_occupancy_ratio=parts.sm_occupancy_ratio,
            tensor_active_ratio=parts.tensor_active_ratio,
            dram_active_ratio=parts.dram_active_ratio,
            fp64_active_ratio=parts.fp64_active_ratio,
            fp32_active_ratio=parts.fp32_active_ratio,
            fp16_active_ratio=parts.fp16_active_ratio,
            gpu_utilization_ratio=busy.gpu / 100 if whole else None,
            memory_utilization_ratio=busy.memory / 100 if whole else None,
            encoder_utilization_ratio=busy.encoder / 100 if whole else None,
            decoder_utilization_ratio=busy.decoder / 100 if whole else None,
            jpeg_utilization_ratio=media,
            ofa_utilization_ratio=media,
            memory_total_bytes=card.memory_mib * MIB,
            memory_used_bytes=used_mib * MIB,
            memory_free_bytes=(card.memory_mib - card.reserved_mib - used_mib) * MIB,
            memory_reserved_bytes=card.reserved_mib * MIB,
            bar1_total_bytes=card.bar1_mib * MIB,
            bar1_used_bytes=bar1_mib * MIB,
            bar1_free_bytes=(card.bar1_mib - bar1_mib) * MIB,
            power_watts=power_mw / 1000,
            power_limit_watts=limit_mw / 1000,
            power_enforced_limit_watts=limit_mw / 1000,
            power_default_limit_watts=float(card.default_watts),
            power_min_limit_watts=float(card.min_watts),
            power_max_limit_watts=float(card.max_watts),
            energy_millijoules=self._energy_before_mj
            + totals.energy_mj
            + power_mw * moment.millisecond // 1000
            if card.energy_counter
            else None,
            temperature_celsius=float(core),
            memory_temperature_celsius=float(round(celsius + 2 + 6 * minute.intensity[slot] / 1000))
            if card.memory_thermometer
            else None,
            temperature_slowdown_celsius=_number(card.slowdown_celsius),
            temperature_shutdown_celsius=_number(card.shutdown_celsius),
            temperature_margin_celsius=None
            if card.margin_from_celsius is None
            else float(card.margin_from_celsius - core),
            clock_hertz=signals.clocks_now(card, working, factor),
            clock_max_hertz=self._clock_max,
            clock_application_hertz=self._clock_application,
            fan_speed_ratio=signals.fan_speeds(card, core),
            performance_state=card.performance_state_busy if working else card.performance_state_idle,
            throttle_active={(reason,): float(reason in reasons) for reason in THROTTLE_REASONS},
            throttle_seconds=self._throttle_seconds(totals, demand_mw > limit_mw, moment),
            ecc_errors=ecc,
            ecc_location_errors=ecc_places,
            retired_pages=health.retired_pages(faults, second) if card.retires_pages else None,
            retired_pages_pending=faults.remap_pending(second) if card.retires_pages else None,
            remapped_rows=health.remapped_rows(faults, second) if remaps else None,
            remapped_rows_pending=faults.remap_pending(second) if remaps else None,
            remapped_rows_failure=False if remaps else None,
            remap_banks=health.remap_banks(card, faults, second) if remaps else None,
            pcie_generation=signals.pcie_generation(card, working),
            pcie_generation_max=card.pcie_generation,
            pcie_width=card.pcie_width,
            pcie_width_max=card.pcie_width,
            pcie_replays=self._replays,
            pcie_throughput_bytes_per_second=signals.pcie_throughput(card, minute.intensity[slot])
            if self._pcie_throughput
            else None,
            nvlink_up=links.up(second) if links else None,
            nvlink_errors=links.errors(second) if links else None,
            nvlink_bytes=links.moved(totals.nvlink_kib) if links else None,
            xid_errors=xids,
            xid_last_timestamp_seconds={
                code: moment.epoch_seconds + when for code, when in xid_seconds.items()
            },
            recovery_action=faults.recovery(second) if card.recovery_action else None,
            persistence_mode=card.data_center,
            accounting_mode=False,
            ecc_mode=None if card.ecc == "none" else card.ecc == "on",
            mig_mode=not whole if card.mig_profiles else None,
            compute_mode=self._compute_mode,
            processes=processes,
            process_samples=self._samples(moment) if whole else None,
            mig=tuple(
                self._mig_reading(instance, profile, processes, moment)
                for instance, profile in self._instances
            ),
        )

    def _used_mib(self, processes: tuple[Process, ...]) -> int:
        own = INSTANCE_OWN_MIB * len(self._instances) or DRIVER_OWN_MIB
        return own + sum(process.memory_used_bytes or 0 for process in processes) // MIB

    def _throttle_seconds(self, totals: Totals, capped: bool, moment: Moment) -> Labelled:
        seconds: dict[tuple[str, ...], float] = {}
        for reason in self._card.throttle_counters:
            milliseconds = self._faults.throttle_milliseconds(reason, moment.second, moment.millisecond)
            if reason == "sw_power_cap":
                milliseconds += totals.capped_seconds * 1000 + (moment.millisecond if capped else 0)
            seconds[reason,] = milliseconds / 1000
        return seconds

    def _samples(self, moment: Moment) -> tuple[ProcessSample, ...]:
        first = 0 if moment.since is None else moment.since
        epoch_us = round(moment.epoch_seconds * 1_000_000)
        return samples_between(self.places, self.physics, first, moment.second, epoch_us)

    def _mig_reading(
        self, instance: MigInstance, profile: MigProfile, processes: tuple[Process, ...], moment: Moment
    ) -> MigReading:
        own = tuple(process for process in processes if process.gpu_instance_id == instance.gpu_instance_id)
        used_mib = INSTANCE_OWN_MIB + sum(process.memory_used_bytes or 0 for process in own) // MIB
        residents = [
            place.resident for place in self.places if place.gpu_instance_id == instance.gpu_instance_id
        ]
        parts = (
            activity(residents, self.physics, moment.seen, of_gpu=False)
            if self._card.activity_counters
            else Activity()
        )
        return MigReading(
            instance=instance,
            multiprocessors=profile.multiprocessors,
            memory_total_bytes=profile.memory_mib * MIB,
            memory_used_bytes=used_mib * MIB,
            memory_free_bytes=(profile.memory_mib - used_mib) * MIB,
            memory_reserved_bytes=0,
            processes=own,
            graphics_active_ratio=parts.graphics_active_ratio,
            sm_active_ratio=parts.sm_active_ratio,
            sm_occupancy_ratio=parts.sm_occupancy_ratio,
            tensor_active_ratio=parts.tensor_active_ratio,
            dram_active_ratio=parts.dram_active_ratio,
            fp64_active_ratio=parts.fp64_active_ratio,
            fp32_active_ratio=parts.fp32_active_ratio,
            fp16_active_ratio=parts.fp16_active_ratio,
        )


def _number(value: int | None) -> float | None:
    return None if value is None else float(value)
