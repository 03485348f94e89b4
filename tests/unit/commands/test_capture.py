"""A capture reads like its host, and does not identify it."""

import io
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputally.commands.capture import capture
from gputally.devices import Report
from gputally.devices.amdgpu import AmdgpuReader
from gputally.model import Process, Reading
from tests.support.amd_trees import HOSTS, planted


def take(host: Path, target: Path) -> tuple[int, str]:
    out = io.StringIO()
    return capture(host / "sys", host / "proc", target, out), out.getvalue()


def read(host: Path) -> Report:
    return AmdgpuReader(host / "sys", host / "proc").read()


def nameless(processes: tuple[Process, ...] | None) -> tuple[Process, ...] | None:
    return None if processes is None else tuple(replace(process, name=None) for process in processes)


def anonymous(reading: Reading) -> Reading:
    """Without what a capture changes, and without the clock."""
    gpu = replace(reading.gpu, uuid="", serial=None, metered_by=reading.gpu.metered_by and "")
    mig = tuple(
        replace(
            part,
            instance=replace(part.instance, uuid="", parent_uuid=""),
            processes=nameless(part.processes),
            process_samples=None,
        )
        for part in reading.mig
    )
    return replace(reading, gpu=gpu, mig=mig, processes=nameless(reading.processes), process_samples=None)


def files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


@pytest.mark.parametrize("host", HOSTS)
def test_a_capture_gives_the_same_readings_as_the_host(tmp_path: Path, host: str) -> None:
    exit_code, said = take(planted(host), tmp_path / "capture")
    assert exit_code == 0
    original, copy = read(planted(host)), read(tmp_path / "capture")
    assert f"captured AMD GPUs: {len(original.readings)}, in " in said
    assert [anonymous(reading) for reading in copy.readings] == [
        anonymous(reading) for reading in original.readings
    ]
    assert copy.errors == original.errors
    assert len({reading.gpu.uuid for reading in copy.readings}) == len(copy.readings)


@pytest.mark.parametrize("host", HOSTS)
def test_ids_serial_numbers_and_names_are_removed(tmp_path: Path, host: str) -> None:
    take(planted(host), tmp_path / "capture")
    private: set[bytes] = set()
    for path in files(planted(host)):
        if path.name in ("unique_id", "serial_number"):
            private.add(path.read_bytes().strip())
        if path.name == "properties":
            private |= set(re.findall(rb"^(?:unique_id|hive_id) (\d{6,})$", path.read_bytes(), re.MULTILINE))
        if path.name == "stat":
            private |= set(re.findall(rb"\((.*)\)", path.read_bytes()))
    private -= {b"", b"systemd", b"systemd-logind"}
    assert private or host in ("apu", "vega-no-mem-busy")
    for path in files(tmp_path / "capture"):
        for word in private:
            assert word not in path.read_bytes(), path


def test_equal_values_stay_equal(tmp_path: Path) -> None:
    host = tmp_path / "host"
    write(host / "proc/10/stat", "10 (trainer) S " + " ".join(map(str, range(1, 50))))
    write(host / "proc/11/stat", "11 (trainer) S " + " ".join(map(str, range(1, 50))))
    write(host / "proc/12/stat", "12 (my (odd) name) R " + " ".join(map(str, range(1, 50))))
    write(host / "proc/13/stat", "13 (systemd-logind) S " + " ".join(map(str, range(1, 50))))
    for pid in (10, 11, 12, 13):
        (host / f"proc/{pid}/fd").mkdir()
        (host / f"proc/{pid}/fd/3").symlink_to("/dev/dri/renderD128")
        (host / f"proc/{pid}/fd/4").symlink_to("/home/me/secret")
        write(host / f"proc/{pid}/fdinfo/3", "pos:\t0\ndrm-driver:\tamdgpu\ndrm-client-name:\tsecret\n")
        write(host / f"proc/{pid}/fdinfo/4", "pos:\t77\n")
        write(host / f"proc/{pid}/cmdline", "secret")
        write(host / f"proc/{pid}/environ", "secret")
    add_card(host)
    exit_code, said = take(host, tmp_path / "capture")
    assert (exit_code, "have a GPU open: 4\n" in said) == (0, True)
    taken = tmp_path / "capture/proc"
    names = [(taken / f"{pid}/stat").read_text().split(" ", 1)[1].split(" S ")[0] for pid in (10, 11, 13)]
    assert names == ["(process-1)", "(process-1)", "(systemd-logind)"]
    assert (taken / "12/stat").read_text().startswith("12 (process-2) R 0 0 0 ")
    assert (taken / "10/stat").read_text().split()[21] == "19", "the start time"
    assert (taken / "10/fdinfo/3").read_text() == "pos:\t0\ndrm-driver:\tamdgpu\n"
    assert sorted(path.name for path in (taken / "10").rglob("*")) == ["3", "3", "fd", "fdinfo", "stat"]
    assert not any(
        "secret" in path.read_text() for path in files(tmp_path / "capture") if path.name != "gpu_metrics"
    )


