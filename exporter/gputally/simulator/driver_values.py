"""Values that a driver reports of a GPU's state: clocks, fans, sensors, throughput, errors and links."""

from typing import Any

from gputally.model import FABRIC_PROBLEMS, FABRIC_STATES, Labelled
from gputally.simulator.faults import GpuFaults
from gputally.simulator.gpu_models import AmdModel, Clocks, GpuModel, NvidiaModel
from gputally.simulator.scenario import ECC_LOCATIONS

MHZ = 1_000_000
CLOCK_STEP_MHZ = 15
THROTTLED_CLOCK = 0.55
FANS_FROM_CELSIUS = 50
FANS_FULL_CELSIUS = 90
# The driver says "KB": 1000 and 1024 both divide this.
PCIE_STEP_BYTES = 128_000
_UNKNOWN_ERROR = 999  # of NVML


def clock_factor(throttled: bool, demand_mw: int, limit_mw: int) -> float:
    """The present clock as a share of the highest: lower when throttled or power limited."""
    factor = THROTTLED_CLOCK if throttled else 1.0
    if demand_mw > limit_mw:
        factor *= (limit_mw / demand_mw) ** 0.5
    return factor


def clocks_now(card: GpuModel, busy: bool, factor: float) -> Labelled:
    if not busy:
        return clock_domains(card.clocks_idle)
    most, least = card.clocks_max, card.clocks_idle
    return clock_domains(
        Clocks(
            max(least.graphics, _stepped(most.graphics, factor)),
            most.memory,
            max(least.video, _stepped(most.video, factor)),
        )
    )


def _stepped(mhz: int, factor: float) -> int:
    return mhz if factor >= 1.0 else int(mhz * factor) // CLOCK_STEP_MHZ * CLOCK_STEP_MHZ


def clock_domains(clocks: Clocks) -> Labelled:
    return {
        ("graphics",): float(clocks.graphics * MHZ),
        ("sm",): float(clocks.graphics * MHZ),
        ("memory",): float(clocks.memory * MHZ),
        ("video",): float(clocks.video * MHZ),
    }


def amd_clocks_now(card: AmdModel, busy: bool, factor: float) -> Labelled:
    most, least = card.clocks_max, card.clocks_idle
    graphics = max(least.graphics, _stepped(most.graphics, factor)) if busy else least.graphics
    return {
        ("graphics",): float(graphics * MHZ),
        ("memory",): float((most if busy else least).memory * MHZ),
        **{(domain.name,): float((domain.busy if busy else domain.idle) * MHZ) for domain in card.domains},
    }


def amd_clocks_max(card: AmdModel) -> Labelled:
    return {
        ("graphics",): float(card.clocks_max.graphics * MHZ),
        ("memory",): float(card.clocks_max.memory * MHZ),
        **{(domain.name,): float(domain.most * MHZ) for domain in card.domains if domain.most is not None},
    }


def sensors(card: AmdModel, core: int, intensity: int) -> Labelled:
    """All sensors; the first is the core. Only the core exceeds its limit."""
    celsius: dict[tuple[str, ...], float] = {}
    for sensor in card.sensors:
        value = core + sensor.idle + (sensor.busy - sensor.idle) * intensity // 1000
        if sensor.critical is not None and sensor is not card.sensors[0]:
            value = min(value, sensor.critical - 1)
        celsius[sensor.name,] = float(value)
    return celsius


def application_clocks(card: NvidiaModel) -> Labelled | None:
    if card.clocks_application is None:
        return None
    graphics, memory = card.clocks_application
    return {("graphics",): float(graphics * MHZ), ("memory",): float(memory * MHZ)}


def fan_speeds(card: GpuModel, celsius: int) -> Labelled | None:
    if not card.fans:
        return None
    percent = card.fan_idle_percent
    if celsius > FANS_FROM_CELSIUS:
        way = (celsius - FANS_FROM_CELSIUS) * 70 // (FANS_FULL_CELSIUS - FANS_FROM_CELSIUS)
        percent = min(100, 30 + way)
    return {(str(fan),): percent / 100 for fan in range(card.fans)}


def pcie_generation(card: NvidiaModel, busy: bool) -> int:
    """GPUs with a low performance state when idle lower the link speed as well."""
    return card.pcie_generation if busy or card.performance_state_idle == 0 else 1


def pcie_throughput(generation: int, width: int, intensity: int) -> Labelled:
    """About a tenth of the link's capacity at full intensity, most of it received."""
    most = 985_000_000 * width * 2**generation // 8
    received = most * intensity // 10_000 // PCIE_STEP_BYTES * PCIE_STEP_BYTES
    sent = received // 4 // PCIE_STEP_BYTES * PCIE_STEP_BYTES
    return {("tx",): float(sent), ("rx",): float(received)}


KIB = 1024


