"""The reader as a whole: all cards of a host, and that it goes on when some of them do not."""

import errno
import logging
import random
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gputally.devices import Report
from gputally.devices.amdgpu import AmdgpuReader, files
from gputally.devices.plausible import drop_implausible
from gputally.model import Unavailable
from tests.support.amd_trees import plant, planted
from tests.unit.devices.amdgpu.trees import device, fail_files

ALL_TREES = ("apu", "card10", "mi210", "mi250", "mi300x", "mi300x-cpx", "rx7900xtx", "vega-no-mem-busy")
CODES = (errno.EIO, errno.EBUSY, errno.EINVAL, errno.ETIMEDOUT, errno.EPERM, errno.EACCES, errno.ENODEV)


def reader_of(tree: Path, *, pcie_throughput: bool = False) -> AmdgpuReader:
    return AmdgpuReader(tree / "sys", tree / "proc", pcie_throughput=pcie_throughput)


def add_kfd(tree: Path, locations: Sequence[int], processes: Mapping[int, int]) -> None:
    """Nothing but a node of KFD for each `location_id`, and by pid the node that a process has a queue on."""
    kfd = tree / "sys/class/kfd/kfd"
    for directory in (kfd, tree / "proc"):
        shutil.rmtree(directory, ignore_errors=True)
    for number, location in enumerate(locations):
        node = kfd / f"topology/nodes/{number}"
        node.mkdir(parents=True)
        (node / "gpu_id").write_text(f"{41000 + number}\n")
        (node / "properties").write_text(f"simd_count 152\nsimd_per_cu 4\nlocation_id {location}\ndomain 0\n")
    for pid, number in processes.items():
        (kfd / f"proc/{pid}/queues/0").mkdir(parents=True)
        (kfd / f"proc/{pid}/queues/0/gpuid").write_text(f"{41000 + number}\n")
        (kfd / f"proc/{pid}/vram_{41000 + number}").write_text("1048576\n")


def ups(report: Report) -> list[tuple[int, str, bool]]:
    return [(reading.gpu.index, reading.gpu.uuid, reading.up) for reading in report.readings]


@pytest.mark.parametrize(
    ("tree", "gpus"),
    [
        ("apu", [(0, "GPU-0000:64:00.0", True)]),
        ("card10", [(0, "GPU-946d7e1ef9b172dd", True), (1, "GPU-5d2c8e7a90b1f346", True)]),
        ("mi250", [(0, "GPU-1f9de0957d137942", True), (1, "GPU-8a31c2f70e5bd964", True)]),
        ("mi300x", [(0, "GPU-e3aa140f9a5f9e31", True), (1, "GPU-2250f807caf2231a", True)]),
    ],
)
def test_the_gpus_of_a_host(tree: str, gpus: list[tuple[int, str, bool]]) -> None:
    reader = reader_of(planted(tree))
    assert reader.name == "amdgpu"
    assert ups(reader.read()) == gpus
    assert ups(reader.read()) == gpus
    reader.close()


def test_a_reading_has_the_identity_of_its_card_and_its_driver() -> None:
    (primary, secondary) = reader_of(planted("mi250")).read().readings
    assert (primary.power_watts, secondary.power_watts) == (89.0, None)
    assert primary.gpu.driver_version == "6.8.5"
    assert secondary.gpu.pci_bus_id == "0000:2c:00.0"


def test_throughput_is_read_only_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    field = "pcie_throughput_bytes_per_second"
    report = reader_of(planted("mi250"), pcie_throughput=True).read()
    assert [getattr(reading, field) for reading in report.readings] == [
        {("rx",): 469504, ("tx",): 5302016}
    ] * 2
    fail_files(monkeypatch, errno.EIO, lambda path: path.name == "pcie_bw")
    report = reader_of(planted("mi250")).read()
    assert [getattr(reading, field) for reading in report.readings] == [None, None]
    assert not report.errors
    assert reader_of(planted("mi250"), pcie_throughput=True).read().errors == {(field, "eio"): 2}


def test_processes_are_listed_on_their_card(tmp_path: Path) -> None:
    tree = plant("mi250", tmp_path)
    add_kfd(tree, [0x2900, 0x2C00], {4711: 0, 4712: 1})
    report = reader_of(tree).read()
    pids = [[process.pid for process in reading.processes or ()] for reading in report.readings]
    assert pids == [[4711], [4712]]


def test_partitions_and_their_processes(tmp_path: Path) -> None:
    tree = plant("mi300x-cpx", tmp_path)
    add_kfd(tree, range(0x500, 0x508), {4711: 3})
    (reading,) = reader_of(tree).read().readings
    assert [part.instance.gpu_instance_id for part in reading.mig] == list(range(8))
    assert {part.instance.profile for part in reading.mig} == {"CPX/NPS4"}
    assert [part.instance.gpu_instance_id for part in reading.mig if part.processes] == [3]
    (process,) = reading.processes or ()
    assert (process.pid, process.kind, process.memory_used_bytes) == (4711, "compute", 1048576)


