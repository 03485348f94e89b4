"""`gputally enable-accounting`, on the driver stand-in through the real pynvml: what it says and returns."""

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gputally.commands.enable_accounting import enable_accounting
from gputally.model import Reading
from tests.support.nvml_cards import a100_mig, desktop, t4
from tests.support.texts import missing
from tools.standin.scenario import Fault, FaultKind, Frame, held_file, preload, write_scenario

STATES = ("not supported", "on already", "off", "lost", "unknown")
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
    """The exit code, and for each GPU its number and the state that its line reports."""
    out = io.StringIO()
    status = enable_accounting(out)
    lines = (line.split(": ", 1) for line in out.getvalue().splitlines())
    return status, [
        f"{name.split()[1]} {next(state for state in STATES if state in text)}" for name, text in lines
    ]


def on(index: int) -> Reading:
    return replace(t4(index), accounting_mode=True)


def test_each_gpu_is_named_by_its_uuid(scenario: Path) -> None:
    shows(scenario, on(0))
    out = io.StringIO()
    assert enable_accounting(out) == 0
    assert out.getvalue().startswith(f"gpu 0 {t4().gpu.uuid}: ")


def test_a_gpu_without_support_is_reported_and_is_not_an_error(scenario: Path) -> None:
    shows(scenario, on(0), desktop(1), a100_mig(2))
    assert run() == (0, ["0 on already", "1 not supported", "2 not supported"])


def test_a_node_in_mig_mode_is_not_an_error(scenario: Path) -> None:
    shows(scenario, a100_mig(0))
    assert run() == (0, ["0 not supported"])


def test_without_root_the_fix_is_printed_once(scenario: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shows(scenario, t4(0), on(1), t4(2), faults=[error(SET, 4)])
    assert run() == (1, ["0 off", "1 on already", "2 off"])
    printed = capsys.readouterr().err
    assert missing(printed, "root", "\nfix: ", "`gputally enable-accounting`", "init container") == []
    assert len(printed.splitlines()) == 2


def test_root_is_not_required_if_accounting_is_on_everywhere(scenario: Path) -> None:
    shows(scenario, on(0), on(1), faults=[error(SET, 4)])
    assert run()[0] == 0


def test_a_mode_that_is_reset_without_persistence_mode_is_reported(scenario: Path) -> None:
    shows(scenario, replace(on(0), persistence_mode=False), replace(on(1), persistence_mode=None))
    assert run() == (0, ["0 on already", "1 on already"])
    out = io.StringIO()
    enable_accounting(out)
    assert ["nvidia-smi -pm 1" in line for line in out.getvalue().splitlines()] == [True, False]


def test_a_lost_gpu_is_an_error_and_the_others_are_set(scenario: Path) -> None:
    shows(scenario, t4(0), on(1), faults=[Fault(FaultKind.LOST, gpu=0)])
    assert run() == (1, ["0 lost", "1 on already"])


def test_an_error_is_reported_and_the_others_are_set(scenario: Path) -> None:
    shows(scenario, t4(0), on(1), faults=[error(SET, 999, gpu=0)])
    assert run() == (1, ["0 unknown", "1 on already"])


def test_a_driver_without_gpus_is_an_error(scenario: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shows(scenario)
    assert run() == (1, [])
    assert missing(capsys.readouterr().err, "no GPU", "\nfix: ") == []


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault(FaultKind.DRIVER_GONE), "not loaded"),
        (error(SET, 1), "unloaded"),
        (error("nvmlDeviceGetCount", 999), "unknown error"),
    ],
)
def test_without_a_driver_the_reason_is_printed(
    scenario: Path, capsys: pytest.CaptureFixture[str], fault: Fault, reason: str
) -> None:
    shows(scenario, t4(), faults=[fault])
    assert run() == (1, [])
    assert missing(capsys.readouterr().err, "gputally enable-accounting: ", reason, "\nfix: ") == []


def test_the_command_releases_the_driver(scenario: Path) -> None:
    shows(scenario, on(0))
    run()
    held = held_file(scenario)
    assert held.exists()
    assert held not in [link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
