"""Snapshots to tell in other tools' words: of the simulator, of hosts with AMD GPUs, and of any kind."""

from collections import Counter
from collections.abc import Sequence
from functools import cache

from hypothesis import strategies as st

from gputally.attribution import OwnerFinder, PodReport
from gputally.attribution.owners import ProcessOwners
from gputally.attribution.resolve import (
    count_uses,
    ended_pids,
    find_holders,
    index_pods,
    list_pods,
    list_residents,
    listed_pids,
)
from gputally.devices.amdgpu import AmdgpuReader
from gputally.ledger import Ledger
from gputally.metrics.catalog import Kind
from gputally.metrics.compat import Options, ProfileInput
from gputally.metrics.families import Family, build_families
from gputally.metrics.own_process import ExporterFacts
from gputally.model import (
    Charge,
    Gpu,
    GpuLedger,
    Labelled,
    MigInstance,
    MigReading,
    Owner,
    ProcessCharge,
    Reading,
    Snapshot,
    SourceState,
    Unknown,
    Use,
)
from gputally.simulator import SimulatedReader
from gputally.simulator.default_scenario import default_scenario
from gputally.simulator.engine import Engine
from gputally.simulator.scenario_owners import SimulatedOwners, SimulatedPods
from tests.support.amd_trees import planted

OPTIONS = Options(hostname="node-1")
Samples = dict[tuple[str, ...], float]
BEGAN = 1_700_000_000.0
LOOKS = (1_000.0, 1_005.0, 1_010.0)  # both rankers are there


def scene(snapshot: Snapshot) -> ProfileInput:
    return ProfileInput(snapshot, OPTIONS)


@cache
def simulated() -> Snapshot:
    """Eight GPUs with everything that the default scenario has: shared ones, idle ones, an XID error."""
    now = [BEGAN]
    reader = SimulatedReader(Engine(default_scenario(8, "h100")), lambda: now[0], began_at=BEGAN)
    ledger = Ledger(retention_seconds=300, max_window_seconds=60, process_accounts=True)
    for elapsed in LOOKS:
        now[0] = BEGAN + elapsed
        readings = reader.read().readings
        snapshot = _look(readings, SimulatedOwners(reader), SimulatedPods(reader).read(), ledger, now[0])
    return snapshot


@cache
def amd(host: str) -> Snapshot:
    root = planted(host)
    reader = AmdgpuReader(root / "sys", root / "proc")
    ledger = Ledger(retention_seconds=300, max_window_seconds=60, process_accounts=True)
    return _look(reader.read().readings, ProcessOwners(root / "proc"), PodReport(), ledger, BEGAN)


def _look(
    readings: tuple[Reading, ...], owners: OwnerFinder, known: PodReport, ledger: Ledger, now: float
) -> Snapshot:
    directory = index_pods({"pods": known})
    found = owners.find(listed_pids(readings), directory, ended_pids(readings))
    residents = list_residents(readings, found)
    holders = find_holders(readings, directory)
    uses = count_uses(readings, residents, holders)
    at_us = round(now * 1_000_000)
    ledger.settle(at_us=at_us, now_seconds=now, readings=readings, residents=residents, holders=holders)
    return Snapshot(
        taken_at_seconds=now,
        age_seconds=0,
        readings=readings,
        sources=(SourceState(name="nvml", up=True, duration_seconds=0.01, last_success_seconds=now),),
        uses=uses,
        gpu_ledgers=ledger.gpu_ledgers(),
        charges=ledger.charges(),
        processes=ledger.processes(),
        pods=list_pods(uses, directory),
    )


def told(families: Sequence[Family]) -> dict[str, Samples]:
    return {family.metric.name: dict(family.samples) for family in families}


def ours(snapshot: Snapshot) -> dict[str, Samples]:
    return told(build_families(snapshot, ExporterFacts(version="1", python="3", hostname="node-1")))


def kinds(families: Sequence[Family]) -> dict[str, Kind]:
    return {family.metric.name: family.metric.kind for family in families}