def ras_errors(card: AmdModel, faults: GpuFaults, second: int) -> tuple[Labelled, Labelled]:
    """AMD errors by block, and their sums without deferred errors, as the driver sums them."""
    found = faults.ras(second)
    blocks: dict[tuple[str, ...], float] = {
        (block, kind): float(found.get((block, kind), 0))
        for block in card.ras_blocks
        for kind in card.ras_types
    }
    sums: dict[tuple[str, ...], float] = {
        (kind, "volatile"): sum(blocks[block, kind] for block in card.ras_blocks)
        for kind in ("uncorrected", "corrected")
    }
    return blocks, sums


def ecc_errors(faults: GpuFaults, corrected_before: int, second: int) -> tuple[Labelled, Labelled]:
    """ECC errors in total and by location. Aggregate counts exceed volatile ones: they survive the driver."""
    found = faults.ecc(second)
    totals: dict[tuple[str, ...], float] = {}
    places: dict[tuple[str, ...], float] = {}
    for kind in ("corrected", "uncorrected"):
        for lifetime in ("volatile", "aggregate"):
            total = 0
            for location in ECC_LOCATIONS:
                count = found.get((kind, location), 0)
                if (kind, lifetime, location) == ("corrected", "aggregate", "device_memory"):
                    count += corrected_before
                places[kind, lifetime, location] = float(count)
                total += count
            totals[kind, lifetime] = float(total)
    return totals, places


def retired_pages(faults: GpuFaults, second: int) -> Labelled:
    return {("single_bit",): 0.0, ("double_bit",): float(faults.remapped(second))}


def remapped_rows(faults: GpuFaults, second: int) -> Labelled:
    return {("correctable",): 0.0, ("uncorrectable",): float(faults.remapped(second))}


def remap_banks(card: NvidiaModel, faults: GpuFaults, second: int) -> Labelled:
    """Banks by spare rows left: each remap uses one; remapping fails in a bank without any."""
    empty = int(faults.remap_failed(second))
    used = min(faults.remapped(second), card.remap_banks - empty)
    return {
        ("max",): float(card.remap_banks - used - empty),
        ("high",): float(used),
        ("partial",): 0.0,
        ("low",): 0.0,
        ("none",): float(empty),
    }


class Nvlinks:
    """The NVLinks of one GPU. The values without faults are built once."""

    def __init__(self, card: NvidiaModel, faults: GpuFaults) -> None:
        self._card = card
        self._faults = faults
        links = [str(link) for link in range(card.links)]
        self._all_up: Labelled = {(link,): 1.0 for link in links}
        self._no_errors: Labelled = {(link, kind): 0.0 for link in links for kind in card.nvlink_errors}

    def up(self, second: int) -> Labelled:
        down = self._faults.links_down(second)
        return {**self._all_up, **{(str(link),): 0.0 for link in down}} if down else self._all_up

    def errors(self, second: int) -> Labelled:
        """A link that goes down counts a few lost packets and one failed recovery."""
        failures, noise = self._faults.link_failures(second), self._faults.link_errors(second)
        if not failures and not noise:
            return self._no_errors
        errors = {key: none + noise.get(key, 0) for key, none in self._no_errors.items()}
        lost, recovery = self._card.nvlink_errors[:2]
        for link, times in failures.items():
            errors[str(link), lost] += 12.0 * times
            errors[str(link), recovery] += float(times)
        return errors

    def moved(self, total_kib: int) -> Labelled:
        """Bytes, in KiB that divide evenly by the links: the driver counts in KiB and by link."""
        links = self._card.links
        return {
            ("tx",): float(total_kib // links * links * KIB),
            ("rx",): float(total_kib * 31 // 32 // links * links * KIB),
        }


def fabric(card: NvidiaModel, wrong: set[str]) -> dict[str, Any]:
    """The fields of the NVLink fabric; none where the model has no fabric."""
    if card.fabric is None:
        return {}
    cluster, clique = card.fabric
    completed, failed = "not_completed" not in wrong, "failed" in wrong
    return {
        "fabric_state": FABRIC_STATES.index("completed" if completed else "in_progress"),
        "fabric_status": (_UNKNOWN_ERROR if failed else 0) if completed else None,
        "fabric_problem": {(problem,): float(problem in wrong) for problem in FABRIC_PROBLEMS}
        if card.fabric_health
        else None,
        "fabric_clique": {(cluster,): float(clique)} if completed and not failed else None,
    }


class XgmiLinks:
    """The XGMI links of one GPU."""

    def __init__(self, card: AmdModel, faults: GpuFaults) -> None:
        self._links = [str(link) for link in range(card.links)]
        self._faults = faults

    def up(self, second: int) -> Labelled:
        down = {str(link) for link in self._faults.links_down(second)}
        return {(link,): float(link not in down) for link in self._links}

    def moved(self, total_kib: int) -> Labelled:
        """Bytes by link, in the KiB that the firmware counts; all links carry the same."""
        written = total_kib // len(self._links)
        by_direction = (("read", written * 31 // 32), ("write", written))
        return {
            (link, direction): float(kib * KIB) for direction, kib in by_direction for link in self._links
        }
