"""How long each process kept a GPU busy: from the files of a host to the samples of the reader.

What the kernel's files mean is from its source: kfd_get_cu_occupancy in amdkfd/kfd_process.c (waves in flight
at one moment, divided by the waves that fill a compute unit, rounded up), and MetricsTable_t in
pm/swsmu/inc/pmfw_if/smu_v13_0_12_pmfw.h (activity in percent, added up in every cycle of the firmware).
"""

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from gputally.devices import amdgpu
from gputally.devices.amdgpu import AmdgpuReader
from gputally.devices.amdgpu.process_finder import ProcessFinder
from gputally.model import MigReading, Reading
from tests.support.amd_meters import card_directory, rewrite, set_table
from tests.support.amd_trees import plant
from tests.support.gpu_metrics_tables import build
from tests.unit.devices.amdgpu.fake_host import SECOND_NS, SteppedSampler

FIRST, SECOND = "0000:05:00.0", "0000:27:00.0"
ALONE = 20101  # on the first card
TRAIN, NOTEBOOK = 20102, 20103  # on the second


class Host:
    """A planted host, whose clock and samples of the occupancy are the test's."""

    def __init__(self, name: str, directory: Path) -> None:
        self.root = plant(name, directory)
        self.sampler = SteppedSampler()
        self._now_ns = 0
        with pytest.MonkeyPatch.context() as patch:
            finder = partial(
                ProcessFinder,
                monotonic_ns=lambda: self._now_ns,
                wall_ns=lambda: self._now_ns,
                occupancy=self.sampler,
            )
            patch.setattr(amdgpu, "ProcessFinder", finder)
            self._reader = AmdgpuReader(self.root / "sys", self.root / "proc")

    def read(self, seconds_later: float = 5) -> dict[str, Reading]:
        self._now_ns += round(seconds_later * SECOND_NS)
        return {reading.gpu.pci_bus_id or "": reading for reading in self._reader.read().readings}

    def occupies(self, pid: int, gpu_id: int, units: int) -> None:
        rewrite(self.root / f"sys/class/kfd/kfd/proc/{pid}/stats_{gpu_id}/cu_occupancy", f"{units}\n")

    def set_table(self, address: str, **values: int | list[int]) -> None:
        set_table(card_directory(self.root, address), **values)


def busy_seconds(device: Reading | MigReading) -> dict[int, float]:
    """The contract with the ledger: the sum of `sm_ratio` times `covers_us`."""
    seconds: dict[int, float] = {}
    for sample in device.process_samples or ():
        seconds[sample.pid] = seconds.get(sample.pid, 0) + sample.sm_ratio * sample.covers_us / 1e6
    return seconds


def approx(seconds: Mapping[int, float]) -> object:
    return pytest.approx(seconds, abs=1e-6)


def test_the_only_process_is_busy_as_long_as_the_gpu_whatever_part_of_it_is_filled(tmp_path: Path) -> None:
    host = Host("mi300x", tmp_path)
    host.read()
    assert busy_seconds(host.read()[FIRST]) == approx({ALONE: 5}), "61 of 304 units are full, busy is 100 %"
    rewrite(card_directory(host.root, FIRST) / "gpu_busy_percent", "35\n")
    assert busy_seconds(host.read()[FIRST]) == approx({ALONE: 1.75})


def test_two_processes_have_the_gpus_busy_time_by_their_mean_occupancy(tmp_path: Path) -> None:
    host = Host("mi300x", tmp_path)
    host.read()
    for train, notebook in ((76, 38), (152, 0), (0, 38)):
        host.occupies(TRAIN, 51499, train)
        host.occupies(NOTEBOOK, 51499, notebook)
        host.sampler.sample()
    assert busy_seconds(host.read()[SECOND]) == approx({TRAIN: 2.25, NOTEBOOK: 0.75}), "228 to 76, of 60 %"


@pytest.mark.parametrize("version", ["6.10.5", "6.8.0-45-generic", "garbage"])
def test_memory_decides_where_the_kernel_reads_the_occupancy_of_one_die_only(
    tmp_path: Path, version: str, caplog: pytest.LogCaptureFixture
) -> None:
    host = Host("mi300x", tmp_path)
    rewrite(host.root / "sys/module/amdgpu/version", f"{version}\n")
    host.read()
    host.sampler.sample()
    busy = busy_seconds(host.read()[SECOND])
    host.read()
    assert sum(busy.values()) == pytest.approx(3)
    assert busy[TRAIN] / busy[NOTEBOOK] == pytest.approx(94371840000 / 92274688000)
    assert not host.sampler.watched
    assert [record.levelname for record in caplog.records if version in record.getMessage()] == ["WARNING"]


