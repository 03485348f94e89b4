"""Whose GPUs a host has decides which readers are tried; --reader decides it alone."""

import subprocess
import sys
from pathlib import Path

import pytest

from gputally.app import readers_of
from gputally.config import Config
from tests.support.amd_trees import planted

NVIDIA = ["nvml", "nvidia-smi"]
AMD = ["amdgpu", "rocm-smi"]


def names(sysfs: Path, procfs: Path, reader: str = "auto") -> list[list[str]]:
    sources = readers_of(Config(reader=reader, sysfs=sysfs, procfs=procfs))
    return [[reader.name for reader in readers] for readers in sources]


def load_nvidia(procfs: Path) -> None:
    version = procfs / "driver/nvidia/version"
    version.parent.mkdir(parents=True)
    version.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  Tue Apr  8 2025\n")


def test_a_host_without_gpus_waits_for_nvidia(tmp_path: Path) -> None:
    assert names(tmp_path, tmp_path) == [NVIDIA]


def test_an_nvidia_driver_without_a_pci_gpu_selects_nvidia_readers_only(tmp_path: Path) -> None:
    load_nvidia(tmp_path)
    assert names(tmp_path, tmp_path) == [NVIDIA]


def test_on_a_host_with_amd_gpus_only_nvidia_readers_are_not_selected() -> None:
    tree = planted("mi300x")
    assert names(tree / "sys", tree / "proc") == [AMD]


def test_both_vendors_are_read_in_parallel(tmp_path: Path) -> None:
    tree = planted("card10")  # with a GPU of NVIDIA
    assert names(tree / "sys", tree / "proc") == [NVIDIA, AMD]
    load_nvidia(tmp_path)
    assert names(planted("mi300x") / "sys", tmp_path) == [NVIDIA, AMD]


@pytest.mark.parametrize("reader", ["nvml", "nvidia-smi", "amdgpu", "rocm-smi", "simulated"])
def test_a_selected_reader_is_used_on_any_host(tmp_path: Path, reader: str) -> None:
    assert names(tmp_path, tmp_path, reader) == [[reader]]


def test_amd_readers_are_not_imported_without_amd_gpus(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from gputally.config import Config;"
        "from gputally.app import readers_of;"
        f"readers_of(Config(sysfs=Path({str(tmp_path)!r}), procfs=Path({str(tmp_path)!r})));"
        "print([name for name in sys.modules if 'amd' in name or 'rocm' in name])"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
