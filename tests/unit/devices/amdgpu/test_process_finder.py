"""Processes of each card, from KFD and from the clients of the driver."""

import errno
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputally.devices.amdgpu.kfd import CardPart
from gputally.devices.amdgpu.process_finder import FoundProcesses, ProcessFinder
from gputally.model import Process, ProcessSample
from tests.support.amd_trees import planted
from tests.unit.devices.amdgpu.fake_host import (
    MIB,
    SECOND_NS,
    STARTED_AT_WALL_US,
    FakeHost,
    SteppedSampler,
    fdinfo,
    location_id,
)

CARD, OTHER = "0000:c1:00.0", "0000:c2:00.0"
GPU, OTHER_GPU = 41001, 41002
GIB = 1 << 30


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path)


@pytest.fixture
def rocm(host: FakeHost) -> FakeHost:
    """A host with two cards of 304 compute units."""
    host.node(0, 0)
    host.node(1, GPU, location_id(0xC1), drm_render_minor=128)
    host.node(2, OTHER_GPU, location_id(0xC2), drm_render_minor=129)
    host.starts(1, "systemd", started=1)
    return host


def found(finder: ProcessFinder, place: CardPart = (CARD, None)) -> FoundProcesses:
    return finder.find([CARD, OTHER])[place]


def sm(found: FoundProcesses, busy: float | None = None) -> dict[int, float]:
    """The samples if the GPU was busy for this share of the time."""
    samples = found.samples(busy)
    assert samples is not None
    return {sample.pid: sample.sm_ratio for sample in samples}


# KFD alone.


def test_compute_process_has_kfds_memory_and_the_busy_time_of_the_gpu(rocm: FakeHost) -> None:
    rocm.starts(4242, "vllm")
    rocm.computes(4242, GPU, vram=100 * GIB, occupied=76, queues=4)
    rocm.computes(4242, OTHER_GPU)
    finder = rocm.finder()
    assert found(finder).processes == (Process(4242, "compute", "vllm", 100 * GIB),)
    rocm.passes(5)
    assert found(finder).samples(0.25) == (
        ProcessSample(4242, STARTED_AT_WALL_US + 5_000_000, 0.25, None, 0.0, 0.0, covers_us=5_000_000),
    )
    other = found(finder, (OTHER, None))
    assert (other.processes, other.samples(None), other.render_minor) == ((), (), 129)
    assert finder.errors == {}


def test_the_first_sample_covers_no_time(rocm: FakeHost) -> None:
    rocm.starts(4242)
    rocm.computes(4242, GPU, vram=1, occupied=304, queues=1)
    (sample,) = found(rocm.finder()).samples(1.0) or ()
    assert (sample.sm_ratio, sample.covers_us) == (1.0, 0)


def test_a_process_outside_of_this_procfs_has_no_name(rocm: FakeHost) -> None:
    rocm.computes(4242, GPU, vram=5)
    assert found(rocm.finder()).processes == (Process(4242, "compute", None, 5),)


