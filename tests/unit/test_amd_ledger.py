"""Who is charged for what on AMD GPUs: from the kernel's files to the scrape, by a clock that tests turn."""

import tempfile
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputally.attribution import PodReport
from gputally.attribution.owners import ProcessOwners
from gputally.attribution.resolve import count_uses, ended_pids, index_pods, list_residents, listed_pids
from gputally.devices import amdgpu
from gputally.devices.amdgpu.gpu_metrics import decode
from gputally.devices.amdgpu.process_finder import ProcessFinder
from gputally.ledger import Ledger
from gputally.metrics.exposition import render_text
from gputally.metrics.families import build_families
from gputally.metrics.own_process import read_exporter_facts
from gputally.model import PodInfo, Snapshot
from tests.support.amd_meters import card_directory, rewrite, set_energy, set_engine_time
from tests.support.amd_trees import plant
from tests.support.exporter import Samples, parse_samples
from tests.support.ledger_series import check_balance
from tests.unit.devices.amdgpu.fake_host import SteppedSampler
from tools.standin.procfs import container_id, pod_cgroup, uid

SECOND_NS = 1_000_000_000
VLLM = ("team-a", "vllm-0", "server")
TRAIN = ("team-b", "train-0", "main")
NOTEBOOK = ("team-c", "notebook-7", "jupyter")
PODS = tuple(
    PodInfo(namespace=namespace, pod=pod, pod_uid=uid(number), container_names=(container,))
    for (namespace, pod, container), number in ((VLLM, 0xA1), (TRAIN, 0xB2), (NOTEBOOK, 0xC3))
)


class Host:
    """A planted host, looked at whenever a test says so."""

    def __init__(self, name: str, directory: Path) -> None:
        self.root = plant(name, directory)
        self._now_ns = 1_000 * SECOND_NS
        with pytest.MonkeyPatch.context() as patch:
            self._occupancy = SteppedSampler()
            finder = partial(
                ProcessFinder,
                monotonic_ns=lambda: self._now_ns,
                wall_ns=lambda: self._now_ns,
                occupancy=self._occupancy,
            )
            patch.setattr(amdgpu, "ProcessFinder", finder)
            self._reader = amdgpu.AmdgpuReader(self.root / "sys", self.root / "proc")
        self._owners = ProcessOwners(self.root / "proc")
        self._directory = index_pods({"pods": PodReport(pods=PODS)})
        self._ledger = Ledger(retention_seconds=300, max_window_seconds=60)

    def look(self, seconds_later: float = 0) -> Samples:
        """What a scrape says now. The ledger balance in each."""
        self._now_ns += round(seconds_later * SECOND_NS)
        self._occupancy.sample()
        readings = self._reader.read().readings
        found = self._owners.find(listed_pids(readings), self._directory, ended_pids(readings))
        residents = list_residents(readings, found)
        now_seconds = self._now_ns / SECOND_NS
        self._ledger.settle(
            at_us=self._now_ns // 1000,
            now_seconds=now_seconds,
            readings=readings,
            residents=residents,
            holders=(),
        )
        snapshot = Snapshot(
            taken_at_seconds=now_seconds,
            age_seconds=0,
            readings=readings,
            sources=(),
            uses=count_uses(readings, residents, ()),
            gpu_ledgers=self._ledger.gpu_ledgers(),
            charges=self._ledger.charges(),
        )
        samples = parse_samples(
            render_text(build_families(snapshot, read_exporter_facts("1", "host"))).decode()
        )
        check_balance(samples)
        return samples

    def move_into_pod(self, pid: int, number: int) -> None:
        rewrite(self.root / f"proc/{pid}/cgroup", pod_cgroup(uid(number), container_id(number)))


def charged(samples: Samples, scope: str, basis: str) -> dict[tuple[str, ...], int]:
    """Millijoules by owner, of those who were charged on this basis; the uuid is left out."""
    found: dict[tuple[str, ...], int] = {}
    for (_, _, *owner, of_basis), joules in samples[f"gputally_{scope}_energy_joules_total"].items():
        if of_basis == basis and joules:
            found[tuple(owner)] = found.get(tuple(owner), 0) + round(joules * 1000)
    return found


