"""Measures the accuracy of the ledger: its charges against the true energy of simulated owners.

Runs an hour of each mix through the parts of the exporter, and prints the table of docs/energy.md. The error
is the sum over all owners of what they were charged too much or too little, as a ratio of the energy of all.
Before the hour the exporter sees the GPU without processes for two minutes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from gputally.attribution.resolve import find_holders, index_pods, list_residents, listed_pids
from gputally.ledger import Ledger
from gputally.ledger.apportion import apportion
from gputally.model import Owner, Reading, Resident
from gputally.simulator import SimulatedReader
from gputally.simulator.driver_samples import samples_between
from gputally.simulator.engine import Engine
from gputally.simulator.ownership import PodOwner
from gputally.simulator.scenario import Memory, MigLayout, Scenario, Shape, Workload
from gputally.simulator.scenario_owners import SimulatedOwners, SimulatedPods
from gputally.simulator.schedule import Span
from tools.rendering.true_energy import TruePower

WINDOW_SECONDS = 5
HOUR = 3600
LEAD_SECONDS = 120
SAMPLED_AFTER_MILLISECONDS = 400
"""Sampling times are between two samples of the driver, as with a real driver."""
SM_TIME, GPUTALLY, EQUAL, DCGM = "by SM time alone", "GPUTally", "equal parts", "whole GPU to each (DCGM)"
WAYS = (SM_TIME, GPUTALLY, EQUAL, DCGM)
_MODEL = "h100"
_EPOCH = 1_800_000_000.0
_ALWAYS = Span(LEAD_SECONDS)


@dataclass(frozen=True, slots=True)
class Guest:
    """One owner of a mix, in its own pod."""

    name: str
    shape: Shape = Shape.TRAINING
    load: int = 100
    power: int = 100
    memory: int = 10
    span: Span = _ALWAYS
    kind: str = "compute"
    instance: int = 0

    @property
    def workload(self) -> Workload:
        return Workload(
            shape=self.shape,
            gpus=(0,),
            span=self.span,
            load_percent=self.load,
            power_percent=self.power,
            memory=Memory(percent=self.memory),
            kind=self.kind,
            instance=self.instance,
            owner=PodOwner("mix", self.name.replace(" ", "-"), requested=True),
        )


@dataclass(frozen=True, slots=True)
class Mix:
    """Owners that share a GPU."""

    guests: tuple[Guest, ...]
    long_turns: bool = False
    """Each has the GPU for longer than a sample of the driver; otherwise for milliseconds."""
    mig: tuple[str, ...] = ()


_MEMORY_BOUND = Guest("memory bound", power=45)
_JOBS = Guest("compute bound", span=Span(LEAD_SECONDS, LEAD_SECONDS + 600, 900))
_IDLE = Guest("idle", Shape.NOTEBOOK, load=1, memory=85)

MIXES: Mapping[str, Mix] = {
    "80 / 20, alike": Mix((Guest("large", load=80), Guest("small", load=20))),
    "worker beside an idle process": Mix((Guest("worker"), _IDLE)),
    "worker beside an idle allocation": Mix((Guest("worker"), Guest("holder", Shape.IDLE))),
    "1 % in bursts beside an idle process": Mix((Guest("blip", Shape.NOTEBOOK), _IDLE)),
    "1 % all the time beside an idle process": Mix((Guest("blip", Shape.UNREQUESTED, load=4), _IDLE)),
    "compute bound jobs beside a memory bound service, in turns of seconds": Mix(
        (_JOBS, _MEMORY_BOUND), long_turns=True
    ),
    "the same in time slices": Mix((_JOBS, _MEMORY_BOUND)),
    "compute and memory bound, never one without the other": Mix((Guest("compute bound"), _MEMORY_BOUND)),
    "the same at 2 : 1": Mix((Guest("compute bound"), replace(_MEMORY_BOUND, load=50))),
    "bursty beside steady": Mix((Guest("bursty", Shape.INFERENCE), Guest("steady", load=40, power=68))),
    "time slices of 8 tenants": Mix(
        tuple(Guest(f"tenant {n}", Shape.UNREQUESTED, load=20 + 10 * n) for n in range(8))
    ),
    "MPS": Mix(
        (
            Guest("large", load=60, memory=40, kind="mps"),
            Guest("small", load=30, memory=30, kind="mps"),
        )
    ),
    "MIG": Mix(
        (
            Guest("compute bound"),
            Guest("half", load=50, instance=1),
            Guest("idle", Shape.NOTEBOOK, load=1, instance=2),
        ),
        mig=("4g.40gb", "2g.20gb", "1g.10gb"),
    ),
}

Energy = dict[str, int]
"""Guest -> millijoules."""


@dataclass(frozen=True, slots=True)
class MixResult:
    """The true energy of the owners of a mix, and their charges by each method."""

    true: Energy
    charged: dict[str, Energy]

    def error(self, way: str, guest: str) -> float:
        return (self.charged[way][guest] - self.true[guest]) / self.true[guest]

    def total_error(self, way: str) -> float:
        wrong = sum(abs(self.charged[way][guest] - true) for guest, true in self.true.items())
        return wrong / sum(self.true.values())


@dataclass(frozen=True, slots=True)
class _Window:
    """What the exporter reads at the end of a window, and who is on the GPU."""

    second: int
    reading: Reading
    residents: tuple[Resident, ...]
    holders: tuple[tuple[tuple[int, str], Owner], ...]
    millijoules: int
    """Used in the window."""


def play(mix: Mix, seconds: int = HOUR) -> MixResult:
    scenario = Scenario(
        gpus=1,
        model=_MODEL,
        workloads=tuple(guest.workload for guest in mix.guests),
        mig=(MigLayout((0,), mix.mig),) if mix.mig else (),
    )
    engine = Engine(scenario)
    true = {guest.name: 0 for guest in mix.guests}
    ledger = Ledger(retention_seconds=2 * seconds, max_window_seconds=60)
    by_sm_time = dict.fromkeys(true, 0)
    for window in _windows(engine, mix, seconds, true):
        ledger.settle(
            at_us=window.second * 1_000_000,
            now_seconds=_EPOCH + window.second,
            readings=(window.reading,),
            residents=window.residents,
            holders=window.holders,
        )
        if window.second > LEAD_SECONDS:
            for pod, part in _by_sm_time(window).items():
                by_sm_time[pod] += part
    charged = dict.fromkeys(true, 0)
    for charge in ledger.charges():
        if charge.owner.kind == "pod":
            charged[_guest(charge.owner)] += int(sum((charge.energy_millijoules or {}).values()))
    total = sum(true.values())
    return MixResult(
        true,
        {
            SM_TIME: by_sm_time,
            GPUTALLY: charged,
            EQUAL: {name: total // len(true) for name in true},
            DCGM: {
                guest.name: 0 if guest.shape is Shape.IDLE else _while_there(guest, total, seconds)
                for guest in mix.guests
            },
        },
    )


def _while_there(guest: Guest, total: int, seconds: int) -> int:
    """DCGM reports the whole GPU's energy during the life of a process."""
    return total * guest.span.overlap(LEAD_SECONDS + seconds) // seconds