def test_hip_has_the_busy_time_that_the_engines_do_not_show(rocm: FakeHost) -> None:
    rocm.starts(10, "hip")
    rocm.computes(10, GPU, vram=GIB, queues=1)
    rocm.starts(11, "compositor")
    rocm.runs(11, 1, gfx=0)
    finder = rocm.finder()
    found(finder)
    rocm.passes(1)
    rocm.runs(11, 1, gfx=SECOND_NS // 2)
    both = found(finder)
    assert [process.pid for process in both.processes or ()] == [10, 11]
    assert sm(both, 0.875) == {10: 0.375, 11: 0.5}
    assert sm(both, 0.25) == {10: 0.0, 11: 0.5}, "the engines' counters are better than one moment"
    assert both.samples(None) is None, "how busy the GPU was is unknown"


def test_several_compute_processes_divide_the_busy_time_by_their_occupancy(rocm: FakeHost) -> None:
    for pid, occupied in ((10, 30), (11, 10), (12, 0)):
        rocm.starts(pid)
        rocm.computes(pid, GPU, vram=GIB, occupied=occupied, queues=1)
    finder = rocm.finder()
    found(finder)
    rocm.sampler.sample()
    rocm.sampler.sample()
    assert sm(found(finder), 0.5) == {10: 0.375, 11: 0.125, 12: 0.0}
    assert sm(found(finder), 0.5) == {10: 0.375, 11: 0.125, 12: 0.0}, (
        "the last occupancy, until there is more"
    )
    rocm.ends(12)
    rocm.ends(11)
    found(finder)
    rocm.sampler.sample()
    assert sm(found(finder), 0.5) == {10: 0.5}
    assert finder.errors == {}


def test_without_occupancy_several_divide_the_busy_time_by_memory_else_equally(rocm: FakeHost) -> None:
    for pid, vram in ((10, 3 * GIB), (11, GIB)):
        rocm.starts(pid)
        rocm.computes(pid, GPU, vram=vram, queues=1)
        rocm.computes(pid, OTHER_GPU, queues=1)
    finder = rocm.finder()
    found(finder)
    rocm.sampler.sample()
    assert sm(found(finder), 0.5) == {10: 0.375, 11: 0.125}
    assert sm(found(finder, (OTHER, None)), 0.5) == {10: 0.25, 11: 0.25}
    assert finder.errors == {}


def test_occupancy_that_cannot_be_read_is_counted(rocm: FakeHost) -> None:
    for pid in (10, 11):
        rocm.starts(pid)
        rocm.computes(pid, GPU, vram=GIB, queues=1)
    (rocm.kfd / f"proc/10/stats_{GPU}/cu_occupancy").mkdir()
    finder = rocm.finder()
    found(finder)
    rocm.sampler.sample()
    assert sm(found(finder), 0.5) == {10: 0.25, 11: 0.25}
    assert finder.errors == {("cu_occupancy", "eisdir"): 1}


def test_a_process_with_memory_but_without_a_queue_is_idle_on_any_card(host: FakeHost) -> None:
    host.node(1, GPU, location_id(0xC1))
    host.starts(10)
    host.computes(10, GPU, vram=GIB)
    assert sm(found(host.finder()), 1.0) == {10: 0.0}


# The driver's clients alone: an APU without ROCm.


def test_graphics_without_kfd(host: FakeHost) -> None:
    host.starts(10, "gnome-shell")
    host.runs(10, 1, gfx=7 * SECOND_NS)
    finder = host.finder()
    assert found(finder) == FoundProcesses((Process(10, "graphics", "gnome-shell", 2 * MIB),), None)
    host.passes(10)
    host.runs(
        10, 1, gfx=8 * SECOND_NS, compute=4 * SECOND_NS, dec=4 * SECOND_NS, jpeg=SECOND_NS, enc=3 * SECOND_NS
    )
    assert found(finder).samples(None) == (
        ProcessSample(10, STARTED_AT_WALL_US + 10_000_000, 0.5, None, 0.3, 0.5, covers_us=10_000_000),
    )


@pytest.mark.parametrize(
    ("engines", "kind"),
    [
        ({"gfx": 1}, "graphics"),
        ({"dec": 1}, "graphics"),
        ({"compute": 1}, "compute"),
        ({"compute": 1, "dma": 1}, "compute"),
        ({"compute": 1, "gfx": 1}, "graphics"),
        ({}, "graphics"),
    ],
)
def test_the_kind_of_a_process_follows_from_its_engines(
    host: FakeHost, engines: dict[str, int], kind: str
) -> None:
    host.starts(10)
    host.runs(10, 1, **engines)
    assert [process.kind for process in found(host.finder()).processes or ()] == [kind]


def test_an_open_device_alone_does_not_make_a_process_of_the_card(host: FakeHost) -> None:
    host.starts(10)
    host.opens(10, 3, fdinfo(1, drm_memory_vram="0 KiB", drm_engine_gfx="0 ns"))
    alone = found(host.finder())
    assert (alone.processes, alone.samples(None)) == ((), ())


def test_clients_of_a_process_are_summed_without_duplicates(host: FakeHost) -> None:
    host.starts(10, started=50)
    host.starts(11, started=60)
    for pid, number, client in ((10, 3, 1), (10, 4, 1), (10, 5, 2), (11, 3, 1)):
        host.opens(pid, number, fdinfo(client, drm_memory_vram="3 MiB", drm_engine_gfx="0 ns"))
    finder = host.finder()
    assert found(finder).processes == (Process(10, "graphics", "python3", 6 * MIB),)
    host.passes(1)
    for pid, number, client in ((10, 3, 1), (10, 4, 1), (10, 5, 2), (11, 3, 1)):
        host.opens(
            pid, number, fdinfo(client, drm_memory_vram="3 MiB", drm_engine_gfx=f"{SECOND_NS // 4} ns")
        )
    assert sm(found(finder)) == {10: 0.5}


def test_an_engine_with_two_units_is_full_after_twice_the_time(host: FakeHost) -> None:
    host.starts(10)
    host.opens(10, 3, fdinfo(1, drm_engine_dec="1 ns", drm_engine_capacity_dec="2"))
    finder = host.finder()
    found(finder)
    host.passes(1)
    host.opens(10, 3, fdinfo(1, drm_engine_dec=f"{SECOND_NS + 1} ns", drm_engine_capacity_dec="2"))
    (sample,) = found(finder).samples(None) or ()
    assert sample.decoder_ratio == 0.5


def test_clients_of_other_cards_are_omitted(host: FakeHost) -> None:
    host.starts(10)
    host.runs(10, 1, "0000:99:00.0", gfx=5)
    assert found(host.finder()).processes == ()


def test_a_new_process_counts_from_its_start(host: FakeHost) -> None:
    host.starts(10)
    finder = host.finder()
    found(finder)
    host.passes(2)
    host.starts(11)
    host.runs(11, 1, gfx=SECOND_NS)
    assert sm(found(finder)) == {11: 0.5}


def test_a_new_process_with_an_old_pid_starts_a_new_count(host: FakeHost) -> None:
    host.starts(10, started=100)
    host.runs(10, 1, gfx=50 * SECOND_NS)
    finder = host.finder()
    found(finder)
    host.passes(2)
    host.starts(10, "other", started=900)
    host.runs(10, 1, gfx=SECOND_NS)
    assert sm(found(finder)) == {10: 0.5}
    host.passes(2)
    host.runs(10, 1, gfx=2 * SECOND_NS)
    assert sm(found(finder)) == {10: 0.5}


def test_two_samples_at_the_same_time_have_no_utilisation(host: FakeHost) -> None:
    host.starts(10)
    host.runs(10, 1, gfx=5)
    finder = host.finder()
    found(finder)
    assert found(finder).samples(1.0) is None


# Both.


def test_a_process_with_compute_and_graphics_is_one_process(rocm: FakeHost) -> None:
    rocm.starts(10, "blender")
    rocm.computes(10, GPU, vram=3 * GIB, occupied=152, queues=1)
    rocm.runs(10, 1, gfx=0)
    finder = rocm.finder()
    found(finder)
    rocm.passes(1)
    rocm.opens(10, 41, fdinfo(1, drm_memory_vram="4096 MiB", drm_engine_gfx=f"{SECOND_NS // 4} ns"))
    both = found(finder)
    assert both.processes == (Process(10, "compute+graphics", "blender", 4 * GIB),)
    assert sm(both, 0.5) == {10: 0.5}
    rocm.computes(10, GPU, vram=5 * GIB, occupied=0, queues=1)
    rocm.passes(1)
    rocm.opens(10, 41, fdinfo(1, drm_memory_vram="4096 MiB", drm_engine_gfx=f"{SECOND_NS} ns"))
    both = found(finder)
    assert [process.memory_used_bytes for process in both.processes or ()] == [5 * GIB]
    assert sm(both, 0.5) == {10: 0.75}


def test_memory_is_the_larger_of_both_sources(rocm: FakeHost) -> None:
    rocm.starts(10)
    rocm.computes(10, GPU, vram=GIB, queues=1)
    rocm.opens(10, 3, fdinfo(1, drm_memory_vram="2048 MiB"))
    assert [process.memory_used_bytes for process in found(rocm.finder()).processes or ()] == [2 * GIB]


def test_devices_that_rocm_opens_on_every_card_are_ignored(rocm: FakeHost) -> None:
    rocm.starts(10)
    rocm.computes(10, GPU, vram=GIB, occupied=1, queues=1)
    rocm.computes(10, OTHER_GPU)
    rocm.runs(10, 1, CARD)
    rocm.runs(10, 2, OTHER)
    finder = rocm.finder()
    assert [process.pid for process in found(finder).processes or ()] == [10]
    assert found(finder, (OTHER, None)).processes == ()
    rocm.runs(10, 2, OTHER, gfx=1)
    assert [process.kind for process in found(finder, (OTHER, None)).processes or ()] == ["graphics"]


def test_a_compute_process_is_recognised_if_kfd_does_not_name_its_card(host: FakeHost) -> None:
    host.starts(10)
    host.computes(10, GPU, vram=GIB, queues=1)
    host.runs(10, 1)
    assert found(host.finder()).processes == (Process(10, "compute", "python3", 2 * MIB),)


def test_late_client_of_a_compute_process_does_not_hide_its_busy_time(rocm: FakeHost) -> None:
    rocm.starts(10)
    rocm.computes(10, GPU, vram=GIB, occupied=76, queues=1)
    rocm.runs(10, 1, gfx=5)
    assert sm(found(rocm.finder()), 0.25) == {10: 0.25}


# More than there was time.


def test_the_sum_of_all_processes_never_exceeds_the_time(host: FakeHost) -> None:
    for pid in (10, 11):
        host.starts(pid)
        host.runs(pid, pid, gfx=0, compute=0)
    finder = host.finder()
    found(finder)
    host.passes(1)
    host.runs(10, 10, gfx=SECOND_NS, compute=SECOND_NS // 2)
    host.runs(11, 11, gfx=SECOND_NS // 2, compute=0)
    assert sm(found(finder)) == {10: 0.75, 11: 0.25}
    assert finder.errors == {("process_samples", "clamped"): 1}


@settings(max_examples=25)
@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(0, 3 * SECOND_NS), st.integers(0, 3 * SECOND_NS), st.integers(0, 400)),
            min_size=3,
            max_size=3,
        ),
        max_size=4,
    ),
    st.floats(0, 1),
)
def test_any_counter_history_gives_plausible_utilisation(
    tmp_path_factory: pytest.TempPathFactory, looks: list[list[tuple[int, int, int]]], busy: float
) -> None:
    host = FakeHost(tmp_path_factory.mktemp("host"))
    host.node(1, GPU, location_id(0xC1))
    for pid in (10, 11, 12):
        host.starts(pid)
        host.runs(pid, pid, gfx=1)
    for pid in (11, 12):
        host.computes(pid, GPU, vram=1, occupied=0, queues=1)
    finder = host.finder()
    found(finder)
    for look in looks:
        host.passes(1)
        for pid, (gfx, dec, occupied) in zip((10, 11, 12), look, strict=True):
            host.runs(pid, pid, gfx=gfx, dec=dec)
            if pid != 10:
                host.computes(pid, GPU, vram=1, occupied=occupied, queues=1)
        host.sampler.sample()
        samples = found(finder).samples(busy)
        assert samples is not None
        assert sum(sample.sm_ratio for sample in samples) >= busy - 1e-9
        for ratios in zip(*((s.sm_ratio, s.encoder_ratio, s.decoder_ratio) for s in samples), strict=True):
            assert all(0 <= ratio <= 1 for ratio in ratios)
            assert sum(ratios) <= 1 + 1e-9