def test_memory_decides_until_the_occupancy_has_been_sampled(tmp_path: Path) -> None:
    host = Host("mi300x", tmp_path)
    host.read()
    busy = busy_seconds(host.read()[SECOND])
    assert busy[TRAIN] / busy[NOTEBOOK] == pytest.approx(94371840000 / 92274688000)


def test_the_firmwares_sum_covers_all_of_the_time_between_two_samples(tmp_path: Path) -> None:
    host = Host("mi300x", tmp_path)
    host.set_table(FIRST, accumulation_counter=1_000, gfx_activity_acc=30_000)
    host.read()
    host.set_table(FIRST, accumulation_counter=6_000, gfx_activity_acc=30_000 + 5_000 * 42)
    assert busy_seconds(host.read()[FIRST]) == approx({ALONE: 5 * 0.42}), "gpu_busy_percent is still 100"
    host.set_table(FIRST, accumulation_counter=0, gfx_activity_acc=7)
    assert busy_seconds(host.read()[FIRST]) == approx({ALONE: 5}), "the GPU was reset: gpu_busy_percent"


def test_a_partition_is_as_busy_as_its_own_dies(tmp_path: Path) -> None:
    host = Host("mi300x-cpx", tmp_path)
    host.set_table(FIRST, accumulation_counter=0, xcp0_gfx_busy_acc=[500], xcp5_gfx_busy_acc=[500])
    host.read()
    host.set_table(FIRST, accumulation_counter=100, xcp0_gfx_busy_acc=[9_500], xcp5_gfx_busy_acc=[500])
    parts = host.read()[FIRST].mig
    assert [part.graphics_active_ratio for part in parts] == [0.9, 0.1, 0.2, 0.3, 0.4, 0.0, 0.6, 0.7]
    assert [busy_seconds(part) for part in parts if part.processes] == [
        approx({30101: 4.5}),
        approx({30101: 0.5}),
        approx({30102: 0}),
    ]


def test_a_partition_is_as_busy_as_its_own_dies_also_where_the_table_has_dies_only(tmp_path: Path) -> None:
    """Version 1.9: smu_v13_0_6_get_gpu_metrics in the kernel's smu_v13_0_6_ppt.c."""
    host = Host("mi300x-cpx", tmp_path)
    busy = [0, 10, 20, 30, 40, 50, 60, 70]
    for cycles in (0, 100):
        table = build(
            (1, 9),
            accumulation_counter=cycles,
            gfx_busy_inst=busy,
            gfx_busy_acc=[500 + cycles * (90 if die == 0 else percent) for die, percent in enumerate(busy)],
        )
        rewrite(card_directory(host.root, FIRST) / "gpu_metrics", table)
        parts = host.read()[FIRST].mig
    assert [part.graphics_active_ratio for part in parts] == [0.9, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    assert [busy_seconds(part) for part in parts if part.processes] == [
        approx({30101: 4.5}),
        approx({30101: 0.5}),
        approx({30102: 2.5}),
    ]


def test_hip_beside_graphics_has_what_the_engines_do_not_show(tmp_path: Path) -> None:
    host = Host("rx7900xtx", tmp_path)
    card = card_directory(host.root, "0000:03:00.0")
    host.read()
    rewrite(card / "gpu_busy_percent", "80\n")
    for path in host.root.glob("proc/*/fdinfo/*"):
        text = path.read_text()
        if "81234567890 ns" in text:
            rewrite(path, text.replace("81234567890 ns", f"{81234567890 + SECOND_NS} ns"))
    assert busy_seconds(host.read()["0000:03:00.0"]) == approx({1530: 1, 4401: 3})


def test_occupancy_is_read_only_where_several_processes_have_queues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host("mi300x", tmp_path)
    real, opened = os.open, list[str]()

    def open_(path: str, *args: int, **kwargs: int) -> int:
        if str(path).startswith(str(host.root)):
            opened.append(str(path))
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", open_)
    host.read()
    assert not [path for path in opened if path.endswith("cu_occupancy")], (
        "a sample of the reader never waits for it"
    )
    host.sampler.sample()
    directory = host.root / "sys/class/kfd/kfd/proc"
    assert sorted(path for path in opened if path.endswith("cu_occupancy")) == [
        f"{directory}/{pid}/stats_51499/cu_occupancy" for pid in (TRAIN, NOTEBOOK)
    ]