def test_links_stay_relative_and_inside_the_capture(tmp_path: Path) -> None:
    host = tmp_path / "host"
    device = add_card(host)
    (device / "product_name").symlink_to("/etc/hostname")
    kfd = host / "sys/devices/virtual/kfd/kfd"
    write(kfd / "topology/nodes/1/properties", "location_id 768\nunique_id 1311768467463790320\n")
    write(kfd / "topology/nodes/1/gpu_id", "4711\n")
    (host / "sys/class/kfd").mkdir()
    (host / "sys/class/kfd/kfd").symlink_to(kfd)
    take(host, tmp_path / "capture")
    taken = tmp_path / "capture/sys"
    for link in (path for path in taken.rglob("*") if path.is_symlink()):
        assert not link.readlink().is_absolute(), link
        assert link.resolve().is_relative_to(taken), link
    assert not (taken / device.relative_to(host / "sys") / "product_name").exists()
    properties = (taken / "class/kfd/kfd/topology/nodes/1/properties").read_text()
    unique_id = (taken / device.relative_to(host / "sys") / "unique_id").read_text()
    assert properties == f"location_id 768\nunique_id {int(unique_id, 16)}\n", (
        "the same made-up id in both places"
    )


def test_a_file_that_cannot_be_read_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = tmp_path / "host"
    device = add_card(host)
    opened = Path.open

    def fail(self: Path, mode: str = "r", *others: Any, **more: Any) -> object:
        if self.name == "gpu_metrics":
            raise OSError(5, "Input/output error")
        return opened(self, mode, *others, **more)

    write(device / "gpu_metrics", "")
    monkeypatch.setattr(Path, "open", fail)
    exit_code, said = take(host, tmp_path / "capture")
    monkeypatch.undo()
    assert exit_code == 0
    assert "(unreadable.txt): 1\n" in said
    listed = (tmp_path / "capture/unreadable.txt").read_text()
    assert listed == "sys/devices/pci0000:00/0000:03:00.0/gpu_metrics\tEIO\n"


def test_a_non_empty_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    code, text = take(planted("mi210"), tmp_path)
    assert code == 2
    assert f"{tmp_path}" in text
    assert "not empty" in text
    assert take(planted("mi210"), tmp_path / "notes")[0] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]
    (tmp_path / "empty").mkdir()
    assert take(planted("mi210"), tmp_path / "empty")[0] == 0


def test_a_capture_lists_its_contents(tmp_path: Path) -> None:
    _, said = take(planted("mi210"), tmp_path / "capture")
    assert "0000:c1:00.0  AMD Instinct MI210" in said
    readme = (tmp_path / "capture/README.txt").read_text()
    for word in ("unique ids", "serial numbers", "names of processes", "command lines", "pids"):
        assert word in readme


def test_a_machine_without_an_amd_gpu(tmp_path: Path) -> None:
    out = io.StringIO()
    assert capture(Path("/sys"), Path("/proc"), tmp_path / "capture", out) == 1
    assert "no AMD GPU" in out.getvalue()
    assert not (tmp_path / "capture").exists()


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def add_card(host: Path) -> Path:
    """A card with few files; returns its directory."""
    device = host / "sys/devices/pci0000:00/0000:03:00.0"
    for name, text in {
        "vendor": "0x1002\n",
        "device": "0x740f\n",
        "uevent": "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:03:00.0\n",
        "unique_id": "123456789abcdef0\n",
        "gpu_busy_percent": "3\n",
    }.items():
        write(device / name, text)
    write(device / "drm/card0/dev", "226:0\n")
    (device / "drm/card0/device").symlink_to("../../../0000:03:00.0")
    (host / "sys/class/drm").mkdir(parents=True)
    (host / "sys/class/drm/card0").symlink_to("../../devices/pci0000:00/0000:03:00.0/drm/card0")
    return device