def energy_counter(card: Path) -> int:
    millijoules = decode((card / "gpu_metrics").read_bytes()).energy_millijoules
    assert millijoules is not None
    return millijoules


def test_two_pods_share_the_energy_and_the_busy_time_of_a_card_by_their_occupancy(tmp_path: Path) -> None:
    host = Host("mi300x", tmp_path)
    card = card_directory(host.root, "0000:27:00.0")
    before = energy_counter(card)
    samples = host.look()
    assert charged(samples, "pod", "shared") == {}
    windows = 6
    for window in range(1, windows + 1):
        set_energy(card, before + window * 5 * 141_000)  # what its power says
        samples = host.look(5)
    shares = charged(samples, "pod", "shared")
    used = windows * 5 * 141_000
    assert sum(shares.values()) == used
    assert shares[TRAIN] == pytest.approx(used * 2 / 3, abs=windows)
    assert shares[NOTEBOOK] == pytest.approx(used * 1 / 3, abs=windows)
    busy = samples["gputally_pod_busy_seconds_total"]
    uuid = "GPU-2250f807caf2231a"
    assert (busy["1", uuid, *TRAIN], busy["1", uuid, *NOTEBOOK]) == (12, 6), "60 % of 30 s"
    assert samples["gputally_gpu_energy_joules_total"]["1", uuid] == (before + used) / 1000


