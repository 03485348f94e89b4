"""Adding a metric of NVML takes three files: the model, the reader's table and the stand-in's table.

The tests that list fields need no edit: they pass in a copy of the repository with these three edits.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[4]
TESTS_OF_FIELDS = (
    "tests/unit/devices/nvml/test_cards.py",
    "tests/unit/devices/test_fills.py",
    "tests/unit/simulator/test_supported_fields.py",
)


Addition = dict[str, tuple[str, str]]
"""File -> the text that stands there today, and the lines that are added after it."""

MODEL = "exporter/gputally/model.py"
HEADER = "tools/standin/library/slots.h"
AFTER_THIS_FIELD = (
    '    pcie_width: int | None = gauge("PCIe lanes in use.", group=Group.PCIE, set=STANDARD)\n'
)
SLOTS = "#define SINGLE_SLOTS(X) \\\n"

CORES: Addition = {
    MODEL: (AFTER_THIS_FIELD, '    cores: int | None = gauge("Shader cores of the GPU.", group=Group.GPU)\n'),
    "exporter/gputally/devices/nvml/scalars.py": (
        "FIXED = (\n",
        '    Scalar("cores", ("nvmlDeviceGetNumGpuCores",)),\n',
    ),
    HEADER: (SLOTS, '    X(CORES, "cores", cores, 1) \\\n'),
}
CORES_GETTER = (
    "#define GETTERS(U32, U64, ENGINE, TWO) \\\n",
    "    U32(nvmlDeviceGetNumGpuCores, CORES) \\\n",
)
C2C_POWER: Addition = {
    MODEL: (
        AFTER_THIS_FIELD,
        '    c2c_power_watts: float | None = gauge("Power of the C2C links.", group=Group.POWER)\n',
    ),
    "exporter/gputally/devices/nvml/fields.py": (
        "DEVICE_SLOTS = (\n",
        '    Slot("c2c_power_watts", 999, per=1000),\n',
    ),
    HEADER: (SLOTS, '    X(C2C_POWER, "power.c2c", c2c_power_watts, 1000) \\\n'),
}
C2C_POWER_FIELD = ("#define FIELD_VALUES(X) \\\n", "    X(999, C2C_POWER, U32) \\\n")

READ = """
from pathlib import Path
from gputally.devices.nvml import NvmlReader
from gputally.devices.plausible import drop_implausible
from gputally.devices.vendors import readers_that_fill
from gputally.metrics.catalog import GPU_METRICS
from gputally.model import Gpu, Reading
from tools.standin.scenario import Frame, preload, write_scenario

scenario = Path("scenario")
gpu = Gpu("GPU-5fd4f087-86f3-7a43-b711-4771313afc50", 0, "nvidia", "NVIDIA H100 80GB HBM3")
write_scenario(scenario, [Frame(0.0, (Reading(gpu=gpu, cores=345, c2c_power_watts=345),))])
preload(scenario)
(reading,) = NvmlReader().read().readings
for field in ("cores", "c2c_power_watts"):
    value = getattr(drop_implausible(reading)[0], field)
    implausible = getattr(drop_implausible(Reading(gpu=gpu, **{field: -1}))[0], field)
    names = [metric.name for metric in GPU_METRICS if metric.field == field]
    print(value, implausible, readers_that_fill(field), names)
"""


def test_a_metric_is_added_in_three_files(tmp_path: Path) -> None:
    """Two of them: one with a function of its own, one that is a field value."""
    for directory in ("exporter", "tools", "tests", "alerts", "helm"):
        shutil.copytree(ROOT / directory, tmp_path / directory, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    assert [len(addition) for addition in (CORES, C2C_POWER)] == [3, 3]
    second_rows = [(HEADER, CORES_GETTER), (HEADER, C2C_POWER_FIELD)]
    for name, (before, added) in [*CORES.items(), *C2C_POWER.items(), *second_rows]:
        file = tmp_path / name
        text = file.read_text()
        assert text.count(before) == 1, f"{name}: {before}"
        file.write_text(text.replace(before, before + added))

    run = python(tmp_path, "-c", READ)
    assert run.stderr == ""
    assert run.stdout.splitlines() == [
        "345 None ('nvml',) ['gputally_gpu_cores']",
        "345.0 None ('nvml',) ['gputally_gpu_c2c_power_watts']",
    ]
    run = python(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS_OF_FIELDS)
    assert run.returncode == 0, run.stdout


def python(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs Python in the copy of the repository."""
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": f"{root / 'exporter'}:{root}"},
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