def _windows(engine: Engine, mix: Mix, seconds: int, true: Energy) -> Iterator[_Window]:
    """Every sample of the exporter; adds up the true energy on the way."""
    power, gpu = TruePower(engine), engine.gpus[0]
    names = list(true)
    counter = 10**9
    for second in range(0, LEAD_SECONDS + seconds + 1, WINDOW_SECONDS):
        before = counter
        for one in range(second - WINDOW_SECONDS if second else second, second + 1):
            milliseconds = SAMPLED_AFTER_MILLISECONDS if one == second else 1000
            if one == second - WINDOW_SECONDS:
                milliseconds -= SAMPLED_AFTER_MILLISECONDS
            for (number,), milliwatts in power.of_second(one).items():
                counter += milliwatts * milliseconds // 1000
                if number >= 0:
                    true[names[number]] += milliwatts * milliseconds // 1000
        at = second + SAMPLED_AFTER_MILLISECONDS / 1000
        reader = SimulatedReader(engine, partial(float, _EPOCH + at), began_at=_EPOCH)
        (reading,) = engine.readings(at, since=at - WINDOW_SECONDS, epoch_seconds=_EPOCH)
        reading = replace(
            reading,
            power_watts=sum(power.of_second(second).values()) / 1000,
            energy_millijoules=counter,
            process_samples=reading.process_samples
            and samples_between(
                gpu.places,
                gpu.physics,
                second - WINDOW_SECONDS,
                second,
                int(_EPOCH * 1e6),
                long_turns=mix.long_turns,
            ),
        )
        pods = SimulatedPods(reader)
        index = index_pods({pods.name: pods.read()})
        found = SimulatedOwners(reader).find(
            [*listed_pids([reading]), *(sample.pid for sample in reading.process_samples or ())], index
        )
        yield _Window(
            second,
            reading,
            list_residents([reading], found),
            find_holders([reading], index),
            counter - before,
        )


def _guest(owner: Owner) -> str:
    return owner.pod.replace("-", " ")


def _by_sm_time(window: _Window) -> Energy:
    """The whole window by SM time; by memory if none ran; on MIG by activity and size."""
    busy: dict[tuple[str], int] = {}
    memory: dict[tuple[str], int] = {}
    active = {
        mig.instance.uuid: round(1e6 * (mig.graphics_active_ratio or 0)) * (mig.multiprocessors or 1)
        for mig in window.reading.mig
    }
    for resident in window.residents:
        if not isinstance(resident.owner, Owner) or resident.owner.kind != "pod" or resident.mediated:
            continue
        key = (_guest(resident.owner),)
        samples = resident.samples or ()
        work = active.get(resident.uuid) or round(sum(one.sm_ratio * one.covers_us for one in samples))
        busy[key] = busy.get(key, 0) + work
        memory[key] = memory.get(key, 0) + (resident.process.memory_used_bytes or 0)
    parts = apportion(window.millijoules, busy if any(busy.values()) else memory) if busy else {}
    return {name: part for (name,), part in parts.items()}


def table(seconds: int = HOUR, mixes: Mapping[str, Mix] = MIXES) -> str:
    """The errors of all mixes, as Markdown."""
    head = ["mix", *WAYS, "GPUTally, by owner"]
    rows: list[Sequence[str]] = [head, ["---", *["---:"] * len(WAYS), "---"]]
    for name, mix in mixes.items():
        outcome = play(mix, seconds)
        owners = ", ".join(
            f"{guest.name} {_signed(outcome.error(GPUTALLY, guest.name))}" for guest in mix.guests
        )
        rows.append([name, *(f"{outcome.total_error(way):.1%}" for way in WAYS), owners])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def _signed(ratio: float) -> str:
    text = f"{ratio:+.1%}"
    return "0.0%" if text in ("+0.0%", "-0.0%") else text


if __name__ == "__main__":
    print(table(), end="")