# Partitions.


@pytest.fixture
def cpx(host: FakeHost) -> FakeHost:
    """One card in four partitions of 38 compute units."""
    for part in range(4):
        host.node(
            4 + part,
            GPU + part,
            location_id(0xC1) | part << 28,
            drm_render_minor=128 + part,
            simd_count=152,
        )
    host.starts(1, "systemd", started=1)
    return host


def test_each_partition_has_its_processes_and_the_card_has_all(cpx: FakeHost) -> None:
    cpx.starts(10, "one")
    cpx.starts(11, "two")
    cpx.computes(10, GPU, vram=1 * GIB, occupied=38, queues=1)
    cpx.computes(10, GPU + 2, vram=2 * GIB, occupied=19, queues=1)
    cpx.computes(11, GPU + 2, vram=4 * GIB, occupied=0, queues=1)
    finder = cpx.finder()
    looked = finder.find([CARD])
    assert list(looked) == [(CARD, None), (CARD, 0), (CARD, 1), (CARD, 2), (CARD, 3)]
    assert looked[CARD, 0].processes == (Process(10, "compute", "one", 1 * GIB, 0, 0),)
    assert looked[CARD, 1].processes == ()
    assert looked[CARD, 2].processes == (
        Process(10, "compute", "one", 2 * GIB, 2, 0),
        Process(11, "compute", "two", 4 * GIB, 2, 0),
    )
    assert looked[CARD, None].processes == (
        Process(10, "compute", "one", 3 * GIB),
        Process(11, "compute", "two", 4 * GIB),
    )
    assert sm(looked[CARD, 0], 0.5) == {10: 0.5}
    assert looked[CARD, None].samples(1.0) is None, "the partitions have them"
    cpx.sampler.sample()
    assert sm(finder.find([CARD])[CARD, 2], 0.5) == {10: 0.5, 11: 0.0}


