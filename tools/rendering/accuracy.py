"""Measures the accuracy of shared energy: GPUTally's charges against the simulator's true values.

Runs an hour of each mix through the parts of the exporter, and prints the table of docs/energy.md. The error
of an owner is its charge minus its true energy, as a ratio of the latter; the error of a mix is the sum of
absolute errors as a ratio of the true total.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gputally.attribution.resolve import find_holders, index_pods, list_residents, listed_pids
from gputally.ledger import Ledger
from gputally.model import Gpu, Reading
from gputally.simulator import SimulatedReader
from gputally.simulator.engine import Engine
from gputally.simulator.gpu import SimulatedGpu
from gputally.simulator.ownership import PodOwner
from gputally.simulator.scenario import Scenario, Shape, Workload
from gputally.simulator.scenario_owners import SimulatedOwners, SimulatedPods
from gputally.simulator.workload_processes import processes_at, samples_between
from gputally.simulator.workloads import MINUTE
from tools.rendering.true_energy import true_energy

WINDOWS_SECONDS = (1, 5, 15)
HOUR = 3600
FIRST_SAMPLE_MILLISECONDS = 400
"""Sampling times are between two samples of the driver, as with a real driver."""
_MODEL = "h100"
_EPOCH = 1_800_000_000.0


@dataclass(frozen=True, slots=True)
class Guest:
    """One owner of a mix, in its own pod."""

    name: str
    shape: Shape = Shape.TRAINING
    load_percent: int = 100
    power_percent: int = 100

    @property
    def workload(self) -> Workload:
        return Workload(
            shape=self.shape,
            gpus=(0,),
            load_percent=self.load_percent,
            power_percent=self.power_percent,
            owner=PodOwner("mix", self.name.replace(" ", "-")),
        )


MIXES: Mapping[str, tuple[Guest, ...]] = {
    "equal": (Guest("one"), Guest("other")),
    "80 / 20": (Guest("large", load_percent=80), Guest("small", load_percent=20)),
    "compute and memory": (Guest("compute bound"), Guest("memory bound", power_percent=60)),
    "bursty and steady": (
        Guest("bursty", Shape.INFERENCE),
        Guest("steady", load_percent=40, power_percent=68),
    ),
    "bursty and heavier": (Guest("bursty", Shape.INFERENCE), Guest("steady", load_percent=40)),
    "idle holder": (Guest("worker"), Guest("holder", Shape.NOTEBOOK, load_percent=1)),
    "three": (
        Guest("compute bound", load_percent=50),
        Guest("memory bound", load_percent=30, power_percent=60),
        Guest("bursty", Shape.INFERENCE),
    ),
}

Energy = dict[str, int]
"""Guest -> millijoules."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The true energy of the owners of a mix, and their charges by each method."""

    true: Energy
    charged: dict[str, Energy]

    def error(self, way: str, guest: str) -> float:
        return (self.charged[way][guest] - self.true[guest]) / self.true[guest]

    def total_error(self, way: str) -> float:
        wrong = sum(abs(self.charged[way][guest] - true) for guest, true in self.true.items())
        return wrong / sum(self.true.values())


def ways() -> list[str]:
    return [*(f"GPUTally, {seconds} s" for seconds in WINDOWS_SECONDS), "equal parts", "all to each (DCGM)"]


def play(guests: tuple[Guest, ...], seconds: int = HOUR) -> Outcome:
    engine = Engine(Scenario(gpus=1, model=_MODEL, workloads=tuple(guest.workload for guest in guests)))
    names = [guest.name for guest in guests]
    true = _true(engine, names, seconds)
    total = sum(true.values())
    charged = [_charge(engine, guests, window, seconds) for window in WINDOWS_SECONDS]
    charged.append({name: total // len(names) for name in names})
    # DCGM reports the whole GPU's energy during the life of a process.
    charged.append(dict.fromkeys(names, total))
    return Outcome(true, dict(zip(ways(), charged, strict=True)))


def _true(engine: Engine, names: list[str], seconds: int) -> Energy:
    (before,) = true_energy(engine, FIRST_SAMPLE_MILLISECONDS / 1000)
    (after,) = true_energy(engine, seconds + FIRST_SAMPLE_MILLISECONDS / 1000)
    return {name: after[number] - before[number] for number, name in enumerate(names)}


def _charge(engine: Engine, guests: tuple[Guest, ...], window: int, seconds: int) -> Energy:
    """The exporter's charges with a sample every `window` seconds."""
    reader = SimulatedReader(engine, lambda: _EPOCH + FIRST_SAMPLE_MILLISECONDS / 1000, began_at=_EPOCH)
    first = reader.read().readings
    pods = SimulatedPods(reader)
    directory = index_pods({pods.name: pods.read()})
    # The processes do not change: their owners are resolved once.
    found = SimulatedOwners(reader).find(listed_pids(first), directory)
    holders = find_holders(first, directory)
    ledger = Ledger(retention_seconds=seconds, max_window_seconds=60)
    for second in range(0, seconds + 1, window):
        readings = (_read(engine.gpus[0], first[0].gpu, second, window),)
        ledger.settle(
            at_us=second * 1_000_000,
            now_seconds=_EPOCH + second,
            readings=readings,
            residents=list_residents(readings, found),
            holders=holders,
        )
    energy = {
        charge.owner.pod: int(sum((charge.energy_millijoules or {}).values())) for charge in ledger.charges()
    }
    return {guest.name: energy.get(guest.name.replace(" ", "-"), 0) for guest in guests}


def _read(gpu: SimulatedGpu, identity: Gpu, second: int, window: int) -> Reading:
    """The fields that the ledger reads: whole readings would take most of the time."""
    power_mw = gpu.physics.minute(second // MINUTE).power_mw[second % MINUTE]
    return Reading(
        gpu=identity,
        power_watts=power_mw / 1000,
        energy_millijoules=gpu.physics.totals(second).energy_mj
        + power_mw * FIRST_SAMPLE_MILLISECONDS // 1000,
        processes=processes_at(gpu.places, second),
        process_samples=samples_between(gpu.places, gpu.physics, second - window, second, int(_EPOCH * 1e6)),
    )


def table(seconds: int = HOUR) -> str:
    """The errors of all mixes, as Markdown."""
    head = ["mix", "owner", "true energy", *ways()]
    rows = [head, ["---", "---", *["---:"] * (len(head) - 2)]]
    for mix, guests in MIXES.items():
        outcome = play(guests, seconds)
        total = sum(outcome.true.values())
        for guest in guests:
            errors = [_signed(outcome.error(way, guest.name)) for way in ways()]
            rows.append([mix, guest.name, f"{outcome.true[guest.name] / total:.1%}", *errors])
        totals = [f"**{outcome.total_error(way):.1%}**" for way in ways()]
        rows.append([mix, "**all**", f"{total / 3.6e9:.3f} kWh", *totals])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def _signed(ratio: float) -> str:
    text = f"{ratio:+.1%}"
    return "0.0%" if text in ("+0.0%", "-0.0%") else text


if __name__ == "__main__":
    print(table(), end="")
