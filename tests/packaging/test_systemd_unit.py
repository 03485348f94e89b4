"""The systemd unit, as systemd itself judges it; no unit is started here."""

import re
import subprocess
from pathlib import Path

import pytest

from tools.dependencies import programs

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "packaging/systemd/gputally.service"
MOST_EXPOSURE = 20  # tenths, as systemd-analyze counts: 0 is none, 100 is all


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with a command that exists here: systemd-analyze looks for it."""
    text = UNIT.read_text()
    assert text.count("ExecStart=/opt/gputally/bin/gputally serve\n") == 1
    file = tmp_path / "gputally.service"
    file.write_text(text.replace("/opt/gputally/bin/gputally", "/bin/true"))
    return file


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [programs.path("systemd-analyze"), *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_systemd_accepts_the_unit(unit: Path) -> None:
    verified = analyze("verify", "--man=no", unit)
    assert (verified.returncode, verified.stdout, verified.stderr) == (0, "", "")


def test_systemd_rejects_a_wrong_unit(unit: Path) -> None:
    unit.write_text(unit.read_text().replace("ProtectSystem=strict", "ProtectSistem=strict"))
    assert "ProtectSistem" in analyze("verify", "--man=no", unit).stderr


def test_the_units_exposure_score_is_low(unit: Path) -> None:
    judged = analyze("security", "--offline=true", "--no-pager", f"--threshold={MOST_EXPOSURE}", unit)
    assert judged.returncode == 0, judged.stdout
    overall = re.search(r"Overall exposure level for gputally.service: (\d+\.\d)", judged.stdout)
    assert overall
    assert float(overall[1]) * 10 <= MOST_EXPOSURE


def test_the_unit_may_use_nvidia_devices_and_read_every_process() -> None:
    """What hardening must not take away: a stricter unit would start, and find no GPU."""
    lines = set(UNIT.read_text().splitlines())
    assert {"DevicePolicy=closed", "DeviceAllow=char-195 rw"} <= lines
    assert not {"PrivateDevices=yes", "ProtectProc=invisible", "ProcSubset=pid"} & lines