def test_use_that_is_unknown_on_one_partition_is_known_on_the_others(cpx: FakeHost) -> None:
    cpx.starts(11)
    cpx.opens(11, 3, fdinfo(1, drm_engine_compute="5 ns"), "/dev/dri/renderD129")
    looked = cpx.finder().find([CARD])
    assert [looked[CARD, part].samples(0.5) is None for part in (0, 1)] == [False, True]


def test_a_client_of_a_partition_is_recognised_by_its_render_device(cpx: FakeHost) -> None:
    def runs(ns: int) -> None:
        cpx.opens(10, 3, fdinfo(1, drm_engine_compute=f"{ns} ns"), "/dev/dri/renderD129")
        cpx.opens(11, 3, fdinfo(2, drm_engine_compute=f"{ns} ns"), "/dev/dri/card1")

    cpx.starts(10)
    cpx.starts(11)
    runs(1)
    finder = cpx.finder()
    finder.find([CARD])
    cpx.passes(1)
    runs(SECOND_NS // 2 + 1)
    looked = finder.find([CARD])
    assert sm(looked[CARD, 1]) == {10: 0.5}
    assert [process.pid for process in looked[CARD, None].processes or ()] == [10, 11]
    assert looked[CARD, 0].processes == ()


# What cannot be read.


def test_unreadable_sources_do_not_mean_that_there_is_no_process(tmp_path: Path) -> None:
    finder = ProcessFinder(tmp_path / "sys", tmp_path / "proc")
    assert finder.find([CARD]) == {(CARD, None): FoundProcesses(None, None)}
    assert finder.find([]) == {}
    assert finder.errors == {}


def test_nodes_without_a_process_list_do_not_mean_that_there_is_no_process(host: FakeHost) -> None:
    host.node(1, GPU, location_id(0xC1))
    (host.kfd / "proc").rmdir()
    assert found(host.finder()) == FoundProcesses(None, None)


def test_compute_on_a_card_that_kfd_hides_is_not_reported_as_idle(
    rocm: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    rocm.starts(10, "vllm")
    rocm.starts(11, "blender")
    rocm.computes(10, GPU, vram=GIB, occupied=76, queues=1)
    rocm.opens(10, 41, fdinfo(1, drm_memory_vram="4096 MiB"))
    rocm.runs(11, 2, gfx=0)
    real = os.open

    def open_(path: str, *args: int, **kwargs: int) -> int:
        if str(path).endswith("/gpu_id"):
            raise PermissionError(errno.EPERM, "hidden", path)
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", open_)
    finder = rocm.finder()
    found(finder)
    rocm.passes(5)
    hidden = found(finder)
    assert [process.pid for process in hidden.processes or ()] == [10, 11]
    assert hidden.samples(1.0) is None
    rocm.ends(10)
    rocm.passes(5)
    assert [sample.pid for sample in found(finder).samples(1.0) or ()] == [11]


def test_an_empty_list_means_that_there_is_no_process(rocm: FakeHost) -> None:
    nobody = found(rocm.finder())
    assert (nobody.processes, nobody.samples(None), nobody.render_minor) == ((), (), 128)


def deny_files(monkeypatch: pytest.MonkeyPatch, procfs: Path) -> None:
    """Of all processes but the first."""
    real = os.open

    def open_(path: str, *args: int, **kwargs: int) -> int:
        if (
            str(path).startswith(f"{procfs}/")
            and str(path).endswith("/fd")
            and not str(path).endswith("/1/fd")
        ):
            raise PermissionError(errno.EACCES, "denied", path)
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", open_)


def test_without_permission_kfd_still_lists_processes(
    rocm: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    rocm.starts(10, "hip")
    rocm.computes(10, GPU, vram=GIB, occupied=76, queues=1)
    rocm.runs(10, 1, gfx=5)
    deny_files(monkeypatch, rocm.procfs)
    finder = rocm.finder()
    seen = found(finder)
    assert seen.processes == (Process(10, "compute", "hip", GIB),)
    assert sm(seen, 0.25) == {10: 0.25}
    assert finder.errors == {("fdinfo", "permission"): 1}
    found(finder)
    assert finder.errors == {("fdinfo", "permission"): 2}


def test_without_permission_and_without_kfd_processes_are_unknown(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.starts(1, "systemd")
    host.starts(10)
    host.runs(10, 1, gfx=5)
    deny_files(monkeypatch, host.procfs)
    assert found(host.finder()) == FoundProcesses(None, None)


def test_any_read_may_fail_at_any_time(rocm: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    rocm.starts(10)
    rocm.computes(10, GPU, vram=GIB, occupied=76, queues=1)
    rocm.runs(10, 1, gfx=5)
    finder = rocm.finder()
    names = ("open", "read", "listdir", "scandir", "readlink")
    for name in names:
        for code in (errno.EIO, errno.EACCES, errno.ENOENT, errno.ENODEV, errno.ESRCH, errno.EBUSY):

            def fails(*_: object, code: int = code, **__: object) -> None:
                raise OSError(code, os.strerror(code))

            with monkeypatch.context() as patch:
                patch.setattr(os, name, fails)
                rocm.passes(1)
                found(finder)
    rocm.passes(1)
    assert [process.pid for process in found(finder).processes or ()] == [10]
    assert finder.errors["fdinfo", "eio"] > 0
    assert finder.errors["kfd", "ebusy"] > 0


# Whole hosts.


def look_at(name: str, *addresses: str) -> Mapping[CardPart, FoundProcesses]:
    host = planted(name)
    finder = ProcessFinder(host / "sys", host / "proc", occupancy=SteppedSampler())
    return finder.find(addresses)


def test_mi300x() -> None:
    looked = look_at("mi300x", "0000:05:00.0", "0000:27:00.0")
    first, second = looked["0000:05:00.0", None], looked["0000:27:00.0", None]
    assert first.processes == (Process(20101, "compute", "VLLM::Worker_TP", 188743680000),)
    assert second.processes == (
        Process(20102, "compute", "python3", 94371840000),
        Process(20103, "compute", "python3", 92274688000),
    )


def test_mi300x_in_partitions() -> None:
    address = "0000:05:00.0"
    looked = look_at("mi300x-cpx", address)
    assert {part: [p.pid for p in one.processes or ()] for (_, part), one in looked.items()} == {
        None: [30101, 30102],
        0: [30101],
        1: [30101],
        5: [30102],
        2: [],
        3: [],
        4: [],
        6: [],
        7: [],
    }
    assert [p.memory_used_bytes for p in looked[address, None].processes or ()] == [24 * GIB, 20 * GIB]
    assert sm(looked[address, 5], 0.5) == {30102: 0.5}


@pytest.mark.parametrize(
    ("name", "address", "pid"),
    [("mi250", "0000:29:00.0", 5150), ("mi250", "0000:2c:00.0", 5150), ("mi210", "0000:c1:00.0", 7001)],
)
def test_older_accelerators(name: str, address: str, pid: int) -> None:
    assert sm(look_at(name, address)[address, None], 0.75) == {pid: 0.75}


def test_desktop_card() -> None:
    found = look_at("rx7900xtx", "0000:03:00.0")["0000:03:00.0", None]
    assert found.processes == (
        Process(1530, "graphics", "gnome-shell", 310 * MIB),
        Process(4401, "compute", "ollama", 400 * MIB),
    )
    assert found.samples(1.0) is None, "the time of the compositor is unknown at the first sample"


def test_apu() -> None:
    found = look_at("apu", "0000:64:00.0")["0000:64:00.0", None]
    assert found.processes == (
        Process(1201, "graphics", "gnome-shell", 256 * MIB),
        Process(2304, "graphics", "RDD Process", 64 * MIB),
        Process(2305, "graphics", "firefox", 128 * MIB),
    )
