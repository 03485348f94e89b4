"""One GPU: its files as a `Reading`.

https://docs.kernel.org/gpu/amdgpu/driver-misc.html and thermal.html. A value that is in
several files is taken from the plainest; the binary table `gpu_metrics` fills the rest.
"""

import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from gputally.devices import Errors, Values
from gputally.devices.amd import CLOCK_DOMAINS, TWO_DIES, pcie_generation, sensor_name
from gputally.devices.amdgpu import process_finder
from gputally.devices.amdgpu.discovery import DrmCard, RenderDevice
from gputally.devices.amdgpu.files import Files, Levels, parse_levels
from gputally.devices.amdgpu.gpu_metrics import GpuMetrics, decode, throttle_active
from gputally.devices.amdgpu.gpu_metrics_layouts import BrokenTable, UnknownTable
from gputally.devices.amdgpu.hwmon import Hwmon, read_hwmon
from gputally.devices.amdgpu.mean_activity import ActivityMeter, MeanActivity
from gputally.devices.amdgpu.process_finder import FoundProcesses
from gputally.devices.amdgpu.ras import RasCounters
from gputally.model import Gpu, Labelled, MigInstance, MigReading, Reading

CARD_FILLS = frozenset(
    {
        "clock_hertz",
        "clock_max_hertz",
        "ecc_errors",
        "energy_millijoules",
        "fan_speed_ratio",
        "gpu_utilization_ratio",
        "gtt_total_bytes",
        "gtt_used_bytes",
        "jpeg_utilization_ratio",
        "memory_free_bytes",
        "memory_temperature_celsius",
        "memory_total_bytes",
        "memory_used_bytes",
        "memory_utilization_ratio",
        "memory_visible_total_bytes",
        "memory_visible_used_bytes",
        "mig",
        "MigReading.graphics_active_ratio",
        "MigReading.processes",
        "MigReading.process_samples",
        "pcie_generation",
        "pcie_generation_max",
        "pcie_replays",
        "pcie_width",
        "pcie_width_max",
        "power_default_limit_watts",
        "power_limit_watts",
        "power_max_limit_watts",
        "power_min_limit_watts",
        "power_watts",
        "ras_errors",
        "sensor_celsius",
        "sensor_critical_celsius",
        "temperature_celsius",
        "temperature_shutdown_celsius",
        "temperature_slowdown_celsius",
        "throttle_active",
        "xgmi_bytes",
        "xgmi_up",
        *process_finder.FILLS,
    }
)
_UNKNOWN_PROCESSES = FoundProcesses()
_NO_DEVICES: Mapping[int, RenderDevice | None] = {}
_NO_TABLE = GpuMetrics(format_revision=0, content_revision=0)
_SPEED = re.compile(r"([0-9]{1,3}(?:\.[0-9])?) GT/s.*")

# Fields that come from the GPU itself; the kernel has the others even of a lost GPU.
_SIGNS_OF_LIFE = {
    "gpu_utilization_ratio",
    "memory_utilization_ratio",
    "power_watts",
    "sensor_celsius",
    "clock_hertz",
    "gpu_metrics",
}


