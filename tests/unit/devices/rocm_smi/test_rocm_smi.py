"""The reader on commands that answer like AMD's tools, and on commands that misbehave."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gputally.devices.rocm_smi import RocmSmiReader, assign_processes
from gputally.devices.rocm_smi.json_values import ListedProcess
from gputally.devices.rocm_smi.rocm_smi_keys import OPTIONS
from gputally.model import Process, Reading, Unavailable

CAPTURES = Path(__file__).parents[3] / "fixtures" / "rocm-smi"
LOW_POWER = "WARNING: AMD GPU device(s) is/are in a low-power state. Check power control/runtime_status"
CARD = {"Unique ID": "0x{}", "PCI Bus": "0000:0{}:00.0", "GPU use (%)": "5", "Device ID": "0x740f"}


class Tool:
    """A command that notes how it was called. `script` is sh, with `$*` the arguments."""

    def __init__(self, directory: Path, name: str = "rocm-smi") -> None:
        directory.mkdir(exist_ok=True)
        self.path = directory / name
        self._calls = directory / f"{name}.calls"
        self.says({})

    def says(self, document: Any, *, before: str = "", stderr: str = "", exit_code: int = 0) -> None:
        out, err = self.path.with_suffix(".out"), self.path.with_suffix(".err")
        out.write_text(before + (document if isinstance(document, str) else json.dumps(document) + "\n"))
        err.write_text(stderr)
        self.script(f"cat {out}; cat {err} >&2; exit {exit_code}")

    def script(self, script: str) -> None:
        self.path.write_text(f'#!/bin/sh\necho "$*" >> {self._calls}\n{script}\n')
        self.path.chmod(0o755)

    def calls(self) -> list[str]:
        return self._calls.read_text().splitlines() if self._calls.exists() else []


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def tool(tmp_path: Path) -> Tool:
    return Tool(tmp_path)


@pytest.fixture
def reader(tool: Tool) -> RocmSmiReader:
    return RocmSmiReader(str(tool.path), timeout_seconds=30)


def host(*cards: int, **system: str) -> dict[str, Any]:
    """What the tool says of cards with these unique ids, in this order."""
    described = {
        f"card{place}": {key: value.format(card) for key, value in CARD.items()}
        for place, card in enumerate(cards)
    }
    return {**described, **({"system": system} if system else {})}


def facts(readings: tuple[Reading, ...]) -> list[tuple[int, str, bool]]:
    return [(reading.gpu.index, reading.gpu.uuid, reading.up) for reading in readings]


def test_one_run_per_sample(tool: Tool, reader: RocmSmiReader) -> None:
    tool.says(host(1, 2, **{"Driver version": "6.8.5"}))
    report = reader.read()
    assert facts(report.readings) == [(0, "GPU-0000000000000001", True), (1, "GPU-0000000000000002", True)]
    assert report.readings[0].gpu.driver_version == "6.8.5"
    assert report.readings[0].processes == ()
    assert report.errors == {}
    assert reader.read() == report
    reader.close()
    words = [word for option, values in OPTIONS.items() for word in (option, *values)]
    assert tool.calls() == [" ".join([*words, "--json"])] * 2


def test_no_argument_changes_a_setting() -> None:
    assert all(option.startswith("--show") for option in OPTIONS)


@pytest.mark.parametrize("exit_code", [0, 2])
def test_warnings_around_the_json_and_the_exit_code_do_not_matter(
    tool: Tool, reader: RocmSmiReader, exit_code: int
) -> None:
    tool.says(host(1), before=f"\n{LOW_POWER}\n\n", stderr="opendir: No such file\n", exit_code=exit_code)
    report = reader.read()
    assert facts(report.readings) == [(0, "GPU-0000000000000001", True)]
    assert report.errors == {}


def test_options_unknown_to_the_version_are_omitted_from_then_on(tool: Tool, reader: RocmSmiReader) -> None:
    old = json.dumps(host(1))
    tool.script(
        f"""case "$*" in *--showenergycounter*|*--showpids*)
          echo "rocm-smi: error: unrecognized arguments: --showenergycounter --showpids" >&2; exit 2;;
        esac
        echo '{old}'"""
    )
    report = reader.read()
    assert facts(report.readings) == [(0, "GPU-0000000000000001", True)]
    assert report.readings[0].processes is None, "not requested"
    reader.read()
    assert len(tool.calls()) == 3
    assert "--showpids" not in tool.calls()[-1]
    assert "--showpower" in tool.calls()[-1]


@pytest.mark.parametrize(
    "crash",
    [
        "kill -ABRT $$",
        "exit 134",
        "echo 'Traceback (most recent call last):' >&2; echo 'ValueError: N/A' >&2; exit 1",
    ],
)
def test_an_option_that_crashes_the_tool_affects_only_itself(tool: Tool, tmp_path: Path, crash: str) -> None:
    clock = Clock()
    reader = RocmSmiReader(str(tool.path), timeout_seconds=60, clock=clock)
    answer = json.dumps(host(1))
    tool.script(f"""case "$*" in *--showenergycounter*) {crash};; esac\necho '{answer}'""")
    report = reader.read()
    assert facts(report.readings) == [(0, "GPU-0000000000000001", True)]
    assert report.errors == {("showenergycounter", "crash"): 1}
    before = len(tool.calls())
    assert reader.read() == report
    assert len(tool.calls()) == before + 1
    clock.now += 10_000
    tool.says(host(1))
    reader.read()
    assert "--showenergycounter" in tool.calls()[-1], "it gets another chance"


def test_a_tool_that_always_crashes_is_probed_once(tool: Tool, reader: RocmSmiReader) -> None:
    tool.script("echo 'python3: rocm_smi.cc:166: Assertion failed.' >&2; kill -ABRT $$")
    for _ in range(3):
        with pytest.raises(Unavailable, match=r"signal 6: python3: .* Assertion failed"):
            reader.read()
    assert len(tool.calls()) == 1 + len(OPTIONS) + 2


@pytest.mark.parametrize(
    ("stdout", "stderr", "exit_code", "reason", "fix"),
    [
        (
            "",
            "ERROR:root:Driver not initialized (amdgpu not found in modules)\n",
            0,
            "did not print JSON, but: ERROR:root:Driver not initialized",
            "modprobe amdgpu",
        ),
        ("", "WARNING: No AMD GPUs specified\nWARNING: No JSON data to report\n", 0, "No JSON data", "lspci"),
        (
            "",
            "Exception caught: rsmi_init.\nERROR:root:ROCm SMI returned 8 (the expected value is 0)\n",
            8,
            "exit code 8: ERROR:root:ROCm SMI returned 8",
            "/sys/class/kfd",
        ),
        (
            "Unable to load the rocm_smi library.\nSet LD_LIBRARY_PATH to the directory\n",
            "",
            0,
            "but: Unable to load the rocm_smi library",
            "ROCm SMI library",
        ),
        ("", "", 0, "but: nothing", "dmesg"),
        ('{"card0": {"GPU use', "", 0, "but: {", "dmesg"),
        ("{}\n", "", 0, "but: {}", "dmesg"),
        ("[1, 2]\n", "", 0, "but: ", "dmesg"),
        ("\x07\x00\x1b[31m\n", "", 1, r"exit code 1: \?\[31m", "dmesg"),
    ],
)
def test_the_message_of_a_tool_without_output_is_quoted(
    tool: Tool, reader: RocmSmiReader, stdout: str, stderr: str, exit_code: int, reason: str, fix: str
) -> None:
    tool.says(stdout, stderr=stderr, exit_code=exit_code)
    with pytest.raises(Unavailable, match=reason) as failure:
        reader.read()
    assert failure.value.reason.isprintable()
    assert fix in failure.value.fix
    tool.says(host(1))
    assert facts(reader.read().readings) == [(0, "GPU-0000000000000001", True)], (
        "it goes on when the tool does"
    )


def test_a_tool_that_hangs_is_unavailable(tool: Tool) -> None:
    tool.script("sleep 600 & wait")
    with pytest.raises(Unavailable, match=r"still running after .* and was killed"):
        RocmSmiReader(str(tool.path), timeout_seconds=0.5).read()


def test_a_missing_gpu_is_lost_and_the_others_keep_their_index(tool: Tool, reader: RocmSmiReader) -> None:
    tool.says(host(1, 2, 3))
    reader.read()
    tool.says(host(3, 2))
    report = reader.read()
    assert facts(report.readings) == [
        (0, "GPU-0000000000000001", False),
        (1, "GPU-0000000000000002", True),
        (2, "GPU-0000000000000003", True),
    ]
    assert report.errors == {("gpu", "missing"): 1}
    tool.says("", stderr="WARNING: No AMD GPUs specified\nWARNING: No JSON data to report\n")
    assert [reading.up for reading in reader.read().readings] == [False] * 3
    tool.says(host(1, 2, 3))
    assert [reading.up for reading in reader.read().readings] == [True] * 3


def test_a_card_without_values_is_lost_and_one_without_identity_is_omitted(
    tool: Tool, reader: RocmSmiReader
) -> None:
    document = host(1, 2)
    document["card0"] |= {"GPU use (%)": "N/A"}
    document["card1"] |= {"Unique ID": "N/A", "PCI Bus": ""}
    tool.says(document)
    report = reader.read()
    assert facts(report.readings) == [(0, "GPU-0000000000000001", False)]
    assert report.errors == {("gpu", "lost"): 1, ("gpu", "unidentified"): 1}


def test_two_dies_with_one_id_are_distinguished_by_address(tool: Tool, reader: RocmSmiReader) -> None:
    document = host(1, 2)
    document["card1"]["Unique ID"] = "0x1"
    tool.says(document)
    assert [reading.gpu.uuid for reading in reader.read().readings] == [
        "GPU-0000000000000001-0000:01:00.0",
        "GPU-0000000000000001-0000:02:00.0",
    ]


def test_partitions_belong_to_their_card(tool: Tool, reader: RocmSmiReader) -> None:
    tool.says((CAPTURES / "rocm-smi-6.4" / "mi300x-cpx.json").read_text())
    report = reader.read()
    (card,) = report.readings
    assert card.gpu.uuid == "GPU-e3aa140f9a5f9e31"
    assert card.processes is None, "which of the partitions a process uses is not told"
    assert [part.instance.gpu_instance_id for part in card.mig] == list(range(8))
    assert card.mig[7].instance.uuid == "GPU-e3aa140f9a5f9e31-7"
    assert {part.instance.profile for part in card.mig} == {"CPX/NPS4"}
    assert report.errors == {}


def test_a_tool_that_counts_only_the_first_partition_is_not_used_for_processes(
    tool: Tool, reader: RocmSmiReader
) -> None:
    document = host(1, PID4711="python3, 1, 4096, 0, 0")
    document["card0"] |= {"Compute Partition": "CPX", "Memory Partition": "NPS4"}
    tool.says(document)
    assert reader.read().readings[0].processes is None
    document["card0"] |= {"Compute Partition": "SPX", "Memory Partition": "NPS1"}
    tool.says(document)
    assert reader.read().readings[0].processes == (Process(4711, "compute", "python3", 4096),)


def test_partitions_with_the_id_of_their_card_and_a_function_of_their_own(
    tool: Tool, reader: RocmSmiReader
) -> None:
    document = host(1, 1)
    document["card1"] |= {"PCI Bus": "0000:01:00.1", "VRAM Total Memory (B)": "1024"}
    tool.says(document)
    (card,) = reader.read().readings
    assert [part.memory_total_bytes for part in card.mig] == [None, 1024]


def test_processes_of_a_host_with_one_gpu(tool: Tool, reader: RocmSmiReader) -> None:
    tool.says(host(1, PID4711="python3, 1, 4096, 0, 0", PID12="what, 1"))
    report = reader.read()
    assert report.readings[0].processes == (Process(4711, "compute", "python3", 4096),)
    assert report.errors == {("processes", "malformed"): 1}


@pytest.mark.parametrize(
    ("listed", "placed"),
    [
        ([], ()),
        ([ListedProcess(1, "a", 4, 8192)], (Process(1, "compute", "a"),)),
        ([ListedProcess(1, "a", 0, 0)], ()),
        ([ListedProcess(1, "a", 4, 0), ListedProcess(2, "b", 1, 4096)], None),
        ([ListedProcess(1, None, None, None)], None),
    ],
)
def test_a_process_is_placed_on_several_gpus_only_if_it_uses_all(
    listed: list[ListedProcess], placed: tuple[Process, ...] | None
) -> None:
    assert assign_processes(listed, 4) == placed


@pytest.fixture
def amd_smi(tmp_path: Path) -> Tool:
    tool = Tool(tmp_path / "bin", "amd-smi")
    captures = CAPTURES / "amd-smi-6.2"
    tool.script(f"cat {captures}/$1.json")
    return tool


def with_amd_smi(tmp_path: Path, amd_smi: Tool, clock: Callable[[], float] = time.monotonic) -> RocmSmiReader:
    missing = str(tmp_path / "rocm-smi")
    return RocmSmiReader(missing, amd_smi_command=str(amd_smi.path), timeout_seconds=30, clock=clock)


def test_without_rocm_smi_amd_smi_is_used(tmp_path: Path, amd_smi: Tool) -> None:
    clock = Clock()
    reader = with_amd_smi(tmp_path, amd_smi, clock)
    report = reader.read()
    assert facts(report.readings) == [(0, "GPU-0f1e2d3c4b5a6978", True)]
    assert report.readings[0].power_watts == 612
    assert report.readings[0].processes is None
    assert [call.split()[0] for call in amd_smi.calls()] == ["metric", "static"]
    assert reader.read() == report
    assert len(amd_smi.calls()) == 3, "what does not change is asked once"
    clock.now += 1000
    reader.read()
    assert amd_smi.calls()[4] == "static --json", "limits may have been set"
    reader.close()


def test_amd_smi_is_asked_for_ras_errors_once_a_minute(tmp_path: Path) -> None:
    """Options and answers as in the help of ROCm 6.1 to 7.2, whose --xgmi-err resets what it reports."""
    tool = Tool(tmp_path / "bin", "amd-smi")
    (tmp_path / "part.json").write_text(
        json.dumps(
            [
                {name: section for name, section in gpu.items() if not name.startswith("ecc")}
                for gpu in json.loads((CAPTURES / "amd-smi-6.2/metric.json").read_text())
            ]
        )
    )
    whole = f"cat {CAPTURES}/amd-smi-6.2/$1.json"
    tool.script(f'case "$*" in static*|*--ecc-blocks*) {whole};; *) cat {tmp_path}/part.json;; esac')
    clock = Clock()
    reader = with_amd_smi(tmp_path, tool, clock)
    readings: list[Reading] = []
    for _ in range(13):
        readings += reader.read().readings
        clock.now += 5
    assert readings[0].ras_errors
    assert {tuple(reading.ras_errors or {}) for reading in readings} == {tuple(readings[0].ras_errors)}
    metric = [call for call in tool.calls() if call.startswith("metric")]
    assert [number for number, call in enumerate(metric) if "--ecc-blocks" in call] == [0, 12]
    assert not [call for call in metric if "xgmi" in call]


def test_an_amd_smi_that_does_not_support_the_options_is_run_without(tmp_path: Path) -> None:
    tool = Tool(tmp_path / "bin", "amd-smi")
    tool.script(f"""case "$*" in *--usage*) exit 2;; *) cat {CAPTURES}/amd-smi-6.2/$1.json;; esac""")
    clock = Clock()
    reader = with_amd_smi(tmp_path, tool, clock)
    assert reader.read().readings[0].ras_errors
    assert reader.read().readings[0].ras_errors
    assert [call for call in tool.calls() if "--usage" not in call] == [
        "metric --json",
        "static --json",
        "metric --json",
    ]
    assert len(tool.calls()) == 4
    clock.now += 3600
    reader.read()
    assert len([call for call in tool.calls() if "--usage" in call]) == 2, "the tool may be newer by now"


def test_rocm_smi_is_used_as_soon_as_it_exists(tmp_path: Path, amd_smi: Tool) -> None:
    reader = with_amd_smi(tmp_path, amd_smi)
    reader.read()
    Tool(tmp_path).says(host(7))
    assert facts(reader.read().readings) == [
        (0, "GPU-0f1e2d3c4b5a6978", False),
        (1, "GPU-0000000000000007", True),
    ]


def test_amd_smi_can_be_selected_by_path(amd_smi: Tool) -> None:
    reader = RocmSmiReader(str(amd_smi.path), timeout_seconds=30)
    assert facts(reader.read().readings) == [(0, "GPU-0f1e2d3c4b5a6978", True)]
    reader.close()


def test_an_amd_smi_without_gpus_is_quoted(tmp_path: Path, amd_smi: Tool) -> None:
    amd_smi.says("", stderr="ERROR: Unable to detect any GPU devices, check amdgpu version\n", exit_code=255)
    with pytest.raises(Unavailable, match="exit code 255: ERROR: Unable to detect any GPU") as failure:
        with_amd_smi(tmp_path, amd_smi).read()
    assert "lspci" in failure.value.fix


def test_a_host_with_neither_tool_is_unavailable(tmp_path: Path) -> None:
    nowhere = str(tmp_path / "amd-smi")
    with pytest.raises(Unavailable, match=r"neither .*rocm-smi nor .*amd-smi was found") as failure:
        RocmSmiReader(str(tmp_path / "rocm-smi"), amd_smi_command=nowhere, timeout_seconds=30).read()
    assert "install" in failure.value.fix


def test_a_rocm_smi_that_cannot_be_started_is_not_replaced_by_amd_smi(tmp_path: Path, amd_smi: Tool) -> None:
    reader = with_amd_smi(tmp_path, amd_smi)
    (tmp_path / "rocm-smi").write_text("not executable")
    with pytest.raises(Unavailable, match="could not be started"):
        reader.read()
