"""A simulated AMD GPU, as the files of the amdgpu driver report it."""

from collections.abc import Iterable
from dataclasses import replace

from gputally.model import Process, ProcessSample, Reading
from gputally.simulator import driver_values as driver
from gputally.simulator.gpu import Pids, SimulatedGpu, State
from gputally.simulator.gpu_models import AmdModel
from gputally.simulator.scenario import Scenario
from gputally.simulator.workload_processes import MIB, deal, video_percent

GTT_MIB_PER_PROCESS = 2
NAME_LENGTH = 15
"""The kernel truncates names of processes to this length."""


class AmdGpu(SimulatedGpu):
    """One AMD GPU of a scenario."""

    _card: AmdModel

    def __init__(
        self, scenario: Scenario, index: int, card: AmdModel, pids: Pids, *, pcie_throughput: bool
    ) -> None:
        super().__init__(scenario, index, card, pids, pcie_throughput=pcie_throughput)
        self._links = driver.XgmiLinks(card, self._faults) if card.links else None
        self._clock_max = driver.amd_clocks_max(card)

    def _tell(self, state: State) -> Reading:
        card, links, second = self._card, self._links, state.moment.second
        total, used = card.memory_mib * MIB, state.used_mib * MIB
        sensors = driver.sensors(card, round(state.celsius), state.intensity)
        ras, ecc = driver.ras_errors(card, self._faults, second) if card.ras_blocks else (None, None)
        generation, width = self._pcie_best(second)
        return Reading(
            gpu=self._gpu,
            gpu_utilization_ratio=state.busy.gpu / 100,
            memory_utilization_ratio=state.busy.memory / 100,
            memory_total_bytes=total,
            memory_used_bytes=used,
            memory_free_bytes=total - used,
            memory_visible_total_bytes=total,
            memory_visible_used_bytes=used,
            gtt_total_bytes=card.gtt_mib * MIB,
            gtt_used_bytes=(card.gtt_own_mib + GTT_MIB_PER_PROCESS * len(state.processes)) * MIB,
            power_watts=float(round(state.power_mw / 1000)),
            power_limit_watts=state.limit_mw / 1000,
            power_default_limit_watts=float(card.default_watts),
            power_min_limit_watts=float(card.min_watts) or None,
            power_max_limit_watts=float(card.max_watts),
            energy_millijoules=self._energy_mj(state),
            temperature_celsius=sensors[card.sensors[0].name,],
            memory_temperature_celsius=sensors["mem",],
            temperature_slowdown_celsius=float(card.hot_celsius),
            temperature_shutdown_celsius=None
            if card.shutdown_celsius is None
            else float(card.shutdown_celsius),
            sensor_celsius=sensors,
            sensor_critical_celsius={
                (sensor.name,): float(sensor.critical)
                for sensor in card.sensors
                if sensor.critical is not None
            },
            clock_hertz=driver.amd_clocks_now(card, state.working, state.clock_factor),
            clock_max_hertz=self._clock_max,
            fan_speed_ratio=driver.fan_speeds(card, round(state.celsius)),
            throttle_active={(reason,): float(reason in state.reasons) for reason in card.throttle_reasons},
            ras_errors=ras,
            ecc_errors=ecc,
            pcie_generation=generation,
            pcie_generation_max=card.pcie_generation,
            pcie_width=width,
            pcie_width_max=card.pcie_width,
            pcie_replays=self._replays(second),
            pcie_throughput_bytes_per_second=self._pcie_throughput(state),
            xgmi_up=links.up(second) if links else None,
            xgmi_bytes=links.moved(state.totals.link_kib) if links else None,
            processes=tuple(_named_by_kernel(process) for process in state.processes),
            process_samples=self._samples(state),
        )

    def _samples(self, state: State) -> tuple[ProcessSample, ...]:
        """One sample per process, which covers the time since the last reading with the present share."""
        moment = state.moment
        samples = []
        for place in self.places:
            workload = place.resident.workload
            if not place.present(moment.second):
                continue
            (share,) = self.physics.shares(place.resident.number, moment.second, moment.second + 1)
            pids = place.pids(workload.span.run(moment.second))
            for pid, part in zip(pids, deal(share, workload.count), strict=True):
                decoder, encoder = video_percent(part) if workload.video else (0, 0)
                if self._card.one_video_queue:
                    decoder, encoder = 0, min(100, decoder + encoder)
                samples.append(
                    ProcessSample(
                        pid=pid,
                        timestamp_us=moment.timestamp_us,
                        sm_ratio=part / 100,
                        memory_ratio=None,
                        encoder_ratio=encoder / 100,
                        decoder_ratio=decoder / 100,
                        covers_us=moment.covers_us,
                    )
                )
        if not self._card.compute_occupancy:
            samples = _divide_by_memory(samples, state.processes)
        return tuple(sorted(samples, key=lambda sample: sample.pid))


def _divide_by_memory(samples: Iterable[ProcessSample], processes: Iterable[Process]) -> list[ProcessSample]:
    """As the reader does: the busy time of all compute processes, by their memory."""
    held = {process.pid: process.memory_used_bytes or 0 for process in processes if process.kind == "compute"}
    samples = list(samples)
    busy = sum(sample.sm_ratio for sample in samples if sample.pid in held)
    every = sum(held.values()) or 1
    return [
        replace(sample, sm_ratio=busy * held[sample.pid] / every) if sample.pid in held else sample
        for sample in samples
    ]


def _named_by_kernel(process: Process) -> Process:
    name = process.name and process.name[:NAME_LENGTH]
    return Process(process.pid, process.kind, name, process.memory_used_bytes)
