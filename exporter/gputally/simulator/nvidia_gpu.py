"""A simulated NVIDIA GPU, as NVML reports it."""

from gputally.model import (
    COMPUTE_MODES,
    THROTTLE_REASONS,
    Activity,
    Labelled,
    MigInstance,
    MigReading,
    ProcessSample,
    Reading,
    state_set,
)
from gputally.simulator import driver_values as driver
from gputally.simulator.driver_samples import samples_between
from gputally.simulator.gpu import INSTANCE_OWN_MIB, Pids, ReadingTime, SimulatedGpu, State, uses_mps
from gputally.simulator.gpu_models import MigProfile, NvidiaModel
from gputally.simulator.scenario import Scenario
from gputally.simulator.workload_processes import MIB, activity


class NvidiaGpu(SimulatedGpu):
    """One NVIDIA GPU of a scenario."""

    _card: NvidiaModel

    def __init__(
        self, scenario: Scenario, index: int, card: NvidiaModel, pids: Pids, *, pcie_throughput: bool
    ) -> None:
        super().__init__(scenario, index, card, pids, pcie_throughput=pcie_throughput)
        self._links = driver.Nvlinks(card, self._faults) if card.links else None
        self._clock_max = driver.clock_domains(card.clocks_max)
        self._clock_application = driver.application_clocks(card)
        # As NVIDIA's device plugin does on GPUs that it shares with MPS.
        mode = "exclusive_process" if uses_mps(scenario, index) else "default"
        self._compute_mode = state_set(COMPUTE_MODES, mode)

    def _tell(self, state: State) -> Reading:
        card, faults, links, whole = self._card, self._faults, self._links, not self._instances
        moment, busy = state.moment, state.busy
        second, core = moment.second, round(state.celsius)
        bar1_mib = min(card.bar1_mib, 1 + 2 * len(state.processes))
        parts = (
            activity(self._residents, self.physics, moment.seen, of_gpu=True)
            if card.activity_counters
            else Activity()
        )
        xids, xid_times = self._xids(moment)
        ecc, ecc_places = (
            driver.ecc_errors(faults, self._errors_before, second) if card.ecc == "on" else (None, None)
        )
        # The driver does not report remapped rows while MIG instances exist.
        remaps = card.remap_banks > 0 and whole
        media = 0.0 if card.jpeg_and_optical_flow and whole else None
        generation, width = self._pcie_best(second)
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
            memory_used_bytes=state.used_mib * MIB,
            memory_free_bytes=(card.memory_mib - card.reserved_mib - state.used_mib) * MIB,
            memory_reserved_bytes=card.reserved_mib * MIB,
            bar1_total_bytes=card.bar1_mib * MIB,
            bar1_used_bytes=bar1_mib * MIB,
            bar1_free_bytes=(card.bar1_mib - bar1_mib) * MIB,
            power_watts=state.power_mw / 1000,
            power_limit_watts=state.limit_mw / 1000,
            power_enforced_limit_watts=state.limit_mw / 1000,
            power_default_limit_watts=float(card.default_watts),
            power_min_limit_watts=float(card.min_watts),
            power_max_limit_watts=float(card.max_watts),
            energy_millijoules=self._energy_mj(state),
            temperature_celsius=float(core),
            memory_temperature_celsius=float(round(state.celsius + 2 + 6 * state.intensity / 1000))
            if card.memory_thermometer
            else None,
            memory_temperature_limit_celsius=_number(card.memory_limit_celsius),
            temperature_slowdown_celsius=_number(card.slowdown_celsius),
            temperature_shutdown_celsius=_number(card.shutdown_celsius),
            temperature_margin_celsius=None
            if card.margin_from_celsius is None
            else float(card.margin_from_celsius - core),
            temperature_slowdown_offset_celsius=None if card.margin_from_celsius is None else -2.0,
            clock_hertz=driver.clocks_now(card, state.working, state.clock_factor),
            clock_max_hertz=self._clock_max,
            clock_application_hertz=self._clock_application,
            fan_speed_ratio=driver.fan_speeds(card, core),
            performance_state=card.performance_state_busy if state.working else card.performance_state_idle,
            throttle_active={(reason,): float(reason in state.reasons) for reason in THROTTLE_REASONS},
            throttle_seconds=self._throttle_seconds(state),
            ecc_errors=ecc,
            ecc_location_errors=ecc_places,
            retired_pages=driver.retired_pages(faults, second) if card.retires_pages else None,
            retired_pages_pending=faults.remap_pending(second) if card.retires_pages else None,
            remapped_rows=driver.remapped_rows(faults, second) if remaps else None,
            remapped_rows_pending=faults.remap_pending(second) if remaps else None,
            remapped_rows_failure=faults.remap_failed(second) if remaps else None,
            remap_banks=driver.remap_banks(card, faults, second) if remaps else None,
            pcie_generation=min(driver.pcie_generation(card, state.working), generation),
            pcie_generation_max=card.pcie_generation,
            pcie_width=width,
            pcie_width_max=card.pcie_width,
            pcie_replays=self._replays(second),
            pcie_throughput_bytes_per_second=self._pcie_throughput(state, always=card.activity_counters),
            nvlink_up=links.up(second) if links else None,
            nvlink_errors=links.errors(second) if links else None,
            nvlink_bytes=links.moved(state.totals.link_kib) if links else None,
            xid_errors=xids,
            xid_last_timestamp_seconds=xid_times,
            recovery_action=faults.recovery(second) if card.recovery_action else None,
            persistence_mode=card.data_center,
            accounting_mode=False,
            ecc_mode=None if card.ecc == "none" else card.ecc == "on",
            mig_mode=not whole if card.mig_profiles else None,
            compute_mode=self._compute_mode,
            processes=state.processes,
            process_samples=self._samples(moment) if whole else None,
            **driver.fabric(card, faults.fabric(second)),
            mig=tuple(self._mig_reading(instance, profile, state) for instance, profile in self._instances),
        )

    def _tell_lost(self, moment: ReadingTime) -> Reading:
        """A lost GPU keeps its XID errors."""
        xids, times = self._xids(moment)
        return Reading(
            gpu=self._gpu, up=False, xid_errors=xids or None, xid_last_timestamp_seconds=times or None
        )

    def _xids(self, moment: ReadingTime) -> tuple[Labelled, Labelled]:
        counts, last = self._faults.xids(moment.second)
        return counts, {code: moment.epoch_seconds + when for code, when in last.items()}

    def _throttle_seconds(self, state: State) -> Labelled:
        moment, seconds = state.moment, dict[tuple[str, ...], float]()
        for reason in self._card.throttle_counters:
            milliseconds = self._faults.throttle_milliseconds(reason, moment.second, moment.millisecond)
            if reason == "sw_power_cap":
                milliseconds += state.totals.capped_seconds * 1000 + (
                    moment.millisecond if state.capped else 0
                )
            seconds[reason,] = milliseconds / 1000
        return seconds

    def _samples(self, moment: ReadingTime) -> tuple[ProcessSample, ...]:
        first = 0 if moment.since is None else moment.since
        epoch_us = round(moment.epoch_seconds * 1_000_000)
        return samples_between(self.places, self.physics, first, moment.second, epoch_us)

    def _mig_reading(self, instance: MigInstance, profile: MigProfile, state: State) -> MigReading:
        own = tuple(
            process for process in state.processes if process.gpu_instance_id == instance.gpu_instance_id
        )
        used_mib = INSTANCE_OWN_MIB + sum(process.memory_used_bytes or 0 for process in own) // MIB
        residents = [
            place.resident for place in self.places if place.gpu_instance_id == instance.gpu_instance_id
        ]
        parts = (
            activity(residents, self.physics, state.moment.seen, of_gpu=False)
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
