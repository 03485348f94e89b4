"""`gputally check` on hosts of every kind."""

import json
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from gputally.attribution import PodReport
from gputally.commands import NOTE, OK, PROBLEM, Finding, report_lines
from gputally.commands.check import check_host, report_json, usable
from gputally.devices import Report
from gputally.ledger.clock import since_boot_us
from gputally.ledger.state_file import Saved, encode
from gputally.model import Gpu, PodInfo, Process, Reading, Unavailable
from tests.support.ledger_states import BOOT, state
from tests.support.texts import missing
from tools.standin.procfs import FakeProcfs

GPU = Gpu("GPU-a", 0, "nvidia", "NVIDIA T4")
MI300X = Gpu("GPU-m", 0, "amd", "AMD Instinct MI300X")


class Fixed:
    def __init__(self, name: str, answer: Report | Unavailable) -> None:
        self.name = name
        self.answer = answer

    def read(self) -> Report:
        if isinstance(self.answer, Unavailable):
            raise self.answer
        return self.answer

    def close(self) -> None:
        pass


def host(root: Path, *, pci: tuple[str, ...] = (), module: str = "", pids: tuple[int, ...] = ()) -> Path:
    for address in pci:
        device = root / "sys/bus/pci/devices" / address
        device.mkdir(parents=True)
        (device / "vendor").write_text("0x10de\n")
        (device / "class").write_text("0x030200\n")
    if module:
        (root / "proc/driver/nvidia").mkdir(parents=True)
        (root / "proc/driver/nvidia/version").write_text(module)
    for pid in pids:
        (root / "proc" / str(pid)).mkdir(parents=True)
    (root / "dev").mkdir()
    return root


def amd_host(root: Path, *, pids: tuple[int, ...] = ()) -> Path:
    device = root / "sys/bus/pci/devices/0000:05:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x1002\n")
    (device / "class").write_text("0x120000\n")
    return host(root, pids=pids)


def check(root: Path, *readers: Fixed, release_driver: bool = False) -> list[Finding]:
    return check_host(
        [readers],
        procfs=root / "proc",
        sysfs=root / "sys",
        dev=root / "dev",
        timeout_seconds=60,
        release_driver=release_driver,
    )


def check_sources(root: Path, *sources: Sequence[Fixed]) -> list[Finding]:
    return check_host(sources, procfs=root / "proc", sysfs=root / "sys", dev=root / "dev", timeout_seconds=60)


MODULE = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  Tue Apr  8 12:41:17 UTC 2025\n"


def test_a_host_without_a_gpu_is_not_usable(tmp_path: Path) -> None:
    nvml = Fixed("nvml", Unavailable("the NVML library is not here", "install the driver"))
    findings = check(host(tmp_path), nvml)
    assert not usable(findings)
    assert Finding("problem", "nvml", "the NVML library is not here", "install the driver") in findings
    assert "fix: install the driver" in "\n".join(report_lines(findings))


def test_a_gpu_without_its_module_has_the_command_that_loads_it(tmp_path: Path) -> None:
    findings = check(host(tmp_path, pci=("0000:1a:00.0",)), Fixed("nvml", Unavailable("no driver")))
    found = {finding.subject: finding for finding in findings}
    assert (found["pci"].level, found["driver"].level) == ("ok", "problem")
    assert missing(found["pci"].text, "1 NVIDIA", "0000:1a:00.0") == []
    assert found["driver"].fix == "modprobe nvidia"


def test_a_healthy_host_is_usable(tmp_path: Path) -> None:
    root = host(tmp_path, pci=("0000:1a:00.0",), module=MODULE, pids=(41,))
    reading = Reading(
        gpu=GPU, persistence_mode=True, accounting_mode=True, processes=(Process(41, "compute"),)
    )
    findings = check(root, Fixed("nvml", Report((reading,))), Fixed("nvidia-smi", Unavailable("not found")))
    assert usable(findings)
    levels = {finding.subject: finding.level for finding in findings}
    assert levels == {
        "pci": "ok",
        "driver": "ok",
        "devices": "note",
        "nvml": "ok",
        "nvml gpu 0": "ok",
        "processes": "ok",
        "nvidia-smi": "note",
        "kubernetes": "note",
    }
    assert Finding("ok", "driver", "kernel module 550.163.01 is loaded") in findings


def test_fields_that_a_gpu_does_not_support_are_listed(tmp_path: Path) -> None:
    reading = Reading(gpu=GPU, power_watts=30.0)
    text = "\n".join(report_lines(check(host(tmp_path), Fixed("nvml", Report((reading,))))))
    assert "NVIDIA T4 does not support: " in text
    assert "energy_millijoules" in text
    assert "power_watts" not in text