def check_sound(families: Sequence[Family]) -> None:
    """No series twice, no family twice or empty, and as many values as labels."""
    names = Counter(family.metric.name for family in families)
    assert set(names.values()) <= {1}
    for family in families:
        assert family.samples
        assert {len(labels) for labels, _ in family.samples} == {len(family.metric.labels)}
        repeated = [
            labels for labels, times in Counter(labels for labels, _ in family.samples).items() if times > 1
        ]
        assert not repeated, family.metric.name


# Any snapshot that the collector could take.

_NAMES = st.sampled_from(("", "a", "b"))
_PODS = st.builds(
    Owner,
    kind=st.just("pod"),
    namespace=st.sampled_from(("team", "other")),
    pod=st.sampled_from(("train-0", "serve-1")),
    container=_NAMES,
)
_OWNERS = st.one_of(
    _PODS,
    st.builds(Owner, kind=st.just("slurm"), name=st.sampled_from(("slurm/1", "slurm/2"))),
    st.builds(Unknown, reason=st.just("unknown_pod")),
)
_XIDS: Labelled = {("13",): 1.0, ("79",): 2.0}
_ENERGY: Labelled = {("measured",): 5, ("shared",): 7}
_RATIOS = st.none() | st.floats(0, 1)
_AMOUNTS = st.none() | st.integers(0, 2**40)


@st.composite
def _readings(draw: st.DrawFn) -> tuple[Reading, ...]:
    found = []
    for number in range(draw(st.integers(0, 3))):
        gpu = Gpu(f"GPU-{number}", draw(st.integers(0, 1)), draw(st.sampled_from(("nvidia", "amd"))), "X")
        slices = tuple(
            MigReading(
                instance=MigInstance(f"MIG-{number}-{place}", gpu.uuid, gpu.index, place // 2, place % 2),
                memory_used_bytes=draw(_AMOUNTS),
            )
            for place in range(draw(st.integers(0, 3)))
        )
        reading = Reading(
            gpu=gpu,
            gpu_utilization_ratio=draw(_RATIOS),
            memory_used_bytes=draw(_AMOUNTS),
            temperature_celsius=draw(st.none() | st.just(50.0)),
            xid_errors=draw(st.none() | st.just(_XIDS)),
            mig=slices,
        )
        found.append(reading if draw(st.booleans()) else reading.lost())
    return tuple(found)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    readings = draw(_readings())
    devices = [
        (one.gpu.index, uuid)
        for one in readings
        for uuid in (one.gpu.uuid, *(mig.instance.uuid for mig in one.mig))
    ]
    uses: dict[tuple[str, Owner | Unknown], Use] = {}
    charges: dict[tuple[str, Owner], Charge] = {}
    processes: dict[tuple[str, int], ProcessCharge] = {}
    for index, uuid in devices:
        for owner in draw(st.lists(_OWNERS, max_size=3)):
            pid = draw(st.integers(1, 3))
            uses[uuid, owner] = Use(index, uuid, owner, 1, draw(_AMOUNTS), draw(_RATIOS), draw(_RATIOS))
            processes[uuid, pid] = ProcessCharge(
                gpu_index=index,
                uuid=uuid,
                pid=pid,
                name="python",
                owner=owner,
                active=draw(st.booleans()),
                sm_ratio=draw(_RATIOS),
                energy_millijoules=draw(_AMOUNTS),
            )
            if isinstance(owner, Owner):
                energy = draw(st.none() | st.just(_ENERGY))
                charges[uuid, owner] = Charge(
                    gpu_index=index, uuid=uuid, owner=owner, active=True, energy_millijoules=energy
                )
    ledgers = tuple(
        GpuLedger(
            gpu_index=one.gpu.index,
            uuid=one.gpu.uuid,
            began_at_seconds=0,
            energy_source="counter",
            energy_millijoules=1_000,
            unattributed_millijoules={},
        )
        for one in readings
    )
    return Snapshot(
        taken_at_seconds=0,
        age_seconds=0,
        readings=readings,
        sources=(),
        uses=tuple(uses.values()),
        gpu_ledgers=ledgers,
        charges=tuple(charges.values()),
        processes=tuple(processes.values()),
    )