def test_partitions_have_the_names_of_their_devices() -> None:
    (reading,) = reader_of(planted("mi300x-cpx")).read().readings
    assert [(part.instance.device_name, part.instance.minor_number) for part in reading.mig] == [
        ("0000:05:00.0", 1),
        *((f"amdgpu_xcp_{number}", number + 1) for number in range(1, 8)),
    ]


def test_errors_of_processes_are_counted(tmp_path: Path) -> None:
    tree = plant("mi210", tmp_path)
    add_kfd(tree, [], {})
    (tree / "sys/class/kfd/kfd/topology/nodes/1/gpu_id").mkdir(parents=True)
    assert reader_of(tree).read().errors == {("kfd", "eisdir"): 1}


def test_without_a_gpu_the_reader_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no AMD GPU"):
        reader_of(tmp_path).read()


def test_a_gpu_keeps_its_index_when_another_disappears_and_returns(tmp_path: Path) -> None:
    tree = plant("card10", tmp_path)
    first, second = "GPU-946d7e1ef9b172dd", "GPU-5d2c8e7a90b1f346"
    directory = device(tree, 2)
    reader = reader_of(tree)
    assert ups(reader.read()) == [(0, first, True), (1, second, True)]
    directory.rename(tmp_path / "gone")
    assert ups(reader.read()) == [(1, second, True)]
    (tmp_path / "gone").rename(directory)
    assert ups(reader.read()) == [(0, first, True), (1, second, True)]


def test_one_failing_card_does_not_affect_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    reader = reader_of(planted("mi300x"))
    first, second = "GPU-e3aa140f9a5f9e31", "GPU-2250f807caf2231a"
    healthy = [(0, first, True), (1, second, True)]
    assert ups(reader.read()) == healthy
    known = {"vendor", "device", "uevent", "product_name", "serial_number", "vbios_version", "unique_id"}
    with monkeypatch.context() as patch:
        fail_files(patch, errno.EIO, lambda path: "0000:05:00.0" in path.parts and path.name not in known)
        assert ups(reader.read()) == [(0, first, False), (1, second, True)]
        reader.read()
    report = reader.read()
    assert ups(report) == healthy
    assert report.errors["gpu_utilization_ratio", "eio"] == 2
    assert [record.getMessage() for record in caplog.records] == [
        "GPU 0000:05:00.0 is lost",
        "GPU 0000:05:00.0 is back",
    ]


def test_a_card_in_reset_keeps_its_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = reader_of(planted("mi210"))
    uuid = "GPU-4c7b1d52e60893af"
    assert ups(reader.read()) == [(0, uuid, True)]
    quiet = {"vendor", "device", "uevent"}
    with monkeypatch.context() as patch:
        fail_files(patch, errno.EPERM, lambda path: path.name not in quiet)
        assert ups(reader.read()) == [(0, uuid, False)]
    assert ups(reader.read()) == [(0, uuid, True)]


def test_a_card_without_identity_has_no_name_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = reader_of(planted("mi210"))
    with monkeypatch.context() as patch:
        fail_files(patch, errno.EPERM, lambda path: path.name == "unique_id")
        (reading,) = reader.read().readings
        assert (reading.gpu.uuid, reading.up, reading.power_watts) == ("", False, None)
        assert reading.gpu.pci_bus_id == "0000:c1:00.0"
    assert ups(reader.read()) == [(0, "GPU-4c7b1d52e60893af", True)]


def test_another_card_in_the_same_slot_is_another_gpu(tmp_path: Path) -> None:
    tree = plant("mi210", tmp_path)
    reader = reader_of(tree)
    reader.read()
    (device(tree, 0) / "unique_id").write_text("00000000deadbeef\n")
    assert ups(reader.read()) == [(0, "GPU-00000000deadbeef", True)]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(ALL_TREES), st.integers(0, 2**32), st.sampled_from([0.02, 0.3, 0.9]))
def test_any_file_error_gives_a_valid_report(
    monkeypatch: pytest.MonkeyPatch, tree: str, seed: int, spoiled: float
) -> None:
    chance = random.Random(seed)
    read = files.read_file

    def misbehave(path: str) -> bytes:
        if chance.random() >= spoiled:
            return read(path)
        kind = chance.randrange(4)
        if kind == 0:
            raise FileNotFoundError(errno.ENOENT, "gone", path)
        if kind == 1:
            return chance.randbytes(chance.randrange(200))
        if kind == 2:
            return read(path)[: chance.randrange(4)]
        raise OSError(chance.choice(CODES), "broken", path)

    reader = reader_of(planted(tree), pcie_throughput=True)
    with monkeypatch.context() as patch:
        patch.setattr(files, "read_file", misbehave)
        before: dict[tuple[str, str], int] = {}
        for _ in range(2):
            try:
                report = reader.read()
            except Unavailable:
                continue
            assert all(report.errors[key] >= count for key, count in before.items())
            before = dict(report.errors)
            for reading in report.readings:
                drop_implausible(reading)
    report = reader.read()
    assert report.readings
    assert all(reading.up for reading in report.readings)