class CardReader:
    """Reads one GPU. Keeps the table's last counters, to detect which have grown."""

    def __init__(self, card: DrmCard, errors: Errors, clock: Callable[[], float] = time.monotonic) -> None:
        self._card = card
        self._files = Files(card.directory, errors)
        self._ras = RasCounters(self._files, clock)
        self._activity = ActivityMeter()
        self._residencies: Mapping[str, int] = {}

    def read(
        self,
        gpu: Gpu,
        residents: Mapping[int | None, FoundProcesses],
        devices: Mapping[int, RenderDevice | None] = _NO_DEVICES,
    ) -> Reading:
        """The GPU's values; `up=False` when it does not respond.

        `residents` are the processes on the GPU (None) and on each of its partitions, `devices` the
        partitions' devices in the kernel.
        """
        files = self._files
        files.begin()
        values = self._memory()
        on_card = residents.get(None, _UNKNOWN_PROCESSES)
        if files.suspended():
            values["process_samples"] = on_card.samples(0.0)
        else:
            values |= self._read_awake(gpu, residents, devices)
        silent = files.failed & _SIGNS_OF_LIFE and not files.succeeded & _SIGNS_OF_LIFE
        vanished = not files.succeeded and not files.denied
        if silent or vanished:
            return Reading(gpu=gpu, up=False)
        return Reading(gpu=gpu, processes=on_card.processes, **values)

    def _read_awake(
        self,
        gpu: Gpu,
        residents: Mapping[int | None, FoundProcesses],
        devices: Mapping[int, RenderDevice | None],
    ) -> Values:
        hwmon = read_hwmon(self._files)
        table = self._table().partitioned(sum(number is not None for number in residents))
        mean = self._activity.advance(table)
        ras_errors, ecc_errors = self._ras.read()
        levels = self._levels()
        utilization = self._ratio("gpu_utilization_ratio", "gpu_busy_percent", table.gfx_activity_ratio)
        values: Values = {
            "gpu_utilization_ratio": utilization,
            "memory_utilization_ratio": self._ratio(
                "memory_utilization_ratio", "mem_busy_percent", table.memory_activity_ratio
            ),
            "jpeg_utilization_ratio": table.jpeg_activity_ratio,
            "power_watts": _first(hwmon.power_watts, table.power_watts),
            "power_limit_watts": hwmon.power_limit_watts,
            "power_default_limit_watts": hwmon.power_default_limit_watts,
            "power_min_limit_watts": hwmon.power_min_limit_watts,
            "power_max_limit_watts": hwmon.power_max_limit_watts,
            "energy_millijoules": table.energy_millijoules,
            "clock_hertz": _clocks(levels, hwmon, table) or None,
            "clock_max_hertz": {
                (domain,): level.max_hertz for domain, level in levels.items() if level.max_hertz
            }
            or None,
            "fan_speed_ratio": None if hwmon.fan_ratio is None else {("0",): hwmon.fan_ratio},
            "throttle_active": self._throttle(table),
            "ras_errors": ras_errors,
            "ecc_errors": ecc_errors,
            "xgmi_bytes": _bytes_of_links(table) or None,
            "xgmi_up": table.xgmi_up or None,
            "mig": self._partitions(gpu, residents, devices, table, mean),
            "process_samples": residents.get(None, _UNKNOWN_PROCESSES).samples(
                _first(mean.card, utilization)
            ),
        }
        if self._card.device_id in TWO_DIES and not hwmon.power_watts:
            values |= {"power_watts": None, "energy_millijoules": None}
        return values | _temperatures(hwmon, table) | self._pcie(table)

    def _ratio(self, field: str, name: str, otherwise: float | None) -> float | None:
        percent = self._files.number(field, name)
        return otherwise if percent is None else percent / 100

    def _memory(self) -> Values:
        number = self._files.number
        total = number("memory_total_bytes", "mem_info_vram_total")
        used = number("memory_used_bytes", "mem_info_vram_used")
        return {
            "memory_total_bytes": total,
            "memory_used_bytes": used,
            "memory_free_bytes": None if total is None or used is None else max(0, total - used),
            "memory_visible_total_bytes": number("memory_visible_total_bytes", "mem_info_vis_vram_total"),
            "memory_visible_used_bytes": number("memory_visible_used_bytes", "mem_info_vis_vram_used"),
            "gtt_total_bytes": number("gtt_total_bytes", "mem_info_gtt_total"),
            "gtt_used_bytes": number("gtt_used_bytes", "mem_info_gtt_used"),
        }

    def _table(self) -> GpuMetrics:
        content = self._files.raw("gpu_metrics", "gpu_metrics")
        if not content:
            return _NO_TABLE
        try:
            return decode(content)
        except UnknownTable as unknown:
            version = f"{unknown.format_revision}_{unknown.content_revision}"
            self._files.errors["gpu_metrics", f"unknown_version_{version}"] += 1
        except BrokenTable:
            self._files.errors["gpu_metrics", "malformed"] += 1
        return _NO_TABLE

    def _levels(self) -> dict[str, Levels]:
        found = {}
        for name, domain in CLOCK_DOMAINS.items():
            levels = parse_levels(self._files.text("clock_hertz", f"pp_dpm_{name}") or "")
            if levels is not None:
                found[domain] = levels
        return found

    def _throttle(self, table: GpuMetrics) -> Labelled | None:
        """Some tables have the active throttle reasons; those of newer Instincts have their durations."""
        if table.throttlers is not None:
            return throttle_active(table.throttlers)
        before, self._residencies = self._residencies, table.throttle_residencies
        if not before or not self._residencies:
            return None
        return throttle_active(
            name for name, cycles in self._residencies.items() if cycles > before.get(name, cycles)
        )

    def _partitions(
        self,
        gpu: Gpu,
        residents: Mapping[int | None, FoundProcesses],
        devices: Mapping[int, RenderDevice | None],
        table: GpuMetrics,
        mean: MeanActivity,
    ) -> tuple[MigReading, ...]:
        """The partitions that KFD lists, with their activity where the GPU's table has it by partition."""
        numbers = sorted(number for number in residents if number is not None)
        if not numbers:
            return ()
        modes = [
            self._files.text("mig", "current_compute_partition"),
            self._files.text("mig", "current_memory_partition"),
        ]
        profile = "/".join(mode for mode in modes if mode) or None
        means = dict(enumerate(mean.partitions))
        busy = {
            number: _first(means.get(number), partition.gfx_activity_ratio)
            for number, partition in enumerate(table.partitions)
        }
        return tuple(
            MigReading(
                instance=MigInstance(
                    uuid=f"{gpu.uuid}-{number}",
                    parent_uuid=gpu.uuid,
                    parent_index=gpu.index,
                    gpu_instance_id=number,
                    compute_instance_id=0,
                    profile=profile,
                    device_name=device.name if device else None,
                    minor_number=device.card_number if device else None,
                ),
                processes=residents[number].processes,
                process_samples=residents[number].samples(busy.get(number)),
                graphics_active_ratio=busy.get(number),
            )
            for number in numbers
            for device in (devices.get(number),)
        )

    def _pcie(self, table: GpuMetrics) -> Values:
        number = self._files.number
        return {
            "pcie_generation": _first(self._generation("pcie_generation", "current"), table.pcie_generation),
            "pcie_generation_max": self._generation("pcie_generation_max", "max"),
            "pcie_width": number("pcie_width", "current_link_width") or table.pcie_width or None,
            "pcie_width_max": number("pcie_width_max", "max_link_width") or None,
            "pcie_replays": _first(number("pcie_replays", "pcie_replay_count"), table.pcie_replays),
        }

    def _generation(self, field: str, which: str) -> int | None:
        """From a speed like "16.0 GT/s PCIe"."""
        match = _SPEED.fullmatch(self._files.text(field, f"{which}_link_speed") or "")
        return pcie_generation(float(match[1])) if match else None


