"""`gputally enable-accounting`, on the driver stand-in through the real pynvml: what it says and returns."""

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gputally.commands.enable_accounting import enable_accounting
from gputally.model import Reading
from tests.support.nvml_cards import a100_mig, desktop, t4
from tools.standin.scenario import Fault, FaultKind, Frame, held_file, preload, write_scenario

NOT_SUPPORTED = "accounting is not supported by this GPU or driver, or in MIG mode"
SET = "nvmlDeviceSetAccountingMode"


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = write_scenario(tmp_path / "scenario", [Frame(0.0, ())])
    preload(path)
    return path


def shows(scenario: Path, *readings: Reading, faults: Sequence[Fault] = ()) -> None:
    write_scenario(scenario, [Frame(0.0, readings)], faults=faults)
    for reading in readings:  # as root has set it: the tests of this file need not be root
        if reading.accounting_mode:
            scenario.with_name(f"{scenario.name}.accounting.{reading.gpu.index}").write_text("1")


def error(function: str, code: int, gpu: int | None = None) -> Fault:
    return Fault(FaultKind.ERROR, function=function, value=code, gpu=gpu)


def run() -> tuple[int, list[str]]:
    """The exit status, and what is said about the GPUs, without their UUIDs."""
    out = io.StringIO()
    status = enable_accounting(out)
    lines = []
    for line in out.getvalue().splitlines():
        name, _, text = line.partition(": ")
        lines.append(f"{' '.join(name.split()[:2])}: {text}")
    return status, lines


def on(index: int) -> Reading:
    return replace(t4(index), accounting_mode=True)


def test_each_gpu_is_named_by_its_uuid(scenario: Path) -> None:
    shows(scenario, on(0))
    out = io.StringIO()
    assert enable_accounting(out) == 0
    assert out.getvalue() == f"gpu 0 {t4().gpu.uuid}: accounting is on already\n"


def test_a_gpu_without_support_is_reported_and_is_not_an_error(scenario: Path) -> None:
    shows(scenario, on(0), desktop(1), a100_mig(2))
    assert run() == (
        0,
        ["gpu 0: accounting is on already", f"gpu 1: {NOT_SUPPORTED}", f"gpu 2: {NOT_SUPPORTED}"],
    )


def test_a_node_in_mig_mode_is_not_an_error(scenario: Path) -> None:
    shows(scenario, a100_mig(0))
    assert run() == (0, [f"gpu 0: {NOT_SUPPORTED}"])


def test_without_root_the_fix_is_printed_once(scenario: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shows(scenario, t4(0), on(1), t4(2), faults=[error(SET, 4)])
    status, lines = run()
    assert (status, lines) == (
        1,
        ["gpu 0: accounting is off", "gpu 1: accounting is on already", "gpu 2: accounting is off"],
    )
    assert capsys.readouterr().err == (
        "gputally enable-accounting: only root may turn accounting on\n"
        "fix: run `gputally enable-accounting` as root, or in a privileged init container\n"
    )


def test_root_is_not_required_if_accounting_is_on_everywhere(scenario: Path) -> None:
    shows(scenario, on(0), on(1), faults=[error(SET, 4)])
    assert run()[0] == 0


def test_a_mode_that_is_reset_without_persistence_mode_is_reported(scenario: Path) -> None:
    shows(scenario, replace(on(0), persistence_mode=False), replace(on(1), persistence_mode=None))
    code, (first, second) = run()
    assert (code, second) == (0, "gpu 1: accounting is on already")
    assert first.startswith("gpu 0: accounting is on already")
    assert "nvidia-smi -pm 1" in first


def test_a_lost_gpu_is_an_error_and_the_others_are_set(scenario: Path) -> None:
    shows(scenario, t4(0), on(1), faults=[Fault(FaultKind.LOST, gpu=0)])
    assert run() == (1, ["gpu 0: the GPU is lost", "gpu 1: accounting is on already"])


def test_an_error_is_reported_and_the_others_are_set(scenario: Path) -> None:
    shows(scenario, t4(0), on(1), faults=[error(SET, 999, gpu=0)])
    assert run() == (
        1,
        ["gpu 0: accounting could not be turned on: unknown", "gpu 1: accounting is on already"],
    )


def test_a_driver_without_gpus_is_an_error(scenario: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shows(scenario)
    assert run() == (1, [])
    assert "no GPU\nfix: in a container" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault(FaultKind.DRIVER_GONE), "the NVIDIA kernel driver is not loaded"),
        (error(SET, 1), "the driver was unloaded"),
        (error("nvmlDeviceGetCount", 999), 'the driver returned "unknown error"'),
    ],
)
def test_without_a_driver_the_reason_is_printed(
    scenario: Path, capsys: pytest.CaptureFixture[str], fault: Fault, reason: str
) -> None:
    shows(scenario, t4(), faults=[fault])
    assert run() == (1, [])
    told = capsys.readouterr().err
    assert told.startswith(f"gputally enable-accounting: {reason}")
    assert "\nfix: " in told


def test_it_releases_the_driver(scenario: Path) -> None:
    shows(scenario, on(0))
    run()
    held = held_file(scenario)
    assert held.exists()
    assert held not in [link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