def test_a_lost_gpu_makes_the_host_unusable(tmp_path: Path) -> None:
    report = Report((Reading(gpu=GPU, up=False), Reading(gpu=Gpu("GPU-b", 1, "nvidia", "NVIDIA T4"))))
    findings = check(host(tmp_path), Fixed("nvml", report))
    assert not usable(findings)
    assert any("is lost" in finding.text for finding in findings)


def test_a_gpu_that_hangs_is_not_called_lost(tmp_path: Path) -> None:
    report = Report((Reading(gpu=GPU, up=False, late=True),))
    findings = check(host(tmp_path), Fixed("nvml", report))
    assert not usable(findings)
    assert any("does not respond" in finding.text for finding in findings)


def test_a_missing_right_to_monitor_mig_is_explained_with_its_fix(tmp_path: Path) -> None:
    reading = Reading(gpu=GPU, mig_mode=True)
    denied = Report((reading,), {("processes", "no_permission"): 3})
    (finding,) = (f for f in check(host(tmp_path), Fixed("nvml", denied)) if "MIG" in f.text)
    assert finding.level == "note"
    assert "NVIDIA_MIG_MONITOR_DEVICES=all" in finding.fix


def test_releasing_the_driver_without_persistence_mode_is_noticed(tmp_path: Path) -> None:
    reading = Reading(gpu=GPU, persistence_mode=False)
    findings = check(host(tmp_path), Fixed("nvml", Report((reading,))), release_driver=True)
    (finding,) = (f for f in findings if "--release-driver" in f.text)
    assert finding.fix == "nvidia-smi -pm 1"


def test_processes_of_another_pid_namespace_are_reported(tmp_path: Path) -> None:
    reading = Reading(gpu=GPU, processes=(Process(41, "compute"), Process(42, "compute")))
    findings = check(host(tmp_path, pids=(41,)), Fixed("nvml", Report((reading,))))
    (finding,) = (f for f in findings if f.subject == "processes")
    assert finding.level == "problem"
    assert "1 of 2" in finding.text
    assert "hostPID: true" in finding.fix


def test_modes_with_a_cost_have_the_command_that_changes_them(tmp_path: Path) -> None:
    reading = Reading(gpu=GPU, persistence_mode=False, accounting_mode=False)
    findings = check(host(tmp_path), Fixed("nvml", Report((reading,))))
    assert {finding.fix for finding in findings if finding.level == "note"} >= {
        "nvidia-smi -pm 1",
        "gputally enable-accounting",
    }
    assert usable(findings), "a note is nothing to mend"


def test_an_amd_gpu_without_its_module_has_the_command_that_loads_it(tmp_path: Path) -> None:
    findings = check(amd_host(tmp_path), Fixed("amdgpu", Unavailable("no driver")))
    pci, driver = findings[:2]
    assert (pci.subject, pci.level) == ("pci", "ok")
    assert missing(pci.text, "1 AMD", "0000:05:00.0") == []
    assert (driver.subject, driver.level, driver.fix) == ("driver", "problem", "modprobe amdgpu")
    assert "NVIDIA" not in "\n".join(report_lines(findings)), "an absent vendor is not reported"


def test_a_healthy_host_with_amd_gpus_is_usable(tmp_path: Path) -> None:
    root = amd_host(tmp_path, pids=(41,))
    (root / "sys/module/amdgpu").mkdir(parents=True)
    reading = Reading(gpu=MI300X, power_watts=140.0, processes=(Process(41, "compute"),))
    answer = Report((reading,), {("fdinfo", "permission"): 3, ("kfd", "permission"): 0})
    findings = check(root, Fixed("amdgpu", answer), Fixed("rocm-smi", Unavailable("not found")))
    assert usable(findings)
    assert [finding.level for finding in findings if finding.subject == "driver"] == ["ok"]
    assert Finding("note", "rocm-smi", "not found") in findings
    (denied,) = (finding for finding in findings if "no permission to read" in finding.text)
    assert (denied.level, denied.subject) == ("note", "amdgpu")
    assert "CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH" in denied.fix
    (told,) = (finding.text for finding in findings if finding.subject == "amdgpu gpu 0")
    assert "energy_millijoules" in told
    assert "gtt_used_bytes" in told
    assert "nvlink" not in told
    assert "xid" not in told


def test_fields_of_amd_gpus_only_are_not_missing_on_others(tmp_path: Path) -> None:
    text = "\n".join(report_lines(check(host(tmp_path), Fixed("nvml", Report((Reading(gpu=GPU),))))))
    assert "nvlink_bytes" in text
    assert "xgmi" not in text


