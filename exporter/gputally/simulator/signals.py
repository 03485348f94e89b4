"""Clocks, fans, performance state and the like: what a card shows of its state in one second."""

from gputally.model import Labelled
from gputally.simulator.cards import AmdCard, Card, Clocks, NvidiaCard

MHZ = 1_000_000
CLOCK_STEP_MHZ = 15
THROTTLED_CLOCK = 0.55
FANS_FROM_CELSIUS = 50
FANS_FULL_CELSIUS = 90
# The driver says "KB": 1000 and 1024 both divide this.
PCIE_STEP_BYTES = 128_000


def clock_factor(throttled: bool, demand_mw: int, limit_mw: int) -> float:
    """How much of its highest clock the card runs at: less when it is throttled or must save power."""
    factor = THROTTLED_CLOCK if throttled else 1.0
    if demand_mw > limit_mw:
        factor *= (limit_mw / demand_mw) ** 0.5
    return factor


def clocks_now(card: Card, busy: bool, factor: float) -> Labelled:
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


def amd_clocks_now(card: AmdCard, busy: bool, factor: float) -> Labelled:
    most, least = card.clocks_max, card.clocks_idle
    graphics = max(least.graphics, _stepped(most.graphics, factor)) if busy else least.graphics
    return {
        ("graphics",): float(graphics * MHZ),
        ("memory",): float((most if busy else least).memory * MHZ),
        **{(domain.name,): float((domain.busy if busy else domain.idle) * MHZ) for domain in card.domains},
    }


def amd_clocks_max(card: AmdCard) -> Labelled:
    return {
        ("graphics",): float(card.clocks_max.graphics * MHZ),
        ("memory",): float(card.clocks_max.memory * MHZ),
        **{(domain.name,): float(domain.most * MHZ) for domain in card.domains if domain.most is not None},
    }


def sensors(card: AmdCard, core: int, intensity: int) -> Labelled:
    """All thermometers, of which the core's is the first. None but that gets beyond its limit."""
    celsius: dict[tuple[str, ...], float] = {}
    for sensor in card.sensors:
        value = core + sensor.idle + (sensor.busy - sensor.idle) * intensity // 1000
        if sensor.critical is not None and sensor is not card.sensors[0]:
            value = min(value, sensor.critical - 1)
        celsius[sensor.name,] = float(value)
    return celsius


def application_clocks(card: NvidiaCard) -> Labelled | None:
    if card.clocks_application is None:
        return None
    graphics, memory = card.clocks_application
    return {("graphics",): float(graphics * MHZ), ("memory",): float(memory * MHZ)}


def fan_speeds(card: Card, celsius: int) -> Labelled | None:
    if not card.fans:
        return None
    percent = card.fan_idle_percent
    if celsius > FANS_FROM_CELSIUS:
        way = (celsius - FANS_FROM_CELSIUS) * 70 // (FANS_FULL_CELSIUS - FANS_FROM_CELSIUS)
        percent = min(100, 30 + way)
    return {(str(fan),): percent / 100 for fan in range(card.fans)}


def pcie_generation(card: NvidiaCard, busy: bool) -> int:
    """Cards that go to a low performance state when idle slow the link down with it."""
    return card.pcie_generation if busy or card.performance_state_idle == 0 else 1


def pcie_throughput(generation: int, width: int, intensity: int) -> Labelled:
    """About a tenth of what the link can do, at full intensity; what comes in is the most of it."""
    most = 985_000_000 * width * 2**generation // 8
    received = most * intensity // 10_000 // PCIE_STEP_BYTES * PCIE_STEP_BYTES
    sent = received // 4 // PCIE_STEP_BYTES * PCIE_STEP_BYTES
    return {("tx",): float(sent), ("rx",): float(received)}