def test_a_card_without_a_counter_is_measured_by_power_and_shared_by_engine_time(tmp_path: Path) -> None:
    host = Host("apu", tmp_path)
    for pid, pod in ((1201, 0xB2), (2304, 0xC3), (2305, 0xC3)):
        host.move_into_pod(pid, pod)
    host.look()
    host.look(5)  # a counter may be late
    for window in (1, 2, 3, 4):
        set_engine_time(host.root, 1201, 12, "gfx", 51_234_567_890 + window * 3 * SECOND_NS // 2)
        for descriptor in (30, 31):  # one client, open twice
            set_engine_time(host.root, 2305, descriptor, "gfx", 9_567_890_123 + window * SECOND_NS // 2)
        samples = host.look(5)
    shares = charged(samples, "pod", "shared")
    assert sum(shares.values()) == 4 * 5 * 3103
    assert shares[TRAIN] == pytest.approx(3 * shares[NOTEBOOK], abs=8)
    busy = samples["gputally_pod_busy_seconds_total"]
    assert (busy["0", "GPU-0000:64:00.0", *TRAIN], busy["0", "GPU-0000:64:00.0", *NOTEBOOK]) == (6, 2)
    (gpu,) = samples["gputally_gpu_info"]
    assert gpu[-1] == "integrated"


def test_hip_on_a_radeon_has_the_busy_time_that_no_engine_shows(tmp_path: Path) -> None:
    host = Host("rx7900xtx", tmp_path)
    for window in range(4):
        for pid, descriptor in ((812, 21), (1530, 14)):  # one client, open in logind and the compositor
            set_engine_time(host.root, pid, descriptor, "gfx", 81_234_567_890 + window * SECOND_NS // 20)
        samples = host.look(5)
    shares = charged(samples, "host", "shared")
    desktop, ollama = shares["session/1000",], shares["service/ollama.service",]
    assert desktop + ollama == 2 * 5 * 68_000
    assert ollama == pytest.approx(2 * desktop, rel=1e-4), "1 % and the rest of 3 %"
    busy = samples["gputally_host_busy_seconds_total"]
    assert {owner: seconds for (_, _, owner), seconds in busy.items()} == {
        "session/1000": pytest.approx(0.15),
        "service/ollama.service": pytest.approx(0.3),
    }


def test_two_dies_of_an_mi250_share_the_meter_of_the_first_by_utilisation(tmp_path: Path) -> None:
    host = Host("mi250", tmp_path)
    card = card_directory(host.root, "0000:29:00.0")
    before = energy_counter(card)
    host.look()
    for window in (1, 2):
        set_energy(card, before + window * 5 * 89_000)
        samples = host.look(5)
    first, second = samples["gputally_gpu_up"]
    job, gpu = "slurm/42", first[0]
    assert charged(samples, "host", "measured") == {(job,): 2 * 5 * 89_000}
    assert samples["gputally_gpu_energy_joules_total"] == {first: (before + 2 * 5 * 89_000) / 1000}
    busy = [samples["gputally_gpu_utilization_ratio"][die] for die in (first, second)]
    by_die = [
        samples["gputally_host_energy_joules_total"][gpu, die[1], job, "measured"] for die in (first, second)
    ]
    assert by_die == pytest.approx([890 * share / sum(busy) for share in busy], abs=0.002)
    assert samples["gputally_host_held_seconds_total"] == {
        (gpu, first[1], job): 10,
        (gpu, second[1], job): 10,
    }
    assert samples["gputally_host_busy_seconds_total"] == {
        (gpu, first[1], job): pytest.approx(6.4),
        (gpu, second[1], job): pytest.approx(1.2),
    }


def test_the_energy_of_a_card_is_divided_among_its_partitions_by_activity(tmp_path: Path) -> None:
    host = Host("mi300x-cpx", tmp_path)
    card = card_directory(host.root, "0000:05:00.0")
    before = energy_counter(card)
    host.look()
    used = 5 * 742_000
    set_energy(card, before + used)
    samples = host.look(5)
    of_tenth = used / 28  # the partitions are at 0, 10, .. 70 %
    shares = charged(samples, "pod", "measured")
    assert shares == {VLLM: pytest.approx(of_tenth, abs=1), TRAIN: pytest.approx(5 * of_tenth, abs=1)}
    parent = ("0", "GPU-e3aa140f9a5f9e31")
    idle = samples["gputally_gpu_unattributed_energy_joules_total"][*parent, "idle"]
    assert round(idle * 1000) == used - sum(shares.values())
    held = samples["gputally_pod_held_seconds_total"]
    assert {(labels[1], *labels[2:]): seconds for labels, seconds in held.items()} == {
        (f"{parent[1]}-0", *VLLM): 5,
        (f"{parent[1]}-1", *VLLM): 5,
        (f"{parent[1]}-5", *TRAIN): 5,
    }


ENGINE_TIMES = st.integers(0, 100 * SECOND_NS)


@settings(max_examples=25)
@given(st.lists(st.tuples(ENGINE_TIMES, ENGINE_TIMES, st.integers(1, 40)), min_size=1, max_size=6))
def test_decreasing_engine_times_never_reduce_a_charge(looks: list[tuple[int, int, int]]) -> None:
    highest = begun = 51_234_567_890
    with tempfile.TemporaryDirectory() as directory:
        host = Host("apu", Path(directory))
        host.move_into_pod(1201, 0xB2)
        earlier: Samples = host.look()
        for shell, browser, seconds in looks:
            set_engine_time(host.root, 1201, 12, "gfx", shell)
            for descriptor in (30, 31):
                set_engine_time(host.root, 2305, descriptor, "gfx", browser)
            now = host.look(seconds)
            for name in (name for name in earlier if name.endswith("_total")):
                for labels, value in earlier[name].items():
                    assert 0 <= value <= now[name][labels], (name, labels)
            for scope in ("pod", "host"):
                held = now[f"gputally_{scope}_held_seconds_total"]
                for labels, busy in now.get(f"gputally_{scope}_busy_seconds_total", {}).items():
                    assert busy <= held[labels] + 1e-6
            highest = max(highest, shell)
            (ran,) = now["gputally_pod_busy_seconds_total"].values()
            assert ran <= (highest - begun) / SECOND_NS + 1e-6, "and the way back up counts once"
            earlier = now
