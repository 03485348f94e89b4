"""Adding a vendor takes one package, one row and one fixture: here ACME, in a copy of the exporter."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ACME = ROOT / "tests/fixtures/acme"
ROWS = "VENDORS = (NVIDIA, AMD)\n"


class Installation:
    """A copy of the exporter with the package and the row, on a host with the GPUs of the fixture."""

    def __init__(self, root: Path) -> None:
        self.root = root
        package = root / "exporter/gputally"
        shutil.copytree(ROOT / "exporter/gputally", package, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(ACME / "package", package / "devices/acme")
        vendors = package / "devices/vendors.py"
        before, row, after = vendors.read_text().partition(ROWS)
        assert row
        row = f"{(ACME / 'row.txt').read_text()}\n\nVENDORS = (NVIDIA, AMD, ACME)\n"
        vendors.write_text(before + row + after)
        device = root / "sys/bus/pci/devices/0000:07:00.0"
        device.mkdir(parents=True)
        (device / "vendor").write_text("0xacce\n")
        (device / "class").write_text("0x030200\n")
        (root / "sys/module/acme").mkdir(parents=True)
        (root / "sys/class/acme").mkdir(parents=True)
        shutil.copy(ACME / "gpus.json", root / "sys/class/acme/gpus.json")
        (root / "proc/1").mkdir(parents=True)

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        path = f"{self.root / 'exporter'}:{ROOT}"
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(
            [sys.executable, *arguments],
            env=environment,
            cwd=self.root,
            capture_output=True,
            text=True,
            check=False,
        )

    def gputally(self, command: str, *flags: str) -> subprocess.CompletedProcess[str]:
        host = ("--sysfs", str(self.root / "sys"), "--procfs", str(self.root / "proc"))
        return self.python("-m", "gputally", command, *host, *flags)

    def evaluate(self, *statements: str) -> str:
        """What the statements print. `readings` are those of the reader that is chosen for this host."""
        script = (
            "from pathlib import Path",
            "from gputally.devices.host import choose_readers",
            "from gputally.devices.vendors import *",
            f"settings = ReaderSettings(sysfs=Path({str(self.root / 'sys')!r}), procfs=Path('proc'))",
            "[[reader]] = choose_readers('auto', settings)",
            "readings = reader.read().readings",
            *statements,
        )
        run = self.python("-c", "\n".join(script))
        assert run.stderr == ""
        return run.stdout


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    return Installation(tmp_path_factory.mktemp("acme"))


@pytest.mark.parametrize("flags", [(), ("--reader", "acme")], ids=["auto", "by name"])
def test_the_vendors_gpus_are_in_the_scrape(installation: Installation, flags: tuple[str, ...]) -> None:
    run = installation.gputally("serve", "--once", "--metrics", "full", *flags)
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert 'gputally_gpu_power_watts{gpu="0",uuid="ACME-1"} 42.5' in lines
    assert 'gputally_gpu_up{gpu="1",uuid="ACME-2"} 0' in lines
    assert 'gputally_mig_memory_used_bytes{gpu="0",uuid="ACME-1-0"} 1024' in lines
    assert 'gputally_source_up{source="acme"} 1' in lines
    (info, *_) = (line for line in lines if line.startswith("gputally_gpu_info"))
    assert 'vendor="acme"' in info
    assert 'model="ACME Rocket"' in info


def test_check_reports_its_gpus_driver_and_what_is_missing(installation: Installation) -> None:
    run = installation.gputally("check", "--json", "--pod-logs", "", "--pod-resources-socket", "")
    assert run.stderr == ""
    findings = {finding["subject"]: finding for finding in json.loads(run.stdout)["findings"]}
    assert "1 ACME GPUs: 0000:07:00.0" in findings["pci"]["text"]
    assert (findings["driver"]["level"], findings["acme"]["level"]) == ("ok", "ok")
    assert "temperature_celsius" in findings["acme gpu 0"]["text"]
    assert "xid_errors" not in findings["acme gpu 0"]["text"], "no reader of this vendor fills it"
    assert findings["acme gpu 1"]["level"] == "problem"
    assert "acmectl reset" in findings["acme gpu 1"]["fix"]
    assert "nvml" not in findings, "other vendors have no GPU here"


def test_a_driver_that_is_not_loaded_gets_its_command(installation: Installation, tmp_path: Path) -> None:
    sysfs = tmp_path / "sys"
    shutil.copytree(installation.root / "sys/bus", sysfs / "bus")
    run = installation.gputally("check", "--json", "--sysfs", str(sysfs))
    findings = {finding["subject"]: finding for finding in json.loads(run.stdout)["findings"]}
    assert (findings["driver"]["level"], findings["driver"]["fix"]) == ("problem", "modprobe acme")
    assert (findings["acme"]["level"], findings["acme"]["fix"]) == ("problem", "modprobe acme")


def test_the_vendors_kubernetes_devices_are_matched_to_its_gpus(installation: Installation) -> None:
    printed = installation.evaluate(
        "from gputally.attribution.device_ids import is_gpu_resource, match_device",
        "print(is_gpu_resource('acme.example/rocket'), is_gpu_resource('acme.example/anvil'))",
        "print(match_device('rocket0', 'acme.example/rocket', readings))",
        "print(match_device('rocket0', 'nvidia.com/gpu', readings))",
    )
    assert printed.splitlines() == ["True False", "(0, 'ACME-1')", "None"]


def test_the_vendors_gpus_and_partitions_are_on_the_live_page(installation: Installation) -> None:
    printed = installation.evaluate(
        "from gputally.model import Snapshot",
        "from gputally.pages.document import About, build_document",
        "snapshot = Snapshot(taken_at_seconds=0, age_seconds=0, readings=readings, sources=())",
        "about = About(version='', hostname='', interval_seconds=5)",
        "print(build_document(snapshot, None, about))",
    )
    assert "ACME Rocket" in printed
    assert "Tile 0 half" in printed


def test_the_help_of_reader_names_it(installation: Installation) -> None:
    assert "acme, for ACME GPUs" in " ".join(installation.gputally("serve", "--help").stdout.split())


def test_the_vendors_reader_is_among_those_that_fill_a_field_and_in_the_alerts(
    installation: Installation,
) -> None:
    printed = installation.evaluate(
        "print(readers_that_fill('power_watts'), readers_that_fill('xid_errors'))",
        "from alerts.settings import FIXED",
        "print(FIXED['device_sources'])",
    )
    assert printed.splitlines() == [
        "('nvml', 'nvidia-smi', 'amdgpu', 'rocm-smi', 'acme') ('nvml',)",
        "nvml|nvidia-smi|amdgpu|rocm-smi|acme|simulated",
    ]
