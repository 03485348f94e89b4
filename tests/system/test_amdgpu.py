"""The exporter on hosts with AMD GPUs, as the kernel shows them in /sys and /proc."""

import gzip
import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.support.amd_trees import plant
from tests.support.exporter import Exporter, Samples, parse_samples
from tests.support.texts import missing
from tools.servers.ports import free_port

MIB = 1 << 20


def roots(tree: Path) -> tuple[str, ...]:
    return ("--sysfs", str(tree / "sys"), "--procfs", str(tree / "proc"))


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gputally", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def eight_mi300x(directory: Path) -> Path:
    """The two cards of the fixture, and six more like the first, each busy to another degree."""
    tree = plant("mi300x", directory)
    first = tree / "sys/devices/pci0000:00/0000:05:00.0"
    for number in range(2, 8):
        address, card, render = (
            f"0000:{0x30 + number:02x}:00.0",
            f"card{20 + number}",
            f"renderD{150 + number}",
        )
        copy = first.parent / address
        shutil.copytree(first, copy, symlinks=True)
        (copy / "drm/card1").rename(copy / "drm" / card)
        (copy / "drm/renderD128").rename(copy / "drm" / render)
        (copy / "uevent").write_text((copy / "uevent").read_text().replace("0000:05:00.0", address))
        (copy / "unique_id").write_text(f"{0xCAB0 + number:016x}\n")
        (copy / "gpu_busy_percent").write_text(f"{10 * number}\n")
        (tree / "sys/bus/pci/devices" / address).symlink_to(f"../../../devices/pci0000:00/{address}")
        for node in (card, render):
            (tree / "sys/class/drm" / node).symlink_to(f"../../devices/pci0000:00/{address}/drm/{node}")
    return tree


def first_sample(exporter: Exporter) -> Samples:
    exporter.wait_until(lambda: exporter.get("/readyz")[0] == 200, "the first sample is done")
    return exporter.samples()


def test_eight_gpus_with_the_flags_of_another_amd_exporter(tmp_path: Path) -> None:
    tree = eight_mi300x(tmp_path)
    port = str(free_port())
    settings = {
        "EXPORTER_PORT": port,
        "COLLECTION_INTERVAL": "30",
        "LOG_LEVEL": "INFO",
        "METRICS_PATH": "/metrics",
    }
    arguments = ("serve", "--reader", "amdgpu", *roots(tree))
    with Exporter(tmp_path / "log", *arguments, environment=settings) as exporter:
        samples = first_sample(exporter)
        body = gzip.compress(exporter.scrape().encode())
        log = exporter.log.read_text()
    assert exporter.address.endswith(f":{port}")
    assert missing(log, "reader amdgpu,", "30 s") == []
    assert "INFO" in log
    assert "DEBUG" not in log
    gpus = samples["gputally_gpu_up"].keys()
    assert [gpu for gpu, _ in gpus] == [str(index) for index in range(8)]
    utilisation = samples["gputally_gpu_utilization_ratio"]
    assert [round(100 * utilisation[gpu]) for gpu in gpus] == [100, 60, 20, 30, 40, 50, 60, 70]
    used, total = samples["gputally_gpu_memory_used_bytes"], samples["gputally_gpu_memory_total_bytes"]
    assert all(0 < 100 * used[gpu] / total[gpu] < 100 for gpu in gpus)
    assert all(100 < samples["gputally_gpu_power_watts"][gpu] < 750 for gpu in gpus)
    (memory,) = samples["process_resident_memory_bytes"].values()
    assert memory < 256 * MIB
    assert len(body) / 30 < 1000, "about one kilobyte a second, at a scrape every 30 s"


def test_amd_gpus_are_detected_without_a_flag(tmp_path: Path) -> None:
    tree = plant("mi300x", tmp_path)
    arguments = ("serve", "--interval", "200ms", *roots(tree))
    with Exporter(tmp_path / "log", *arguments) as exporter:
        samples = first_sample(exporter)
        exporter.next_snapshots()
        snapshot = json.loads(exporter.get("/api/v1/snapshot")[1])
        log = exporter.log.read_text()
    up = samples["gputally_source_up"]
    assert up[("amdgpu",)] == 1
    assert ("nvml",) not in up
    assert ("rocm-smi",) not in up
    assert missing(log, "reader amdgpu else rocm-smi", "0.2 s", "0 NVIDIA GPUs", "2 AMD GPUs") == []
    assert "WARNING" not in log
    assert snapshot["summary"] == "2 GPUs up"


def test_partitions_are_distinguished(tmp_path: Path) -> None:
    tree = plant("mi300x-cpx", tmp_path)
    with Exporter(tmp_path / "log", "serve", "--interval", "200ms", *roots(tree)) as exporter:
        first_sample(exporter)
        exporter.next_snapshots()
        samples = exporter.samples()
    assert len(samples["gputally_mig_info"]) == 8
    busy = samples["gputally_gpu_unattributed_sm_utilization_ratio"]
    assert {labels[1].rpartition("-")[2]: value for labels, value in busy.items()} == {
        "0": 0.0,
        "1": 0.1,
        "5": 0.5,
    }


@pytest.mark.parametrize("arguments", [(), ("--reader", "amdgpu")])
def test_check_reports_what_can_be_read(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    tree = plant("mi210", tmp_path)
    result = run("check", "--json", *arguments, *roots(tree))
    report = json.loads(result.stdout)
    assert (result.returncode, report["ok"]) == (0, True)
    assert {"level": "ok", "subject": "amdgpu gpu 0"}.items() <= report["findings"][3].items()
    assert "NVIDIA" not in result.stdout


def test_a_capture_can_be_read_as_a_host(tmp_path: Path) -> None:
    tree, copy, file = plant("mi300x", tmp_path), tmp_path / "capture", tmp_path / "capture.tar.gz"
    result = run("capture", str(file), *roots(tree))
    assert result.returncode == 0
    assert "captured AMD GPUs: 2" in result.stdout
    with tarfile.open(file) as archive:
        archive.extractall(copy, filter="tar")
    original, again = (
        parse_samples(run("serve", "--once", *roots(root)).stdout)["gputally_gpu_power_watts"]
        for root in (tree, copy)
    )
    assert list(again.values()) == list(original.values())
    refused = run("capture", str(file), *roots(tree))
    assert refused.returncode != 0