def _first(*values: float | None) -> Any:
    return next((value for value in values if value is not None), None)


def _clocks(levels: Mapping[str, Levels], hwmon: Hwmon, table: GpuMetrics) -> Labelled:
    """The marked level of each domain, else the clock of hwmon, else that of the table."""
    clocks = dict(table.clocks_hertz)
    clocks |= {(domain,): hertz for domain, hertz in hwmon.clock_hertz.items()}
    return clocks | {
        (domain,): level.current_hertz for domain, level in levels.items() if level.current_hertz is not None
    }


def _temperatures(hwmon: Hwmon, table: GpuMetrics) -> Values:
    """All sensors, and the one that is the GPU's temperature."""
    sensors = {(sensor_name(name),): celsius for (name,), celsius in table.temperatures_celsius.items()}
    sensors |= {(name,): celsius for name, celsius in hwmon.celsius.items()}
    main = next((name for name in ("edge", "junction", "gfx") if (name,) in sensors), "")
    return {
        "temperature_celsius": sensors.get((main,)),
        "memory_temperature_celsius": sensors.get(("mem",)),
        "temperature_slowdown_celsius": hwmon.critical_celsius.get(main),
        "temperature_shutdown_celsius": hwmon.emergency_celsius.get(main),
        "sensor_celsius": sensors or None,
        "sensor_critical_celsius": {(name,): limit for name, limit in hwmon.critical_celsius.items()} or None,
    }


def _bytes_of_links(table: GpuMetrics) -> Labelled:
    """The table has room for more links than exist; those with a state exist."""
    links = {link for (link,) in table.xgmi_up}
    return {key: count for key, count in table.xgmi_bytes.items() if not links or key[0] in links}
