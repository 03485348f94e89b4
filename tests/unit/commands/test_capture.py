"""A capture reads like its host, and does not identify it."""

import io
import re
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputally.commands.capture import capture
from gputally.commands.capture.archive import Archive
from gputally.commands.capture.masks import Masks
from gputally.commands.capture.nvidia_smi_output import mask_report, mask_table
from gputally.devices import Report
from gputally.devices.amdgpu import AmdgpuReader
from gputally.model import Process, Reading, Unavailable
from tests.support.amd_trees import HOSTS, planted
from tests.unit.devices.nvidia_smi.captures import CapturedNvidiaSmi


def no_nvml(masks: Masks, archive: Archive) -> list[str]:
    raise Unavailable("there is no NVIDIA GPU")


def take(host: Path, target: Path) -> tuple[int, str]:
    """Unpacks the capture below `target`."""
    out, packed = io.StringIO(), io.BytesIO()
    code = capture(host / "sys", host / "proc", "/nothing/nvidia-smi", packed, out, nvml=no_nvml)
    if code == 0:
        with tarfile.open(fileobj=io.BytesIO(packed.getvalue())) as archive:
            archive.extractall(target, filter="tar")
    return code, out.getvalue()


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


def test_a_file_that_exists_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    out = io.StringIO()
    assert capture(tmp_path, tmp_path, "nvidia-smi", tmp_path / "notes", out, nvml=no_nvml) == 2
    assert "exists" in out.getvalue()
    assert (tmp_path / "notes").read_text() == "mine"


def test_what_exceeds_the_limit_is_left_out_and_listed() -> None:
    archive = Archive(most_bytes=10)
    archive.add("small", b"12345")
    archive.add("large", b"123456")
    assert (archive.names, archive.left_out) == ({"small"}, ["large"])


UUID = "GPU-8a56a4bc-e184-a047-2620-be19fdb0913f"


def test_tables_of_nvidia_smi_lose_what_identifies() -> None:
    table = (
        "name, uuid, serial, pci.bus_id, pci.bus, pid, process_name, power.draw [W]\n"
        f"NVIDIA T4, {UUID}, 1650223000001, 00000000:1A:00.0, 0x1A, 4711, /home/me/a, b.py, 70.00 W\n"
        f"NVIDIA T4, {UUID}, [N/A], 00000000:1A:00.0, 0x1A, 4711, [Not Found], [N/A]\n"
    )
    masked = Masks("node-7").text(mask_table(table, Masks("node-7")))
    for word in (UUID, "1650223", "1A:00", "0x1A", "4711", "home", "b.py"):
        assert word not in masked
    assert masked.count("NVIDIA T4, GPU-00000001-0000-4000-8000-000000000000, ") == 2
    assert "process-1, 70.00 W\n" in masked
    assert masked.endswith("[Not Found], [N/A]\n")


def test_the_report_of_nvidia_smi_loses_what_identifies() -> None:
    report = (
        f'<gpu id="00000000:1A:00.0"><uuid>{UUID}</uuid><serial>1650223000001</serial><pid>4711</pid>'
        "<process_name>python a.py</process_name><product_name>NVIDIA T4</product_name>"
        "<board_id>0x1a00</board_id><vm_name>mine</vm_name><note>on node-7, card 1650223000001</note></gpu>"
    )
    masks = Masks("node-7")
    masked = masks.text(mask_report(report, masks))
    for word in (UUID, "1650223000001", "1A:00", "0x1a00", "4711", "python", "mine", "node-7"):
        assert word not in masked
    assert "<product_name>NVIDIA T4</product_name>" in masked
    assert "<note>on host, card serial-1</note>" in masked


def test_a_capture_lists_its_contents(tmp_path: Path) -> None:
    _, said = take(planted("mi210"), tmp_path / "capture")
    assert "0000:c1:00.0  AMD Instinct MI210" in said
    readme = (tmp_path / "capture/README.txt").read_text()
    for word in ("unique ids", "serial numbers", "names of processes", "command lines", "pids"):
        assert word in readme


def test_a_host_without_gpus_gives_no_file(tmp_path: Path) -> None:
    code, said = take(tmp_path, tmp_path / "capture")
    assert code == 1
    for part in ("AMD GPUs", "NVML", "nvidia-smi"):
        assert f"not captured: {part}: " in said
    assert not (tmp_path / "capture").exists()


def test_what_nvidia_smi_prints_is_captured(tmp_path: Path) -> None:
    tool = CapturedNvidiaSmi(tmp_path)
    tool.answer("-q", f"<gpu><uuid>{UUID}</uuid></gpu>")
    packed, out = io.BytesIO(), io.StringIO()
    nothing = tmp_path / "nothing"
    assert capture(nothing, nothing, tool.path, packed, out, nvml=no_nvml) == 0
    with tarfile.open(fileobj=io.BytesIO(packed.getvalue())) as archive:
        texts = {
            name: file.read().decode() for name in archive.getnames() if (file := archive.extractfile(name))
        }
    assert "exit code 0" in texts["nvidia-smi/version.txt"]
    assert (
        "temperature.gpu" in texts["nvidia-smi/query-gpu.csv"]
        or "exit code 2" in texts["nvidia-smi/query-gpu.csv"]
    )
    assert UUID not in texts["nvidia-smi/report.xml"]
    assert "nvidia-smi/query-compute-apps.csv" in texts


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