def test_on_a_host_with_both_vendors_each_must_be_readable(tmp_path: Path) -> None:
    nvidia = [Fixed("nvml", Report((Reading(gpu=GPU),))), Fixed("nvidia-smi", Unavailable("not found"))]
    broken = [Fixed("amdgpu", Unavailable("no driver")), Fixed("rocm-smi", Unavailable("not found"))]
    works = [Fixed("amdgpu", Report((Reading(gpu=MI300X),))), Fixed("rocm-smi", Unavailable("not found"))]
    root = host(tmp_path)
    assert not usable(check_sources(root, nvidia, broken))
    assert usable(check_sources(root, nvidia, works))


def test_a_driver_that_no_selected_reader_needs_is_not_reported(tmp_path: Path) -> None:
    root = amd_host(tmp_path)
    nvml = Fixed("nvml", Report((Reading(gpu=GPU),)))
    assert usable(check(root, nvml))
    works = Fixed("amdgpu", Report((Reading(gpu=MI300X),)))
    assert not usable(check_sources(root, [nvml], [works])), "its module is not loaded"


def test_the_fix_for_a_lost_amd_gpu_is_the_reset_command_of_amd(tmp_path: Path) -> None:
    findings = check(host(tmp_path), Fixed("amdgpu", Report((Reading(gpu=MI300X, up=False),))))
    assert any(finding.fix == "rocm-smi --gpureset, else reboot the node" for finding in findings)


def test_json_has_the_result_and_the_findings(tmp_path: Path) -> None:
    report = json.loads("".join(report_json(check(host(tmp_path), Fixed("nvml", Report(()))))))
    assert report["ok"] is False
    assert any("no GPU" in finding["text"] for finding in report["findings"] if finding["subject"] == "nvml")


class Knows:
    name = "pod_logs"

    def __init__(self, answer: PodReport | Unavailable) -> None:
        self.answer = answer

    def read(self) -> PodReport:
        if isinstance(self.answer, Unavailable):
            raise self.answer
        return self.answer

    def close(self) -> None:
        pass


def test_a_pod_source_is_reported_with_its_counts_or_the_fix(tmp_path: Path) -> None:
    def found(answer: PodReport | Unavailable) -> Finding:
        return check_host(
            [],
            procfs=tmp_path,
            sysfs=tmp_path,
            dev=tmp_path,
            timeout_seconds=60,
            pod_sources=[Knows(answer)],
        )[-1]

    read = found(PodReport((PodInfo("a", "b"),)))
    assert (read.level, read.subject) == ("ok", "pod_logs")
    assert "1 pods, 0 GPUs" in read.text
    beyond = found(PodReport((PodInfo("a", "b"),), left_out={"pods": 0, "containers": 3}))
    assert (beyond.level, beyond.text) == ("note", "3 containers are beyond the limit and left out")
    failed = found(Unavailable("no /var/log/pods", "mount it"))
    assert (failed.level, failed.subject, failed.fix) == ("note", "pod_logs", "mount it")
    assert "no /var/log/pods" in failed.text
    assert "names of pods" in failed.text


def state_finding(tmp_path: Path, path: Path) -> Finding:
    FakeProcfs(tmp_path / "proc")
    boot = tmp_path / "proc/sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True, exist_ok=True)
    boot.write_text(BOOT)
    findings = check_host([], procfs=tmp_path / "proc", sysfs=tmp_path, timeout_seconds=30, state_file=path)
    (found,) = [finding for finding in findings if finding.subject == "state_file"]
    return found


@pytest.mark.parametrize(
    ("valid_seconds", "boot_id", "level", "text"),
    [
        (60, BOOT, OK, "continues the ledger in"),
        (-1, BOOT, NOTE, "has expired: an exporter that starts now begins a new ledger"),
        (60, "another", NOTE, "is of another boot"),
    ],
)
def test_whether_the_state_file_is_resumed_from(
    tmp_path: Path, valid_seconds: int, boot_id: str, level: str, text: str
) -> None:
    path = tmp_path / "ledger.json"
    until_us = since_boot_us() + valid_seconds * 1_000_000
    path.write_bytes(encode(Saved(state(1, boot_id=boot_id), time.time(), until_us)))
    found = state_finding(tmp_path, path)
    assert (found.level, text in found.text) == (level, True)
    assert path.exists()


def test_a_state_file_that_is_missing_damaged_or_cannot_exist(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    assert "does not exist" in state_finding(tmp_path, path).text
    path.write_bytes(b"not ours")
    found = state_finding(tmp_path, path)
    assert (found.level, "was not written by GPUTally" in found.text) == (NOTE, True)
    found = state_finding(tmp_path, tmp_path / "missing" / "ledger.json")
    assert (found.level, found.fix) == (PROBLEM, f"mkdir -p {tmp_path / 'missing'}")
